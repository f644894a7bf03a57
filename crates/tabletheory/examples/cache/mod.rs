//! The rows of an ISR cache, in the same format as services in Go, TypeScript and Python, and helpers of the examples.
#![allow(dead_code, reason = "each example uses a part")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tabletheory::{
    ClientToken, Cond, Key, Model, Random as _, Saved, SystemRandom, Table, TableExt as _, Timestamp,
};

/// The result of an example; an error makes the process fail.
pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// A generated page: `META` or, if versions are retained, `VER#<id>`.
#[derive(Model, Clone, Debug, PartialEq)]
#[model(table_env = "FACETHEORY_CACHE_TABLE_NAME")]
pub(crate) struct CacheMetadata {
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    pub(crate) s3_key: String,
    pub(crate) generated_at: i64,
    pub(crate) revalidate_seconds: i64,
    pub(crate) etag: Option<String>,
    #[model(ttl)]
    pub(crate) ttl: Option<i64>,
}

impl CacheMetadata {
    /// Returns the row of a page that was generated now, is fresh for a minute, and may be deleted after a day.
    pub(crate) fn generated(key: &Key, body: &str, now: Timestamp) -> Self {
        CacheMetadata {
            pk: key.pk.clone(),
            sk: key.sk.clone(),
            s3_key: body.into(),
            generated_at: now.seconds(),
            revalidate_seconds: 60,
            etag: Some("\"abc123\"".into()),
            ttl: Some(now.seconds() + 86_400),
        }
    }

    /// Freshness depends on these two attributes; `ttl` is only for garbage collection.
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        now.seconds() < self.generated_at + self.revalidate_seconds
    }
}

/// The lease for regenerating a page (`LOCK`).
#[derive(Model, Clone, Debug, PartialEq)]
pub(crate) struct CacheLease {
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    pub(crate) lease_token: String,
    pub(crate) lease_expires_at: i64,
    #[model(ttl)]
    pub(crate) ttl: Option<i64>,
}

/// Duration of a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// Time after its expiry for which a lease stays in the table.
const LEASE_BUFFER_SECONDS: i64 = 3_600;

impl CacheLease {
    /// Acquires the lease if it is free, with one conditional put.
    pub(crate) async fn acquire(
        table: &dyn Table,
        key: &Key,
        now: Timestamp,
    ) -> tabletheory::Result<Saved<CacheLease>> {
        let expires = (now + LEASE).seconds_rounded_up();
        let lease = CacheLease {
            pk: key.pk.clone(),
            sk: "LOCK".into(),
            lease_token: ClientToken::random(&SystemRandom).as_str().into(),
            lease_expires_at: expires,
            ttl: Some(expires + LEASE_BUFFER_SECONDS),
        };
        let free = Self::PK.absent().or(Self::LEASE_EXPIRES_AT.le(now.seconds()));
        table.rows().put(&lease).when(free).await
    }

    /// The condition that this lease is still held.
    pub(crate) fn held_at(&self, now: Timestamp) -> Cond {
        Self::LEASE_TOKEN.is(self.lease_token.as_str()).and(Self::LEASE_EXPIRES_AT.gt(now.seconds()))
    }
}

/// `META` of a page with versions: points to the current version. The row also repeats the attributes of [`CacheMetadata`],
/// for readers that know only those.
#[derive(Model)]
pub(crate) struct CachePointer {
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    #[model(version)]
    pub(crate) version: i64,
    pub(crate) current_sk: String,
}

/// A request to regenerate a page (`REQ#<idempotency key>`).
#[derive(Model)]
pub(crate) struct CacheRequest {
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    pub(crate) request_hash: String,
    /// `STARTED`, `COMPLETED` or `FAILED`.
    pub(crate) status: String,
    pub(crate) result_s3_key: Option<String>,
    #[model(ttl)]
    pub(crate) ttl: i64,
}

/// Opens the table at the address in the first argument, by default in memory. Returns it with the key of `META` of a unique
/// page, so that examples can share a table, and the current time.
pub(crate) async fn setup() -> tabletheory::Result<(Arc<dyn Table>, Key, Timestamp)> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let table = tabletheory::open(&address).await?;
    let now = table.clock().now();
    Ok((table, Key::new(format!("TENANT#t1#CACHE#{:016x}", SystemRandom.next_u64()), "META"), now))
}

/// Returns an error if a condition is false.
pub(crate) fn expect(condition: bool, what: &str) -> Outcome {
    if condition { Ok(()) } else { Err(format!("expected: {what}").into()) }
}
