//! The history of a run: all processes append to one file, so the order of its lines is the order of events.
//!
//! A line is written before an operation starts, and another after it returned. If the second line of one operation
//! precedes the first line of another, the first operation was over before the other started.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use libtest_mimic::Failed;

/// The end of a complete line: a process may be killed while it writes one.
const END: &str = " .";

/// Appends to the history.
pub(crate) struct Recorder(Mutex<File>);

/// One line of the history.
#[derive(Debug)]
pub(crate) struct Event {
    /// The position in the history.
    pub(crate) at: usize,
    /// The attempt that it belongs to.
    pub(crate) attempt: String,
    pub(crate) what: String,
    pub(crate) page: u64,
    pub(crate) more: Vec<String>,
}

impl Recorder {
    pub(crate) fn open(path: &Path) -> Result<Recorder, Failed> {
        Ok(Recorder(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)))
    }

    /// Appends one line with a single write.
    pub(crate) fn note(&self, attempt: &str, what: &str, page: u64, more: &[&str]) {
        let more: String = more.iter().map(|word| format!(" {word}")).collect();
        // Starts with a line break, since another process may have left an incomplete line.
        let line = format!("\n{attempt} {what} {page}{more}{END}");
        self.0.lock().expect("not poisoned").write_all(line.as_bytes()).expect("the history is writable");
    }
}

/// Reads all complete lines.
pub(crate) fn read(path: &Path) -> Result<Vec<Event>, Failed> {
    let text = std::fs::read_to_string(path)?;
    let complete = text.lines().filter_map(|line| line.strip_suffix(END)).enumerate();
    complete
        .map(|(at, line)| {
            let mut words = line.split(' ').map(str::to_owned);
            let mut word = || words.next().ok_or_else(|| Failed::from(format!("invalid line: {line:?}")));
            let (attempt, what, page) = (word()?, word()?, word()?.parse()?);
            Ok(Event { at, attempt, what, page, more: words.collect() })
        })
        .collect()
}
