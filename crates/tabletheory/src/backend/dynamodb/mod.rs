//! The table on DynamoDB.
//!
//! What is particular to it: calls fail in ways that leave open whether they were applied (`failure`), so
//! they are repeated with care (`retry`); and conditions travel as text (`expression`).

mod admin;
mod commit;
mod convert;
mod description;
mod expression;
mod failure;
mod read;
mod retry;
mod settings;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;

pub use admin::Creation;
pub use description::{Description, KeyPart, Problem, Role};
pub use settings::DynamoSettings;

use self::failure::Failure;
use self::retry::{Repeat, Settled};
use self::wire::{Address, Place};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::item::{Excerpt, Item, Key};
use crate::query::{Consistency, Page, Query, Scan};
use crate::random::{Random, SystemRandom};
use crate::table::Table;
use crate::txn::{Commit, Txn};

/// A table on DynamoDB.
///
/// Calls that were certainly not applied (throttled, in conflict, never connected) are repeated with growing
/// pauses. A call whose answer was lost is repeated only where a repeat is harmless: reads, transactions,
/// and unconditional writes that come out the same. Otherwise the error is of kind
/// [`Unknown`](crate::Kind::Unknown). A refused condition is never repeated.
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
    place: Place,
    settings: DynamoSettings,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl DynamoTable {
    /// The table of this name, where the environment says: region, credentials, profile and
    /// `AWS_ENDPOINT_URL_DYNAMODB` are read as every AWS program reads them. Nothing is sent yet.
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

    /// The table of this name, through a client that the caller has set up.
    ///
    /// The client's region and credentials are kept; its time-outs and its retries are replaced.
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
        if client.config().region().is_none() {
            return Err(Error::invalid(
                "there is no AWS region; set AWS_REGION or the region of the profile, \
                 also for a DynamoDB on this machine",
            ));
        }
        let address = Address::default();
        let mut config = client
            .config()
            .to_builder()
            // The SDK would repeat a conditional write whose answer was lost, and report its own first
            // success as a refusal. The repeats are ours, which know what is harmless.
            .retry_config(RetryConfig::disabled())
            .timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(settings.connect_timeout)
                    .operation_attempt_timeout(settings.attempt_timeout)
                    .build(),
            )
            .interceptor(address.clone());
        if let Some(endpoint) = &settings.endpoint {
            config = config.endpoint_url(endpoint);
        }
        Ok(DynamoTable {
            client: Client::from_conf(config.build()),
            place: Place { table, address },
            settings,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        })
    }

    /// The same table on another clock.
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

    /// The same table with other randomness, for client tokens and for the pauses between attempts.
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

    /// The table's name.
    ///
    /// ```no_run
    /// # fn example(table: tabletheory::DynamoTable) {
    /// assert_eq!(table.name(), "pages");
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.place.table
    }

    async fn persist<T, A>(&self, repeat: Repeat, attempt: impl Fn() -> A + Send + Sync) -> Result<T>
    where
        A: Future<Output = Result<T, Failure>> + Send,
    {
        Ok(self.settle(repeat, attempt).await?.answer)
    }

    /// The same, and whether an attempt before the answer had none.
    async fn settle<T, A>(&self, repeat: Repeat, attempt: impl Fn() -> A + Send + Sync) -> Result<Settled<T>>
    where
        A: Future<Output = Result<T, Failure>> + Send,
    {
        let watched = || async {
            match wire::watched(attempt()).await {
                (Ok(done), _) => Ok(done),
                (Err(failure), true) => Err(failure),
                (Err(failure), false) => Err(failure.unsent()),
            }
        };
        // Boxed, because the SDK's futures are nested so deeply that callers would meet the compiler's limit.
        Box::pin(retry::persist(&self.settings, &*self.random, repeat, watched)).await
    }
}

#[async_trait]
impl Table for DynamoTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        key.check()?;
        self.get_checked(key, consistency).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        keys.iter().try_for_each(Key::check)?;
        self.batch_get_checked(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        query.check()?;
        self.query_checked(query).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        scan.check()?;
        self.scan_checked(scan).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        txn.check()?;
        self.commit_checked(txn).await
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
}

/// The rule of DynamoDB for names of tables; instead of a name it also takes an ARN, of which it judges itself.
fn check_name(table: &str) -> Result<()> {
    const LENGTH: std::ops::RangeInclusive<usize> = 3..=255;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if table.starts_with("arn:") || (LENGTH.contains(&table.len()) && table.bytes().all(allowed)) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "`{}` cannot be a table's name on DynamoDB; take {} to {} letters, digits, dots, dashes and underscores",
        Excerpt(table),
        LENGTH.start(),
        LENGTH.end()
    )))
}

/// The SDK's client panics on a machine without any certificates, whether it would need one or not.
fn check_certificates() -> Result<()> {
    let found = rustls_native_certs::load_native_certs();
    if !found.certs.is_empty() {
        return Ok(());
    }
    let mut error = Error::invalid(
        "there are no CA certificates on this machine; install them (on Debian the package ca-certificates), \
         or let SSL_CERT_FILE name a file that has some",
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
    fn a_table_that_could_never_work_is_refused_at_once() {
        let config = || Config::builder().behavior_version(BehaviorVersion::latest());
        let client = Client::from_conf(config().region(Region::new("eu-west-1")).build());
        let open = |name: &str, settings| DynamoTable::new(&client, name, settings).map(|_| ());
        assert!(open("pages", DynamoSettings::default()).is_ok());
        assert!(open("arn:aws:dynamodb:eu-west-1:1:table/pages", DynamoSettings::default()).is_ok());
        for name in ["", "ab", "a table", "ä-table", &"x".repeat(256)] {
            assert_eq!(open(name, DynamoSettings::default()).expect_err(name).kind(), Kind::Invalid);
        }
        assert!(open("pages", DynamoSettings::default().attempts(0)).is_err());
        let nowhere = Client::from_conf(config().build());
        let error = DynamoTable::new(&nowhere, "pages", DynamoSettings::default()).expect_err("no region");
        assert!(error.to_string().contains("AWS_REGION"), "{error}");
    }
}
