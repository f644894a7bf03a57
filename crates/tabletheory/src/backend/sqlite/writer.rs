//! Writing: one thread that commits all waiting transactions with one write to disk (group commit).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Transaction, params};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::error::BackendError;
use super::file::begin;
use super::worker::Worker;
use super::{SqliteSettings, reader, row, token};
use crate::backend::token_reused;
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::eval::{Effect, evaluate};
use crate::item::{Item, Key};
use crate::ttl;
use crate::txn::{ClientToken, Commit, Txn};

/// Number of expired rows that are deleted in one transaction, before other writers continue.
const SWEEP_ROWS: u32 = 200;
/// Number of times the thread polls the queue before it sleeps: some tens of microseconds.
const POLLS_BEFORE_SLEEP: u32 = 2000;

/// The handle of the writer thread. Dropping it waits for queued transactions.
#[derive(Debug)]
pub(super) struct Writer {
    // Dropped first, which ends the thread.
    pub(super) queue: Queue,
    _worker: Worker,
}

pub(super) type Queue = mpsc::Sender<Job>;

#[derive(Debug)]
pub(super) enum Job {
    Commit { txn: PreparedTxn, result: oneshot::Sender<Result<Commit>> },
    Sweep { lag: Duration, result: oneshot::Sender<Result<Swept>> },
}

/// A transaction with a precomputed digest, because the single writer thread is the bottleneck.
#[derive(Debug)]
pub(super) struct PreparedTxn {
    txn: Txn,
    /// The client token and the digest of the writes.
    token: Option<(ClientToken, [u8; 32])>,
}

/// The result of one sweep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swept {
    pub(super) rows: u64,
    /// Whether more rows may have expired.
    pub(super) more: bool,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        path: &Path,
        settings: &SqliteSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(settings.queue);
        let busy_timeout = settings.busy_timeout;
        let mut thread = WriterThread { connection, path: path.to_owned(), busy_timeout, clock };
        let group = settings.group;
        let worker = Worker::spawn("tabletheory-writer", move || thread.run(jobs, group))?;
        Ok(Writer { queue, _worker: worker })
    }

    pub(super) async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let token = txn.token.as_ref().map(|token| (token.clone(), txn.digest()));
        let txn = PreparedTxn { txn: txn.clone(), token };
        self.submit(|result| Job::Commit { txn, result }).await
    }

    pub(super) async fn sweep(&self, lag: Duration) -> Result<Swept> {
        self.submit(|result| Job::Sweep { lag, result }).await
    }

    async fn submit<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job) -> Result<T> {
        let (sender, result) = oneshot::channel();
        self.queue.send(job(sender)).await.map_err(|_| stopped())?;
        result.await.map_err(|_| {
            Error::new(
                Kind::Unknown,
                "the writer stopped during the write; open the table again and read back",
            )
        })?
    }
}

fn stopped() -> Error {
    Error::unavailable("the writer has stopped; open the table again")
}

/// The state of the thread.
struct WriterThread {
    connection: Connection,
    path: PathBuf,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
}

/// A queued transaction and the channel for its result.
type Waiting = (PreparedTxn, oneshot::Sender<Result<Commit>>);

impl WriterThread {
    fn run(&mut self, mut jobs: mpsc::Receiver<Job>, max_group: usize) {
        let mut group: Vec<Waiting> = Vec::new();
        while let Some(first) = next_job(&mut jobs) {
            let mut next = Some(first);
            while let Some(job) = next.take() {
                match job {
                    Job::Commit { txn, result } => group.push((txn, result)),
                    // The receiver may have been dropped.
                    Job::Sweep { lag, result } => drop(result.send(self.sweep(lag))),
                }
                if group.len() < max_group {
                    next = jobs.try_recv().ok();
                }
            }
            self.commit_group(std::mem::take(&mut group));
        }
    }

    fn commit_group(&mut self, group: Vec<Waiting>) {
        if group.is_empty() {
            return;
        }
        let txns: Vec<&PreparedTxn> = group.iter().map(|(txn, _)| txn).collect();
        let results = self.commit_all(&txns);
        for ((_, sender), result) in group.into_iter().zip(results) {
            // The receiver may have been dropped.
            let _ = sender.send(result);
        }
    }

    /// Commits transactions together or, if one of them makes that impossible, each by itself.
    fn commit_all(&mut self, txns: &[&PreparedTxn]) -> Vec<Result<Commit>> {
        match self.commit_together(txns) {
            Ok(results) => results,
            Err(GroupError::One(error) | GroupError::All(error)) if txns.len() == 1 => vec![Err(error)],
            Err(GroupError::One(_)) => txns.iter().flat_map(|txn| self.commit_all(&[txn])).collect(),
            Err(GroupError::All(error)) => txns.iter().map(|_| Err(duplicate(&error))).collect(),
        }
    }

    /// Results may be sent only after this returns: a refusal can depend on another transaction of the group.
    fn commit_together(&mut self, txns: &[&PreparedTxn]) -> Result<Vec<Result<Commit>>, GroupError> {
        let path = &self.path;
        let now = self.clock.now();
        let transaction = begin(&self.connection, self.busy_timeout)
            .map_err(|error| GroupError::All(BackendError::from(error).into_error(path)))?;
        let mut results = Vec::with_capacity(txns.len());
        for txn in txns {
            results.push(match apply(&transaction, txn, now) {
                Ok(commit) => Ok(commit),
                // Some errors, also of reads, make SQLite roll back the whole transaction. Later writes would then be
                // committed one by one.
                Err(ApplyError::BeforeWriting(error)) if !transaction.is_autocommit() => {
                    Err(error.into_error(path))
                }
                Err(ApplyError::BeforeWriting(error) | ApplyError::WhileWriting(error)) => {
                    return Err(GroupError::One(error.into_error(path)));
                }
            });
        }
        transaction.commit().map_err(|error| GroupError::All(commit_error(error, path)))?;
        Ok(results)
    }

    fn sweep(&mut self, lag: Duration) -> Result<Swept> {
        let expired = ttl::Expired::at(self.clock.now(), lag);
        let sweep = || -> Result<usize, BackendError> {
            let transaction = begin(&self.connection, self.busy_timeout)?;
            let rows = transaction
                .prepare_cached(
                    "DELETE FROM item WHERE (pk, sk) IN
                     (SELECT pk, sk FROM item WHERE ttl > ?1 AND ttl <= ?2 LIMIT ?3)",
                )?
                .execute(params![expired.after, expired.until, SWEEP_ROWS])?;
            transaction.commit()?;
            Ok(rows)
        };
        let rows = sweep().map_err(|error| error.into_error(&self.path))?;
        tracing::debug!(rows, "deleted expired rows");
        Ok(Swept { rows: rows as u64, more: rows == SWEEP_ROWS as usize })
    }
}

/// Returns the next job, `None` once all senders are dropped.
///
/// Polls for a while first: a caller that awaits each commit sends the next one within microseconds, and waking this thread
/// would cost a third of the time of a commit.
fn next_job(jobs: &mut mpsc::Receiver<Job>) -> Option<Job> {
    for _ in 0..POLLS_BEFORE_SLEEP {
        match jobs.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    jobs.blocking_recv()
}

/// Why a group was not committed. Nothing was written, unless the kind of the error says otherwise.
enum GroupError {
    /// One transaction failed, after which the group cannot be committed.
    One(Error),
    /// All transactions failed, because the file cannot be written.
    All(Error),
}

/// Why one transaction was not applied.
enum ApplyError {
    /// The rest of the group is not affected.
    BeforeWriting(BackendError),
    /// Some rows may have been written, so the whole group must be rolled back.
    WhileWriting(BackendError),
}

/// An I/O error of a commit leaves open whether it reached the disk.
fn commit_error(error: rusqlite::Error, path: &Path) -> Error {
    let is_io = error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure);
    let error = BackendError::from(error).into_error(path);
    if !is_io {
        return error;
    }
    let file = path.display();
    Error::new(Kind::Unknown, format!("writing the table file {file} failed; check the disk, then read back"))
        .caused_by(error)
}

/// Copies an error for each transaction of a group, without its source.
fn duplicate(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

fn apply(transaction: &Transaction<'_>, txn: &PreparedTxn, now: Timestamp) -> Result<Commit, ApplyError> {
    let PreparedTxn { txn, token } = txn;
    if let Some((token, digest)) = token
        && let Some(used_for) = token::lookup(transaction, token, now).map_err(ApplyError::BeforeWriting)?
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

fn put(transaction: &Transaction<'_>, key: &Key, item: &Item) -> Result<(), BackendError> {
    let (text, crc) = row::encode(key, item);
    // Unlike REPLACE, this does not touch the index on `ttl` if the value is unchanged.
    let mut statement = transaction.prepare_cached(
        "INSERT INTO item (pk, sk, ttl, item, crc) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (pk, sk) DO UPDATE SET ttl = excluded.ttl, item = excluded.item, crc = excluded.crc",
    )?;
    statement.execute(params![key.pk, key.sk, ttl::of(item), text, crc])?;
    Ok(())
}

fn delete(transaction: &Transaction<'_>, key: &Key) -> Result<(), BackendError> {
    let mut statement = transaction.prepare_cached("DELETE FROM item WHERE pk = ?1 AND sk = ?2")?;
    statement.execute([&key.pk, &key.sk])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sqlite::error::failure;
    use rusqlite::ffi;

    #[test]
    fn only_an_io_error_of_a_commit_has_an_unknown_outcome() {
        for (code, kind) in [
            (ffi::SQLITE_IOERR, Kind::Unknown),
            (ffi::SQLITE_IOERR_FSYNC, Kind::Unknown),
            (ffi::SQLITE_FULL, Kind::Unavailable),
            (ffi::SQLITE_BUSY, Kind::Unavailable),
            (ffi::SQLITE_CORRUPT, Kind::Corrupt),
        ] {
            let error = commit_error(failure(code), Path::new("table.db"));
            assert_eq!(error.kind(), kind, "{code}: {error}");
        }
    }
}
