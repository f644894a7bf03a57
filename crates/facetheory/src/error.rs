//! The error type of this library. Its kinds say what the caller should do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A result whose error is this library's [`Error`].
///
/// ```
/// fn tenant(name: &str) -> facetheory::Result<facetheory::Tenant> {
///     facetheory::Tenant::new(name)
/// }
/// assert!(tenant("t1").is_ok());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an [`Error`]: it decides how the caller should react.
///
/// ```
/// use facetheory::{Kind, Tenant};
///
/// assert_eq!(Tenant::new("a#b").unwrap_err().kind(), Kind::Invalid);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The call is invalid: correct it.
    Invalid,
    /// A store is unavailable: try again later.
    Unavailable,
    /// A write may or may not have been applied: read back first.
    Unknown,
    /// Stored data is damaged, or violates the wire format.
    Corrupt,
    /// The render failed: nothing was published.
    Render,
}

/// Why a call failed: its [`Kind`], a message, and its cause.
///
/// ```
/// use facetheory::Tenant;
///
/// let error = Tenant::new("").unwrap_err();
/// assert_eq!(error.to_string(), "a tenant has 0 bytes; it must have 1 to 128");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// Whether the object storage failed, and not the table.
    is_of_bodies: bool,
}

impl Error {
    /// An error of this kind. The message says what is wrong and what to do.
    ///
    /// ```
    /// use facetheory::{Error, Kind};
    ///
    /// assert_eq!(Error::new(Kind::Invalid, "no").kind(), Kind::Invalid);
    /// ```
    pub fn new(kind: Kind, context: impl Into<String>) -> Self {
        Error { kind, context: context.into(), source: None, is_of_bodies: false }
    }

    /// The kind, which decides how the caller should react.
    ///
    /// ```
    /// use facetheory::{Error, Kind};
    ///
    /// assert_eq!(Error::new(Kind::Corrupt, "bad row").kind(), Kind::Corrupt);
    /// ```
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Sets the cause.
    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// An error of the object storage with the bodies.
    pub(crate) fn bodies_unavailable(context: impl Into<String>) -> Self {
        Error { is_of_bodies: true, ..Error::new(Kind::Unavailable, context) }
    }

    /// Whether the object storage failed, and not the table.
    pub(crate) fn is_of_bodies(&self) -> bool {
        self.is_of_bodies
    }

    /// The error of a shared operation, for each of the callers that wait for it.
    pub(crate) fn shared(error: Arc<Error>) -> Self {
        let (kind, context, is_of_bodies) = (error.kind, error.context.clone(), error.is_of_bodies);
        Error { kind, context, source: Some(Box::new(error)), is_of_bodies }
    }

    pub(crate) fn invalid(context: impl Into<String>) -> Self {
        Error::new(Kind::Invalid, context)
    }

    /// Rejects a name that is empty or longer than `max` bytes.
    pub(crate) fn check_length(what: &str, name: &str, max: usize) -> Result<()> {
        if (1..=max).contains(&name.len()) {
            return Ok(());
        }
        Err(Error::invalid(format!("{what} has {} bytes; it must have 1 to {max}", name.len())))
    }

    pub(crate) fn corrupt(context: impl Into<String>) -> Self {
        Error::new(Kind::Corrupt, context)
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

impl From<tabletheory::Error> for Error {
    fn from(error: tabletheory::Error) -> Self {
        let kind = match error.kind() {
            tabletheory::Kind::Invalid => Kind::Invalid,
            tabletheory::Kind::Unknown => Kind::Unknown,
            tabletheory::Kind::Corrupt => Kind::Corrupt,
            _ => Kind::Unavailable,
        };
        Error { kind, context: error.to_string(), source: Some(error.into()), is_of_bodies: false }
    }
}
