//! Client tokens: which transactions were committed in the last minutes, by this process or another.

use rusqlite::{OptionalExtension, Transaction, params};

use super::fault::Fault;
use crate::ambient::Timestamp;
use crate::backend::TOKEN_WINDOW;
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
    // is found by a seek, not by going through the tokens before it.
    let mut statement = transaction.prepare_cached(
        "WITH RECURSIVE kept (bucket) AS (
            SELECT min(bucket) FROM token WHERE bucket >= ?1 - 2
            UNION ALL
            SELECT (SELECT min(bucket) FROM token WHERE bucket > kept.bucket) FROM kept WHERE bucket IS NOT NULL
         )
         SELECT digest FROM kept JOIN token USING (bucket) WHERE token = ?2 AND at > ?3",
    )?;
    let oldest = (now - TOKEN_WINDOW).seconds();
    let digest =
        statement.query_row(params![bucket(now), token.as_str(), oldest], |row| row.get(0)).optional()?;
    Ok(digest)
}

/// Records a token that was used, in the same transaction as what it was used for.
pub(super) fn record(
    transaction: &Transaction<'_>,
    token: &ClientToken,
    digest: &[u8; 32],
    now: Timestamp,
) -> Result<(), Fault> {
    let mut forget = transaction.prepare_cached(
        "DELETE FROM token WHERE (bucket, token) IN (SELECT bucket, token FROM token WHERE bucket < ?1 - ?3 LIMIT ?2)",
    )?;
    forget.execute(params![bucket(now), FORGOTTEN, KEPT])?;
    let mut insert = transaction
        .prepare_cached("REPLACE INTO token (bucket, token, at, digest) VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute(params![bucket(now), token.as_str(), now.seconds(), digest])?;
    Ok(())
}

fn bucket(now: Timestamp) -> i64 {
    now.seconds().div_euclid(BUCKET)
}
