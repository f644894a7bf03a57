//! Client tokens: which transactions were committed in the last minutes, by this process or another.

use rusqlite::{Row, Transaction, params};

use super::error::Fault;
use crate::backend::TOKEN_WINDOW;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::txn::ClientToken;

/// How many expired tokens are deleted for each one that is recorded.
const FORGOTTEN: u32 = 2;
/// How many buckets are kept: an hour, much more than the window, since the clocks of processes differ.
const KEPT: u32 = 12;
/// How many seconds of tokens are kept together.
const BUCKET: i64 = 300;

/// The digest under which a token was used within the window, by this process or another.
pub(super) fn recall(
    transaction: &Transaction<'_>,
    token: &ClientToken,
    now: Timestamp,
) -> Result<Option<[u8; 32]>, Fault> {
    // Later buckets too, since a clock may have been ahead or have stepped back since. There are few, and each
    // is found by a seek, not by going through the tokens before it. One statement for all of them would have to
    // keep them in a table of its own, which costs more than all the rest of a transaction.
    let mut statement = transaction.prepare_cached(
        "SELECT kept.bucket, (SELECT digest FROM token WHERE bucket = kept.bucket AND token = ?2 AND at > ?3)
         FROM (SELECT min(bucket) AS bucket FROM token WHERE bucket >= ?1) AS kept",
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

/// Records a token that was used, in the same transaction as what it was used for.
pub(super) fn record(
    transaction: &Transaction<'_>,
    token: &ClientToken,
    digest: &[u8; 32],
    now: Timestamp,
) -> Result<(), Fault> {
    let mut first = transaction.prepare_cached("SELECT min(bucket) FROM token")?;
    let first: Option<i64> = first.query_row([], |row| row.get(0))?;
    let oldest = bucket(now) - i64::from(KEPT);
    // Asked for first, because SQLite makes a table of its own for what is to be deleted, even if that is nothing.
    if first.is_some_and(|first| first < oldest) {
        let mut forget = transaction.prepare_cached(
            "DELETE FROM token WHERE (bucket, token) IN (SELECT bucket, token FROM token WHERE bucket < ?1 LIMIT ?2)",
        )?;
        forget.execute(params![oldest, FORGOTTEN])?;
    }
    let mut insert = transaction
        .prepare_cached("REPLACE INTO token (bucket, token, at, digest) VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute(params![bucket(now), token.as_str(), now.seconds(), digest])?;
    Ok(())
}

fn bucket(now: Timestamp) -> i64 {
    now.seconds().div_euclid(BUCKET)
}
