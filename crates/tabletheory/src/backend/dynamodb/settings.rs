//! Endpoint, timeouts and retries of a table on DynamoDB.

use std::time::Duration;

use crate::backend::TOKEN_WINDOW;
use crate::backoff::Backoff;
use crate::error::{Result, ensure};

/// Settings of a [`DynamoTable`](crate::DynamoTable): endpoint, timeouts and retries.
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
    pub(super) connect_timeout: Duration,
    pub(super) attempt_timeout: Duration,
    pub(super) endpoint: Option<String>,
    pub(super) operation_timeout: Duration,
    pub(super) attempts: u32,
    pub(super) backoff: Backoff,
}

impl DynamoSettings {
    /// Upper limit for the number of attempts.
    pub const MAX_ATTEMPTS: u32 = 50;
    /// Upper limit for the operation timeout. Transactions are retried with a client token, which DynamoDB forgets after
    /// ten minutes: a later retry could be applied a second time.
    pub const MAX_OPERATION: Duration = Duration::from_secs(TOKEN_WINDOW.as_secs() / 2);

    /// Uses this endpoint instead of the one from the environment, for DynamoDB Local and private endpoints.
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

    /// Returns an error if a setting is invalid.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::DynamoSettings;
    ///
    /// let error = DynamoSettings::default().attempt_timeout(Duration::ZERO).check().unwrap_err();
    /// assert_eq!(error.to_string(), "the attempt timeout is zero; it must be longer");
    /// ```
    pub fn check(&self) -> Result<()> {
        let timeouts = [
            ("connect", self.connect_timeout),
            ("attempt", self.attempt_timeout),
            ("operation", self.operation_timeout),
        ];
        for (name, timeout) in timeouts {
            ensure!(!timeout.is_zero(), "the {name} timeout is zero; it must be longer");
        }
        let (timeout, max) = (self.operation_timeout, Self::MAX_OPERATION);
        ensure!(timeout <= max, "the operation timeout is {timeout:?}; the maximum is {max:?}");
        let (attempts, max) = (self.attempts, Self::MAX_ATTEMPTS);
        ensure!((1..=max).contains(&attempts), "the number of attempts is {attempts}; it must be 1 to {max}");
        ensure!(
            self.backoff.first <= self.backoff.longest(),
            "the first delay between attempts is longer than the longest one"
        );
        if let Some(url) = &self.endpoint {
            ensure!(
                url.starts_with("http://") || url.starts_with("https://"),
                "the endpoint {url:?} is invalid; it must start with http:// or https://"
            );
        }
        Ok(())
    }
}

impl Default for DynamoSettings {
    /// Timeouts of 2 seconds to connect, 5 per attempt and 20 per operation; at most eight attempts,
    /// with delays that grow from 25 milliseconds to one second, with full jitter.
    fn default() -> Self {
        DynamoSettings {
            connect_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(20),
            endpoint: None,
            attempts: 8,
            backoff: Backoff::new(Duration::from_millis(25), Duration::from_secs(1)).with_jitter(1.0),
        }
    }
}

setters! {
    DynamoSettings {
        /// Timeout for connecting. An attempt that did not connect sent nothing, so it is always retried.
        ///
        /// ```
        /// use std::time::Duration;
        /// use tabletheory::DynamoSettings;
        ///
        /// assert!(DynamoSettings::default().connect_timeout(Duration::from_millis(500)).check().is_ok());
        /// ```
        connect_timeout: Duration,
        /// Timeout for one attempt, including its connection.
        ///
        /// ```
        /// use std::time::Duration;
        /// use tabletheory::DynamoSettings;
        ///
        /// assert!(DynamoSettings::default().attempt_timeout(Duration::from_secs(1)).check().is_ok());
        /// ```
        attempt_timeout: Duration,
        /// Timeout for one operation, including all attempts and the delays between them.
        ///
        /// ```
        /// use std::time::Duration;
        /// use tabletheory::DynamoSettings;
        ///
        /// assert!(DynamoSettings::default().operation_timeout(Duration::from_secs(3)).check().is_ok());
        /// assert!(DynamoSettings::default().operation_timeout(Duration::from_secs(900)).check().is_err());
        /// ```
        operation_timeout: Duration,
        /// Maximum number of attempts of one operation, including the first.
        ///
        /// ```
        /// use tabletheory::DynamoSettings;
        ///
        /// assert!(DynamoSettings::default().attempts(1).check().is_ok());
        /// assert!(DynamoSettings::default().attempts(0).check().is_err());
        /// ```
        attempts: u32,
        /// Delays between attempts.
        ///
        /// ```
        /// use std::time::Duration;
        /// use tabletheory::{Backoff, DynamoSettings};
        ///
        /// let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(8));
        /// assert!(DynamoSettings::default().backoff(backoff).check().is_ok());
        /// ```
        backoff: Backoff,
    }
}
