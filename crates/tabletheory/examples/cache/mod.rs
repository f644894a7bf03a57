//! The rows of an ISR cache, as services in Go, TypeScript and Python write them, and what the examples share.
#![allow(dead_code, reason = "each example uses some of it")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tabletheory::{
    ClientToken, Cond, Key, Model, Random as _, Saved, SystemRandom, Table, TableExt as _, Timestamp,
};

/// What an example ends with: an error makes the process fail.
pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// What was generated for a cache key (`sk` is `META`).
#[derive(Model, Clone, Debug, PartialEq)]
#[model(table_env = "FACETHEORY_CACHE_TABLE_NAME")]
pub(crate) struct FaceTheoryCacheMetadata {
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

impl FaceTheoryCacheMetadata {
    /// The row of a page that was generated now, may be served for a minute, and may be collected after a day.
    pub(crate) fn generated(key: &Key, body: &str, now: Timestamp) -> Self {
        FaceTheoryCacheMetadata {
            pk: key.pk.clone(),
            sk: "META".into(),
            s3_key: body.into(),
            generated_at: now.seconds(),
            revalidate_seconds: 60,
            etag: Some("\"abc123\"".into()),
            ttl: Some(now.seconds() + 86_400),
        }
    }

    /// Freshness is decided by these two attributes; `ttl` only ever collects garbage.
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        now.seconds() < self.generated_at + self.revalidate_seconds
    }
}

/// Who regenerates a cache key (`sk` is `LOCK`).
#[derive(Model, Clone, Debug, PartialEq)]
#[model(table_env = "FACETHEORY_CACHE_TABLE_NAME")]
pub(crate) struct FaceTheoryCacheLease {
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    pub(crate) lease_token: String,
    pub(crate) lease_expires_at: i64,
    #[model(ttl)]
    pub(crate) ttl: Option<i64>,
}

/// How long a lease is held.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// How long an expired lease stays in the table at least.
const LEASE_BUFFER_SECONDS: i64 = 3_600;

impl FaceTheoryCacheLease {
    /// Takes the lease if nobody holds it. One conditional put: of two contenders, one gets it.
    pub(crate) async fn acquire(
        table: &dyn Table,
        key: &Key,
        now: Timestamp,
    ) -> tabletheory::Result<Saved<FaceTheoryCacheLease>> {
        let expires = (now + LEASE).seconds_rounded_up();
        let lease = FaceTheoryCacheLease {
            pk: key.pk.clone(),
            sk: "LOCK".into(),
            lease_token: ClientToken::random(&SystemRandom).as_str().into(),
            lease_expires_at: expires,
            ttl: Some(expires + LEASE_BUFFER_SECONDS),
        };
        let free = Self::PK.absent().or(Self::LEASE_EXPIRES_AT.le(now.seconds()));
        table.rows().put(&lease).when(free).await
    }

    /// This lease is still in the table, and has not expired.
    pub(crate) fn held_at(&self, now: Timestamp) -> Cond {
        Self::LEASE_TOKEN.is(self.lease_token.as_str()).and(Self::LEASE_EXPIRES_AT.gt(now.seconds()))
    }
}

/// One generation of a page (`sk` is `VER#<id>`).
#[derive(Model, Clone, Debug, PartialEq)]
#[model(table_env = "FACETHEORY_CACHE_TABLE_NAME")]
pub(crate) struct FaceTheoryCacheVersion {
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

/// `META` where versions are kept: it points at one of them, and repeats what it says for readers that
/// know only [`FaceTheoryCacheMetadata`].
#[derive(Model, Clone, Debug, PartialEq)]
#[model(table_env = "FACETHEORY_CACHE_TABLE_NAME")]
pub(crate) struct FaceTheoryCachePointer {
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    pub(crate) current_sk: String,
    #[model(version)]
    pub(crate) version: i64,
    pub(crate) s3_key: String,
    pub(crate) generated_at: i64,
    pub(crate) revalidate_seconds: i64,
    pub(crate) etag: Option<String>,
    #[model(ttl)]
    pub(crate) ttl: Option<i64>,
}

/// One wish to regenerate, however often it is repeated (`sk` is `REQ#<idempotency key>`).
#[derive(Model, Clone, Debug, PartialEq)]
#[model(table_env = "FACETHEORY_CACHE_TABLE_NAME")]
pub(crate) struct FaceTheoryRequest {
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

/// The table at the address that is the program's argument, in memory without one.
pub(crate) async fn open_table() -> tabletheory::Result<Arc<dyn Table>> {
    tabletheory::open(&std::env::args().nth(1).unwrap_or_else(|| "memory:".into())).await
}

/// The `META` of a page that no other run of an example has, so that they can share a table.
pub(crate) fn some_page() -> Key {
    Key::new(format!("TENANT#t1#CACHE#{:016x}", SystemRandom.next_u64()), "META")
}

/// Ends an example with an error when something did not happen as it should.
pub(crate) fn expect(happened: bool, what: &str) -> Outcome {
    if happened { Ok(()) } else { Err(format!("it did not happen: {what}").into()) }
}
