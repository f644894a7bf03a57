//! Client tokens: which transactions were committed in the last minutes, by this process or another.

use rusqlite::{OptionalExtension, Transaction, params};

use super::fault::Fault;
use crate::ambient::Timestamp;
use crate::backend::TOKEN_WINDOW;
use crate::error::Result;
use crate::txn::ClientToken;

/// How many expired tokens are deleted for each one that is recorded.
const FORGOTTEN: u32 = 2;
/// How many seconds of tokens are kept together.
const BUCKET: i64 = 300;

/// The digest under which a token was used within the window, by this process or another.
pub(super) fn recall(
    transaction: &Transaction<'_>,
    token: &ClientToken,
    now: Timestamp,
) -> Result<Option<[u8; 32]>, Fault> {
    // The next bucket too: another process's clock may be a little ahead.
    let mut statement = transaction.prepare_cached(
        "SELECT digest FROM token WHERE bucket IN (?1 - 2, ?1 - 1, ?1, ?1 + 1) AND token = ?2 AND at > ?3",
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
        "DELETE FROM token WHERE (bucket, token) IN (SELECT bucket, token FROM token WHERE bucket < ?1 - 2 LIMIT ?2)",
    )?;
    forget.execute(params![bucket(now), FORGOTTEN])?;
    let mut insert = transaction
        .prepare_cached("REPLACE INTO token (bucket, token, at, digest) VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute(params![bucket(now), token.as_str(), now.seconds(), digest])?;
    Ok(())
}

fn bucket(now: Timestamp) -> i64 {
    now.seconds().div_euclid(BUCKET)
}
