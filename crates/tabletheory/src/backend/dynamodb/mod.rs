//! The table on DynamoDB.
//!
//! Requests may fail without a known outcome (`failure`), which limits when they may be retried (`retry`). Conditions are
//! sent as text (`expression`).

/// Sends a request of the SDK with retries. Maps its output, and the service errors that are expected results. This is a
/// macro because the SDK has distinct request and error types for each operation.
macro_rules! send {
    (
        $table:expr, $idempotency:expr, $request:expr, $output:pat => $result:expr
        $(, $($error:pat => $expected:expr $(,)?)+)?
    ) => {{
        use crate::backend::dynamodb::operation::{Request as _, Response as _};
        let request = $request;
        let operation = crate::backend::dynamodb::operation::name_of(&request);
        let request = if $table.observer.is_some() { request.count_capacity() } else { request };
        let attempt = || async {
            match request.clone().send().await {
                Ok(response) => {
                    let units = response.units();
                    let $output = response;
                    (Ok($result), units)
                }
                Err(error) => {
                    let result = match error.as_service_error() {
                        $($(Some($error) => $expected,)+)?
                        _ => Err(Failure::of(error, &$table.label)),
                    };
                    (result, None)
                }
            }
        };
        $table.retry(operation, $idempotency, attempt).await
    }};
}

mod admin;
mod commit;
mod convert;
mod description;
mod expression;
mod failure;
mod observer;
mod operation;
mod permissions;
mod read;
mod retry;
mod settings;
mod setup;
mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;

pub use admin::Creation;
pub use description::{Description, KeyPart, Problem};
pub use failure::{error_code, is_denied};
pub use observer::{Observation, Observer, RequestOutcome};
pub use operation::{OPERATIONS, Operation, Purpose};
pub use permissions::Permission;
pub use settings::DynamoSettings;
pub use setup::{Feature, SetupStep, TableSetup};

use self::failure::Failure;
use self::observer::Measurement;
use self::retry::{Idempotency, Retried};
use self::transport::TableLabel;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result, ensure};
use crate::item::Excerpt;
use crate::random::{Random, SystemRandom};

/// A table on DynamoDB.
///
/// Requests that were certainly not applied (throttling, conflicts, failed connections) are retried with backoff. Requests
/// whose response was lost are retried only if they are idempotent: reads, and transactions. Other writes return an error of
/// kind [`Unknown`](crate::Kind::Unknown). A refused condition is never retried.
///
/// ```no_run
/// use tabletheory::{Consistency, DynamoSettings, DynamoTable, Key, Table};
///
/// # async fn example() -> tabletheory::Result<()> {
/// let table = DynamoTable::connect("pages", DynamoSettings::default()).await?;
/// let row = table.get(&Key::new("CACHE#1", "META"), Consistency::Strong).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DynamoTable {
    client: Client,
    label: TableLabel,
    settings: DynamoSettings,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    observer: Option<Arc<dyn Observer>>,
}

impl DynamoTable {
    /// Creates a handle for the table with this name. Region, credentials, profile and `AWS_ENDPOINT_URL_DYNAMODB` are
    /// taken from the environment, as usual for AWS. Sends nothing.
    ///
    /// ```no_run
    /// use tabletheory::{DynamoSettings, DynamoTable};
    ///
    /// # async fn example() -> tabletheory::Result<()> {
    /// let settings = DynamoSettings::default().endpoint("http://127.0.0.1:8000");
    /// let table = DynamoTable::connect("pages", settings).await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(table: impl Into<String>, settings: DynamoSettings) -> Result<Self> {
        check_certificates()?;
        let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
        DynamoTable::new(&Client::new(&config), table, settings)
    }

    /// Creates a handle for the table with this name, based on an existing client.
    ///
    /// Uses the client's region and credentials, but not its timeouts and retries.
    ///
    /// ```no_run
    /// use aws_sdk_dynamodb::Client;
    /// use tabletheory::{DynamoSettings, DynamoTable};
    ///
    /// # fn example(client: Client) -> tabletheory::Result<()> {
    /// let table = DynamoTable::new(&client, "pages", DynamoSettings::default())?;
    /// # Ok(()) }
    /// ```
    pub fn new(client: &Client, table: impl Into<String>, settings: DynamoSettings) -> Result<Self> {
        let table = table.into();
        check_name(&table)?;
        settings.check()?;
        ensure!(
            client.config().region().is_some_and(|region| !region.as_ref().is_empty()),
            "there is no AWS region; set AWS_REGION or the region of the profile, also for DynamoDB Local"
        );
        let label = TableLabel { table, endpoint: Arc::default() };
        let mut config = client
            .config()
            .to_builder()
            // The SDK would retry a conditional write whose response was lost, and report its own success as a refusal.
            .retry_config(RetryConfig::disabled())
            .timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(settings.connect_timeout)
                    .operation_attempt_timeout(settings.attempt_timeout)
                    .build(),
            )
            .interceptor(label.clone());
        if let Some(url) = &settings.endpoint {
            config = config.endpoint_url(url);
        }
        Ok(DynamoTable {
            client: Client::from_conf(config.build()),
            label,
            settings,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            observer: None,
        })
    }

    /// Sets the clock.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use tabletheory::{DynamoTable, ManualClock, Timestamp};
    ///
    /// # fn example(table: DynamoTable) {
    /// let table = table.with_clock(Arc::new(ManualClock::at(Timestamp::from_seconds(9))));
    /// # }
    /// ```
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the name of the table.
    ///
    /// ```no_run
    /// # fn example(table: tabletheory::DynamoTable) {
    /// assert_eq!(table.name(), "pages");
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.label.table
    }

    /// Sets the source of random bits, for client tokens and for the jitter of retries.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use tabletheory::{DynamoTable, SeededRandom};
    ///
    /// # fn example(table: DynamoTable) {
    /// let table = table.with_random(Arc::new(SeededRandom::new(1)));
    /// # }
    /// ```
    #[must_use]
    pub fn with_random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }

    /// Calls this observer after every request, and makes DynamoDB return the consumed capacity, which costs nothing.
    ///
    /// See [`Observer`] for an example.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    async fn retry<T, A>(
        &self,
        operation: &'static str,
        idempotency: Idempotency,
        attempt: impl Fn() -> A + Send + Sync,
    ) -> Result<Retried<T>>
    where
        T: Send,
        A: Future<Output = (Result<T, Failure>, Option<f64>)> + Send,
    {
        let attempts = AtomicU32::new(0);
        let tracked = || async {
            let number = attempts.fetch_add(1, Ordering::Relaxed) + 1;
            let measurement = Measurement::start(self.observer.as_ref(), operation, number);
            let ((result, units), sent) = transport::track_sent(attempt()).await;
            measurement.finish(&result, units);
            if sent { result } else { result.map_err(Failure::unsent) }
        };
        // Boxed, because the nested futures of the SDK would exceed the compiler's recursion limit in callers.
        Box::pin(retry::retry(&self.settings, &*self.random, idempotency, tracked)).await
    }
}

/// Checks DynamoDB's rules for table names. ARNs, which DynamoDB also accepts, are not checked.
fn check_name(table: &str) -> Result<()> {
    const LENGTH: std::ops::RangeInclusive<usize> = 3..=255;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    ensure!(
        table.starts_with("arn:") || (LENGTH.contains(&table.len()) && table.bytes().all(allowed)),
        "`{}` is not a valid table name for DynamoDB; use {} to {} letters, digits, dots, dashes and underscores",
        Excerpt(table),
        LENGTH.start(),
        LENGTH.end()
    );
    Ok(())
}

/// The client of the SDK panics if the system has no certificates, even if it does not need one.
fn check_certificates() -> Result<()> {
    let found = rustls_native_certs::load_native_certs();
    if !found.certs.is_empty() {
        return Ok(());
    }
    let mut error = Error::invalid(
        "there are no CA certificates on this machine; install them (on Debian the package ca-certificates), \
         or set SSL_CERT_FILE to a file with certificates",
    );
    if let Some(cause) = found.errors.into_iter().next() {
        error = error.caused_by(cause);
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use aws_sdk_dynamodb::config::{Config, Region};

    #[test]
    fn invalid_names_settings_and_regions_are_rejected() {
        let config = || Config::builder().behavior_version(BehaviorVersion::latest());
        let client = Client::from_conf(config().region(Region::new("eu-west-1")).build());
        let open = |name: &str, settings| DynamoTable::new(&client, name, settings).map(|_| ());
        assert!(open("pages", DynamoSettings::default()).is_ok());
        assert!(open("arn:aws:dynamodb:eu-west-1:1:table/pages", DynamoSettings::default()).is_ok());
        for name in ["", "ab", "a table", "ä-table", &"x".repeat(256)] {
            assert_eq!(open(name, DynamoSettings::default()).expect_err(name).kind(), Kind::Invalid);
        }
        assert!(open("pages", DynamoSettings::default().attempts(0)).is_err());
        let no_region = Client::from_conf(config().build());
        let error = DynamoTable::new(&no_region, "pages", DynamoSettings::default()).expect_err("no region");
        assert!(error.to_string().contains("AWS_REGION"), "{error}");
    }
}
