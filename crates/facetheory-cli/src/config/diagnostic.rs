//! Errors in a configuration file, each with its line.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// One error. Diagnostics sort by line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Diagnostic {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The problem and its remedy.
    pub(crate) message: String,
}

/// All errors of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Diagnostics(pub(crate) Vec<Diagnostic>);

/// The most errors that are printed. A file of another format has an error in every line.
const MAX_PRINTED: usize = 50;

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Diagnostic { line, message }) in self.0.iter().take(MAX_PRINTED).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}- line {line}: {message}")?;
        }
        match self.0.len().checked_sub(MAX_PRINTED) {
            Some(more @ 1..) => write!(f, "\n- and {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostics {}

/// A configuration file with errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidFile {
    pub(crate) file: PathBuf,
    pub(crate) diagnostics: Diagnostics,
}

impl fmt::Display for InvalidFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is invalid:\n{}", self.file.display(), self.diagnostics)
    }
}

impl std::error::Error for InvalidFile {}
