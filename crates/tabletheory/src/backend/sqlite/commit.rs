//! The transactions of a table, as the writer thread applies them.

use rusqlite::{Transaction, params};

use super::error::BackendError;
use super::writer::{ApplyError, Work};
use super::{reader, row, token};
use crate::backend::token_reused;
use crate::clock::Timestamp;
use crate::eval::{Effect, evaluate};
use crate::item::{Item, Key};
use crate::ttl;
use crate::txn::{ClientToken, Commit, Txn};
use crate::use_order;

/// A transaction with a precomputed digest, because the single writer thread is the bottleneck.
pub(super) struct PreparedTxn {
    txn: Txn,
    /// The client token and the digest of the writes.
    token: Option<(ClientToken, [u8; 32])>,
}

impl PreparedTxn {
    pub(super) fn new(txn: &Txn) -> Self {
        let token = txn.token.as_ref().map(|token| (token.clone(), txn.digest()));
        PreparedTxn { txn: txn.clone(), token }
    }
}

impl Work for PreparedTxn {
    type Outcome = Commit;

    fn is_durable(&self) -> bool {
        self.txn.is_durable
    }

    fn apply(&self, transaction: &Transaction<'_>, now: Timestamp) -> Result<Commit, ApplyError> {
        let PreparedTxn { txn, token } = self;
        if let Some((token, digest)) = token
            && let Some(used_for) =
                token::lookup(transaction, token, now).map_err(ApplyError::BeforeWriting)?
        {
            let reused = || ApplyError::BeforeWriting(token_reused().into());
            return (used_for == *digest).then_some(Commit::Done).ok_or_else(reused);
        }
        let effect = evaluate(txn, |key| reader::get(transaction, key)).map_err(ApplyError::BeforeWriting)?;
        let rows = match effect {
            Effect::Refuse { index, seen } => return Ok(Commit::Refused { index, seen }),
            Effect::Apply(rows) => rows,
        };
        let write = || -> Result<(), BackendError> {
            for (key, after) in rows {
                match after {
                    Some(item) => put(transaction, key, &item)?,
                    None => delete(transaction, key)?,
                }
            }
            match token {
                Some((token, digest)) => token::record(transaction, token, digest, now),
                None => Ok(()),
            }
        };
        write().map_err(ApplyError::WhileWriting)?;
        Ok(Commit::Done)
    }
}

pub(super) fn put(transaction: &Transaction<'_>, key: &Key, item: &Item) -> Result<(), BackendError> {
    let (text, crc) = row::encode(key, item);
    // Unlike REPLACE, this does not touch the indexes on `ttl` and `used_at` if the values are unchanged.
    let mut statement = transaction.prepare_cached(
        "INSERT INTO item (pk, sk, ttl, used_at, item, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (pk, sk) DO UPDATE
         SET ttl = excluded.ttl, used_at = excluded.used_at, item = excluded.item, crc = excluded.crc",
    )?;
    statement.execute(params![key.pk, key.sk, ttl::of(item), use_order::of(item), text, crc])?;
    Ok(())
}

pub(super) fn delete(transaction: &Transaction<'_>, key: &Key) -> Result<(), BackendError> {
    let mut statement = transaction.prepare_cached("DELETE FROM item WHERE pk = ?1 AND sk = ?2")?;
    statement.execute([&key.pk, &key.sk])?;
    Ok(())
}
