//! The one error of this library, with kinds named by what the caller does about them.

use std::error::Error as StdError;
use std::fmt;

/// A result whose error is this library's [`Error`].
///
/// ```
/// fn parse(text: &str) -> tabletheory::Result<tabletheory::Number> {
///     text.parse()
/// }
/// assert!(parse("42").is_ok());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller does about an [`Error`].
///
/// ```
/// use tabletheory::{Key, Kind};
///
/// let error = Key::new("", "META").check().unwrap_err();
/// assert_eq!(error.kind(), Kind::Invalid);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The call is wrong and will always be: correct it. Nothing was written.
    Invalid,
    /// The table cannot answer now: try again later. Nothing was written.
    Unavailable,
    /// The write may or may not have happened: read the rows back before anything else.
    Unknown,
    /// The stored data is damaged: restore or repair it. Nothing was written.
    Corrupt,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Invalid => "invalid",
            Kind::Unavailable => "unavailable",
            Kind::Unknown => "outcome unknown",
            Kind::Corrupt => "corrupt",
        })
    }
}

/// Why a call failed: its [`Kind`], what was being done, and what caused it.
///
/// A refused condition is not an error: see [`Commit::Refused`](crate::Commit::Refused).
///
/// ```
/// use tabletheory::{Key, Kind};
///
/// let error = Key::new("CACHE#1", "s".repeat(2000)).check().unwrap_err();
/// assert_eq!(error.kind(), Kind::Invalid);
/// assert_eq!(error.to_string(), "the sort key has 2000 bytes; the limit is 1024");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind, with a whole sentence that says what is wrong and what to do.
    ///
    /// ```
    /// use tabletheory::{Error, Kind};
    ///
    /// let error = Error::new(Kind::Unavailable, "the table is being moved; try again in a minute");
    /// assert_eq!(error.kind(), Kind::Unavailable);
    /// ```
    pub fn new(kind: Kind, context: impl Into<String>) -> Self {
        Error { kind, context: context.into(), source: None }
    }

    /// The same error with its cause.
    ///
    /// ```
    /// use std::error::Error as _;
    /// use tabletheory::{Error, Kind};
    ///
    /// let cause = std::io::Error::other("no route to host");
    /// let error = Error::new(Kind::Unavailable, "cannot reach the table").caused_by(cause);
    /// assert_eq!(error.source().unwrap().to_string(), "no route to host");
    /// ```
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What to do about it.
    ///
    /// ```
    /// use tabletheory::{Error, Kind};
    ///
    /// assert_eq!(Error::new(Kind::Corrupt, "bad page").kind(), Kind::Corrupt);
    /// ```
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn invalid(context: impl Into<String>) -> Self {
        Error::new(Kind::Invalid, context)
    }

    pub(crate) fn unavailable(context: impl Into<String>) -> Self {
        Error::new(Kind::Unavailable, context)
    }

    #[cfg(any(feature = "sqlite", feature = "dynamodb"))]
    pub(crate) fn corrupt(context: impl Into<String>) -> Self {
        Error::new(Kind::Corrupt, context)
    }

    /// The same error, said of a part of the call: "write 2 (META of CACHE#1): …".
    pub(crate) fn within(mut self, place: impl fmt::Display) -> Self {
        self.context = format!("{place}: {}", self.context);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
