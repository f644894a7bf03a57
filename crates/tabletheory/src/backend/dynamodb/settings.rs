//! How a table on DynamoDB is reached: where, how patiently, how often.

use std::time::Duration;

use crate::backend::TOKEN_WINDOW;
use crate::backoff::Backoff;
use crate::error::{Error, Result};

/// Where DynamoDB is, how long to wait for it, and how often to try again.
///
/// ```
/// use std::time::Duration;
/// use tabletheory::DynamoSettings;
///
/// let local = DynamoSettings::default().endpoint("http://127.0.0.1:8000").attempt_timeout(Duration::from_secs(2));
/// assert!(local.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DynamoSettings {
    pub(super) endpoint: Option<String>,
    pub(super) connect_timeout: Duration,
    pub(super) attempt_timeout: Duration,
    pub(super) operation_timeout: Duration,
    pub(super) attempts: u32,
    pub(super) backoff: Backoff,
}

impl Default for DynamoSettings {
    /// Two seconds to connect, five for an attempt, twenty for an operation of at most eight attempts,
    /// with delays that grow from 25 milliseconds to one second, with full jitter.
    fn default() -> Self {
        DynamoSettings {
            endpoint: None,
            connect_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(20),
            attempts: 8,
            backoff: Backoff::new(Duration::from_millis(25), Duration::from_secs(1)).with_jitter(1.0),
        }
    }
}

impl DynamoSettings {
    /// The most attempts that one operation may make.
    pub const MAX_ATTEMPTS: u32 = 50;
    /// The longest that one operation may take. A transaction is repeated under a client token, which
    /// DynamoDB forgets after ten minutes: a later repeat would be applied a second time.
    pub const MAX_OPERATION: Duration = Duration::from_secs(TOKEN_WINDOW.as_secs() / 2);

    /// Reach DynamoDB at this address, whatever the environment says: for DynamoDB Local and for private endpoints.
    ///
    /// ```
    /// use tabletheory::DynamoSettings;
    ///
    /// assert!(DynamoSettings::default().endpoint("http://127.0.0.1:8000").check().is_ok());
    /// assert!(DynamoSettings::default().endpoint("127.0.0.1:8000").check().is_err());
    /// ```
    #[must_use]
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// How long making a connection may take. A connection that was not made sent nothing, so such a try is repeated.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::DynamoSettings;
    ///
    /// assert!(DynamoSettings::default().connect_timeout(Duration::from_millis(500)).check().is_ok());
    /// ```
    #[must_use]
    pub fn connect_timeout(mut self, longest: Duration) -> Self {
        self.connect_timeout = longest;
        self
    }

    /// How long one attempt may take, its connection included.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::DynamoSettings;
    ///
    /// assert!(DynamoSettings::default().attempt_timeout(Duration::from_secs(1)).check().is_ok());
    /// ```
    #[must_use]
    pub fn attempt_timeout(mut self, longest: Duration) -> Self {
        self.attempt_timeout = longest;
        self
    }

    /// How long one operation may take, with all its attempts and the pauses between them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::DynamoSettings;
    ///
    /// assert!(DynamoSettings::default().operation_timeout(Duration::from_secs(3)).check().is_ok());
    /// assert!(DynamoSettings::default().operation_timeout(Duration::from_secs(900)).check().is_err());
    /// ```
    #[must_use]
    pub fn operation_timeout(mut self, longest: Duration) -> Self {
        self.operation_timeout = longest;
        self
    }

    /// How many attempts one operation may make, the first included.
    ///
    /// ```
    /// use tabletheory::DynamoSettings;
    ///
    /// assert!(DynamoSettings::default().attempts(1).check().is_ok());
    /// assert!(DynamoSettings::default().attempts(0).check().is_err());
    /// ```
    #[must_use]
    pub fn attempts(mut self, most: u32) -> Self {
        self.attempts = most;
        self
    }

    /// Sets the delays between attempts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::{Backoff, DynamoSettings};
    ///
    /// let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(8));
    /// assert!(DynamoSettings::default().backoff(backoff).check().is_ok());
    /// ```
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Says what is wrong with them, if anything.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::DynamoSettings;
    ///
    /// let error = DynamoSettings::default().attempt_timeout(Duration::ZERO).check().unwrap_err();
    /// assert_eq!(error.to_string(), "the attempt time-out is zero; give it some time");
    /// ```
    pub fn check(&self) -> Result<()> {
        let timeouts = [
            ("connect", self.connect_timeout),
            ("attempt", self.attempt_timeout),
            ("operation", self.operation_timeout),
        ];
        for (name, timeout) in timeouts {
            if timeout.is_zero() {
                return Err(Error::invalid(format!("the {name} time-out is zero; give it some time")));
            }
        }
        if self.operation_timeout > Self::MAX_OPERATION {
            return Err(Error::invalid(format!(
                "the operation time-out is {:?}; it may be {:?} at most",
                self.operation_timeout,
                Self::MAX_OPERATION
            )));
        }
        if !(1..=Self::MAX_ATTEMPTS).contains(&self.attempts) {
            return Err(Error::invalid(format!(
                "an operation is given {} attempts; it may have 1 to {}",
                self.attempts,
                Self::MAX_ATTEMPTS
            )));
        }
        if self.backoff.starts_above_longest() {
            return Err(Error::invalid("the first pause between attempts is longer than the longest one"));
        }
        if let Some(url) = &self.endpoint
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            return Err(Error::invalid(format!(
                "the endpoint {url:?} is not an address like http://127.0.0.1:8000 or https://…"
            )));
        }
        Ok(())
    }
}
