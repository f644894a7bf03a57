//! The protocol between the test and its child processes: commands and messages of one line each.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use libtest_mimic::Failed;

/// A command of the test to a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChildCommand {
    /// Send requests, all at once.
    Burst(Burst),
    /// Report the row of the first page with this name.
    Row(String),
}

/// The pages with a name and the numbers from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) name: String,
    pub(crate) count: usize,
}

/// Concurrent requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) pages: Pages,
    /// Renders finish once a file with this name exists.
    pub(crate) until: Option<String>,
    /// The number of clients per page.
    pub(crate) each: usize,
    /// How many seconds a render is fresh.
    pub(crate) interval: u64,
}

impl Burst {
    /// Requests of so many clients for one page, whose renders are fresh for an hour.
    pub(crate) fn of(name: &str, each: usize) -> Burst {
        Burst { pages: Pages { name: name.to_owned(), count: 1 }, each, interval: 3600, until: None }
    }

    pub(crate) fn total(&self) -> usize {
        self.pages.count * self.each
    }
}

/// The responses to a burst: how often each state occurred, with the process that rendered the page or the reason why
/// there was no page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Responses {
    pub(crate) counts: BTreeMap<(String, String), usize>,
    /// How long the slowest took, in milliseconds.
    pub(crate) slowest: i64,
}

impl Responses {
    /// Whether every response has one of these states.
    pub(crate) fn is_all(&self, states: &[&str]) -> bool {
        self.counts.keys().all(|(state, _)| states.contains(&state.as_str()))
    }

    /// The number of responses with this state and text.
    pub(crate) fn of(&self, state: &str, text: &str) -> usize {
        self.counts.get(&(state.to_owned(), text.to_owned())).copied().unwrap_or(0)
    }

    /// Adds the responses of another process or burst.
    pub(crate) fn add(&mut self, other: Responses) {
        for (response, count) in other.counts {
            *self.counts.entry(response).or_default() += count;
        }
        self.slowest = self.slowest.max(other.slowest);
    }

    /// Fails unless these are all responses: state, text, count.
    pub(crate) fn expect(&self, expected: &[(&str, &str, usize)]) -> Result<(), Failed> {
        let expected = expected.iter().filter(|(.., count)| *count > 0);
        let expected: BTreeMap<_, _> = expected
            .map(|(state, text, count)| (((*state).to_owned(), (*text).to_owned()), *count))
            .collect();
        if self.counts == expected {
            return Ok(());
        }
        Err(format!("clients got {:?} instead of {expected:?}", self.counts).into())
    }
}

/// The row of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// How often it was published.
    pub(crate) version: u64,
    /// When the lease expires, in epoch seconds; 0 if it is free.
    pub(crate) held_until: i64,
    /// The process that rendered the page.
    pub(crate) rendered_by: String,
}

/// A message of a child to the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// All requests of a burst have started.
    Started,
    /// So many responses had this state and this text.
    Count {
        state: String,
        count: usize,
        text: String,
    },
    /// All responses have arrived, the slowest after this many milliseconds.
    Done {
        slowest: i64,
    },
    Row(Row),
}

impl fmt::Display for ChildCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChildCommand::Row(name) => write!(f, "row {name}"),
            ChildCommand::Burst(Burst { pages: Pages { name, count }, each, interval, until }) => {
                write!(f, "burst {name} {count} {each} {interval} {}", until.as_deref().unwrap_or("-"))
            }
        }
    }
}

impl FromStr for ChildCommand {
    type Err = Failed;

    fn from_str(line: &str) -> Result<ChildCommand, Failed> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["row", name] => Ok(ChildCommand::Row(name.to_owned())),
            ["burst", name, count, each, interval, until] => Ok(ChildCommand::Burst(Burst {
                pages: Pages { name: name.to_owned(), count: count.parse()? },
                each: each.parse()?,
                interval: interval.parse()?,
                until: Some(until).filter(|until| *until != "-").map(str::to_owned),
            })),
            _ => Err(format!("invalid command: {line:?}").into()),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Started => f.write_str("started"),
            Message::Count { state, count, text } => write!(f, "count {state} {count} {text}"),
            Message::Done { slowest } => write!(f, "done {slowest}"),
            Message::Row(Row { version, held_until, rendered_by }) => {
                write!(f, "row {version} {held_until} {rendered_by}")
            }
        }
    }
}

impl FromStr for Message {
    type Err = Failed;

    fn from_str(line: &str) -> Result<Message, Failed> {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["started"] => Ok(Message::Started),
            ["count", state, count, text] => {
                Ok(Message::Count { state: state.to_owned(), count: count.parse()?, text: text.to_owned() })
            }
            ["done", slowest] => Ok(Message::Done { slowest: slowest.parse()? }),
            ["row", version, held_until, rendered_by] => Ok(Message::Row(Row {
                version: version.parse()?,
                held_until: held_until.parse()?,
                rendered_by: rendered_by.to_owned(),
            })),
            _ => Err(format!("invalid message: {line:?}").into()),
        }
    }
}
