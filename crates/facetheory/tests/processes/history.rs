//! What all processes of a run recorded, in one file: the order of its lines is the order of what happened.
//!
//! A line is appended before something is tried, and another after its answer was heard. So where the second line of one
//! thing stands before the first line of another, the one was over before the other began, in whichever processes.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use libtest_mimic::Failed;

/// What ends a line that was written to its end: a process may be killed in the middle of one.
const WHOLE: &str = " .";

/// Appends to the history.
pub(crate) struct Recorder(Mutex<File>);

/// One line.
#[derive(Debug)]
pub(crate) struct Event {
    /// Its place in the order.
    pub(crate) at: usize,
    /// Which of all attempts it belongs to.
    pub(crate) attempt: String,
    pub(crate) what: String,
    pub(crate) page: u64,
    pub(crate) more: Vec<String>,
}

impl Recorder {
    pub(crate) fn open(path: &Path) -> Result<Recorder, Failed> {
        Ok(Recorder(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)))
    }

    /// Appends one line, in one piece.
    pub(crate) fn note(&self, attempt: &str, what: &str, page: u64, more: &[&str]) {
        let more: String = more.iter().map(|word| format!(" {word}")).collect();
        // It begins a line of its own, whatever another process has left unfinished.
        let line = format!("\n{attempt} {what} {page}{more}{WHOLE}");
        self.0.lock().expect("no worker panics").write_all(line.as_bytes()).expect("the history is kept");
    }
}

/// All lines; what was cut off was never heard of.
pub(crate) fn read(path: &Path) -> Result<Vec<Event>, Failed> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.lines().filter_map(|line| line.strip_suffix(WHOLE)).enumerate();
    whole
        .map(|(at, line)| {
            let mut words = line.split(' ').map(str::to_owned);
            let mut word = || words.next().ok_or_else(|| Failed::from(format!("a strange line: {line:?}")));
            let (attempt, what, page) = (word()?, word()?, word()?.parse()?);
            Ok(Event { at, attempt, what, page, more: words.collect() })
        })
        .collect()
}
