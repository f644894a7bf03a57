//! Client tokens of recent transactions, of this process and others.

use rusqlite::{Row, Transaction, params};

use super::error::BackendError;
use crate::backend::TOKEN_WINDOW;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::txn::ClientToken;

/// Number of expired tokens that are deleted for each new one.
const DELETED_PER_INSERT: u32 = 2;
/// Number of buckets before a token expires: two cover the window, and one the difference between the clocks of two processes.
const RETAINED_BUCKETS: u32 = 3;
/// Length of a bucket in seconds.
const BUCKET_SECONDS: i64 = 300;

/// Returns the digest of the transaction that used this token within the window, in this process or another.
pub(super) fn lookup(
    transaction: &Transaction<'_>,
    token: &ClientToken,
    now: Timestamp,
) -> Result<Option<[u8; 32]>, BackendError> {
    // Later buckets are searched too, because clocks may be ahead or step back. There are few, and each is found by one
    // index seek. A single statement for all buckets would need a temporary table, which costs more than the transaction.
    let mut statement = transaction.prepare_cached(
        "SELECT found.bucket, (SELECT digest FROM token WHERE bucket = found.bucket AND token = ?2 AND at > ?3)
         FROM (SELECT min(bucket) AS bucket FROM token WHERE bucket >= ?1) AS found",
    )?;
    let oldest = (now - TOKEN_WINDOW).seconds();
    let mut from = bucket(now) - 2;
    loop {
        let row = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<[u8; 32]>>(1)?));
        match statement.query_row(params![from, token.as_str(), oldest], row)? {
            (_, Some(digest)) => return Ok(Some(digest)),
            (Some(bucket), None) => from = bucket + 1,
            (None, None) => return Ok(None),
        }
    }
}

/// Records a token, in the same transaction as the writes.
pub(super) fn record(
    transaction: &Transaction<'_>,
    token: &ClientToken,
    digest: &[u8; 32],
    now: Timestamp,
) -> Result<(), BackendError> {
    delete_expired(transaction, now, DELETED_PER_INSERT)?;
    let mut insert = transaction
        .prepare_cached("REPLACE INTO token (bucket, token, at, digest) VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute(params![bucket(now), token.as_str(), now.seconds(), digest])?;
    Ok(())
}

/// Deletes at most this many expired tokens, and returns how many.
pub(super) fn delete_expired(
    transaction: &Transaction<'_>,
    now: Timestamp,
    most: u32,
) -> Result<usize, BackendError> {
    let mut first = transaction.prepare_cached("SELECT min(bucket) FROM token")?;
    let first: Option<i64> = first.query_row([], |row| row.get(0))?;
    let oldest = bucket(now) - i64::from(RETAINED_BUCKETS);
    // Checked first, because a DELETE with a subquery creates a temporary table even if nothing is deleted.
    if first.is_none_or(|first| first >= oldest) {
        return Ok(0);
    }
    let mut delete = transaction.prepare_cached(
        "DELETE FROM token WHERE (bucket, token) IN (SELECT bucket, token FROM token WHERE bucket < ?1 LIMIT ?2)",
    )?;
    Ok(delete.execute(params![oldest, most])?)
}

fn bucket(now: Timestamp) -> i64 {
    now.seconds().div_euclid(BUCKET_SECONDS)
}
