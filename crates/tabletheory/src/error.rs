//! The error type of this crate. Its kinds tell the caller how to react.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use crate::item::Excerpt;

/// A result with this crate's [`Error`].
///
/// ```
/// fn parse(text: &str) -> tabletheory::Result<tabletheory::Number> {
///     text.parse()
/// }
/// assert!(parse("42").is_ok());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The category of an [`Error`], which tells the caller how to react.
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
    /// The call is invalid and must be corrected. Nothing was written.
    Invalid,
    /// The table cannot be used now, for example because it is busy, unreachable or denies access: retry later. Nothing was
    /// written.
    Unavailable,
    /// The write may or may not have been applied: read the rows back before doing anything else.
    Unknown,
    /// Stored data is damaged and must be restored or repaired. Nothing was written.
    Corrupt,
}

/// Why a call failed: its [`Kind`], a message, and the underlying error.
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

/// Whether an error says that a disk is full, by itself or by one of its causes.
///
/// ```
/// use tabletheory::{Error, Kind, is_storage_full};
///
/// let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
/// assert!(is_storage_full(&Error::new(Kind::Unavailable, "the row was not written").caused_by(full)));
/// ```
#[must_use]
pub fn is_storage_full(error: &(dyn StdError + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut io = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    io.any(|io| matches!(io.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

impl Error {
    /// Creates an error. `context` is a full message: what is wrong, and what to do about it.
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

    /// Adds the underlying error, which [`source`](StdError::source) returns.
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

    /// Returns the category of the error.
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

    /// Prefixes the message with the part of the call that it is about: "write 2 (META of CACHE#1): …".
    pub(crate) fn within(mut self, part: impl fmt::Display) -> Self {
        self.context = format!("{part}: {}", self.context);
        self
    }

    pub(crate) fn within_attribute(self, name: &str) -> Self {
        self.within(format_args!("`{}`", Excerpt(name)))
    }
}

/// Returns an [`Error`] of kind [`Kind::Invalid`] with this message unless the condition is true.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::error::Error::invalid(format!($($message)+)).into());
        }
    };
}
pub(crate) use ensure;

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
