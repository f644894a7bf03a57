//! What is wrong with a configuration, each with its line.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Fault {
    /// The line, from 1; none where the whole is wrong.
    pub(crate) line: Option<usize>,
    /// What is wrong, and what to write instead.
    pub(crate) text: String,
}

/// All that is wrong with a configuration, in the order of its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

/// The most faults that are told: a file of another kind has one in every line.
const MAX_TOLD: usize = 50;

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().take(MAX_TOLD).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            match fault.line {
                Some(line) => write!(f, "{separator}- line {line}: {}", fault.text)?,
                None => write!(f, "{separator}- {}", fault.text)?,
            }
        }
        match self.0.len().checked_sub(MAX_TOLD) {
            Some(more @ 1..) => write!(f, "\n- and {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Faults {}

/// A file that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrongFile {
    /// Where it is.
    pub(crate) file: PathBuf,
    /// All that is wrong with it.
    pub(crate) faults: Faults,
}

impl fmt::Display for WrongFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is wrong:\n{}", self.file.display(), self.faults)
    }
}

impl std::error::Error for WrongFile {}
