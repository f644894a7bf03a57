//! What a process is told to do, and what it answers: one line each.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use libtest_mimic::Failed;

/// What a process is told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Let visitors come, all at once.
    Visit(Visits),
    /// Say what the table has of the first page of this name.
    Row(String),
}

/// Visitors who come at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visits {
    /// Which pages: those of this name, with the numbers from 0 on.
    pub(crate) name: String,
    pub(crate) pages: usize,
    /// So many visitors of each page.
    pub(crate) each: usize,
    /// For how many seconds a render is fresh.
    pub(crate) interval: u64,
    /// Renders end once there is a file of this name.
    pub(crate) until: Option<String>,
}

impl Visits {
    /// So many visitors of one page, whose renders are fresh for an hour.
    pub(crate) fn of(name: &str, each: usize) -> Visits {
        Visits { name: name.to_owned(), pages: 1, each, interval: 3600, until: None }
    }

    pub(crate) fn total(&self) -> usize {
        self.pages * self.each
    }
}

/// What visitors were given: how many had this state and this text, which is the process that rendered their page, or
/// why they got none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) answers: BTreeMap<(String, String), usize>,
    /// How long the slowest took, in milliseconds.
    pub(crate) slowest: i64,
}

impl Tally {
    /// Whether everyone was given one of these states.
    pub(crate) fn is_all(&self, states: &[&str]) -> bool {
        self.answers.keys().all(|(state, _)| states.contains(&state.as_str()))
    }

    /// How many were given this state and this text.
    pub(crate) fn of(&self, state: &str, text: &str) -> usize {
        self.answers.get(&(state.to_owned(), text.to_owned())).copied().unwrap_or(0)
    }

    /// Adds what visitors of another process were given.
    pub(crate) fn add(&mut self, other: Tally) {
        for (answer, count) in other.answers {
            *self.answers.entry(answer).or_default() += count;
        }
        self.slowest = self.slowest.max(other.slowest);
    }

    /// Fails unless exactly these were given: state, text, how many.
    pub(crate) fn expect(&self, expected: &[(&str, &str, usize)]) -> Result<(), Failed> {
        let expected = expected.iter().filter(|(.., count)| *count > 0);
        let expected: BTreeMap<_, _> = expected
            .map(|(state, text, count)| (((*state).to_owned(), (*text).to_owned()), *count))
            .collect();
        if self.answers == expected {
            return Ok(());
        }
        Err(format!("visitors were given {:?} instead of {expected:?}", self.answers).into())
    }
}

/// What the table has of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// How often it was published.
    pub(crate) version: u64,
    /// Until when somebody holds the lease, in epoch seconds; 0 if nobody does.
    pub(crate) held_until: i64,
    /// Which process rendered it.
    pub(crate) by: String,
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// All visitors have come, and wait if they have to.
    Begun,
    /// So many visitors were given this state and this text.
    Given {
        state: String,
        count: usize,
        text: String,
    },
    /// All visitors were given something, the slowest after so many milliseconds.
    Done {
        slowest: i64,
    },
    Row(Row),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Row(name) => write!(f, "row {name}"),
            Order::Visit(Visits { name, pages, each, interval, until }) => {
                write!(f, "visit {name} {pages} {each} {interval} {}", until.as_deref().unwrap_or("-"))
            }
        }
    }
}

impl FromStr for Order {
    type Err = Failed;

    fn from_str(line: &str) -> Result<Order, Failed> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["row", name] => Ok(Order::Row(name.to_owned())),
            ["visit", name, pages, each, interval, until] => Ok(Order::Visit(Visits {
                name: name.to_owned(),
                pages: pages.parse()?,
                each: each.parse()?,
                interval: interval.parse()?,
                until: Some(until).filter(|until| *until != "-").map(str::to_owned),
            })),
            _ => Err(format!("{line:?} is not an order").into()),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Begun => f.write_str("begun"),
            Reply::Given { state, count, text } => write!(f, "given {state} {count} {text}"),
            Reply::Done { slowest } => write!(f, "done {slowest}"),
            Reply::Row(Row { version, held_until, by }) => write!(f, "row {version} {held_until} {by}"),
        }
    }
}

impl FromStr for Reply {
    type Err = Failed;

    fn from_str(line: &str) -> Result<Reply, Failed> {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["begun"] => Ok(Reply::Begun),
            ["given", state, count, text] => {
                Ok(Reply::Given { state: state.to_owned(), count: count.parse()?, text: text.to_owned() })
            }
            ["done", slowest] => Ok(Reply::Done { slowest: slowest.parse()? }),
            ["row", version, held_until, by] => Ok(Reply::Row(Row {
                version: version.parse()?,
                held_until: held_until.parse()?,
                by: by.to_owned(),
            })),
            _ => Err(format!("{line:?} is not a reply").into()),
        }
    }
}
