//! Writing: one thread that commits many waiting transactions with one write to the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, Transaction, params};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::error::Fault;
use super::file::begin;
use super::{SqliteSettings, reader, row, token};
use crate::backend::token_reused;
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::eval::{Verdict, decide};
use crate::item::{Item, Key};
use crate::ttl;
use crate::txn::{ClientToken, Commit, Txn};

/// How many expired rows one sweep deletes before other writers get their turn.
const SWEEP_ROWS: u32 = 200;
/// How often the thread looks for more work before it goes to sleep: some tens of microseconds.
const LOOKS_BEFORE_SLEEP: u32 = 2000;

/// The way to the thread that writes. Dropping it finishes what was queued.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// Where work for the writer is put.
pub(super) type Queue = mpsc::Sender<Work>;

#[derive(Debug)]
pub(super) enum Work {
    Commit { order: Order, answer: oneshot::Sender<Result<Commit>> },
    Sweep { lag: Duration, answer: oneshot::Sender<Result<Swept>> },
}

/// A transaction, with what can be worked out before it is its turn: the one thread that writes is the narrow place.
#[derive(Debug)]
pub(super) struct Order {
    txn: Txn,
    /// The token and what it stands for.
    token: Option<(ClientToken, [u8; 32])>,
}

impl Order {
    fn of(txn: &Txn) -> Self {
        let token = txn.token.as_ref().map(|token| (token.clone(), txn.digest()));
        Order { txn: txn.clone(), token }
    }
}

/// What one sweep did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swept {
    pub(super) rows: u64,
    /// Whether there may be more expired rows.
    pub(super) more: bool,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        path: &Path,
        settings: &SqliteSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (queue, work) = mpsc::channel(settings.queue);
        let busy_timeout = settings.busy_timeout;
        let mut scribe = Scribe { connection, path: path.to_owned(), busy_timeout, clock };
        let group = settings.group;
        let thread = std::thread::Builder::new()
            .name("tabletheory-writer".into())
            .spawn(move || scribe.run(work, group))
            .map_err(|cause| Error::unavailable("the writer's thread cannot be started").caused_by(cause))?;
        Ok(Writer { queue: Some(queue), thread: Some(thread) })
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone().unwrap_or_else(|| mpsc::channel(1).0)
    }

    pub(super) async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let order = Order::of(txn);
        self.ask(|answer| Work::Commit { order, answer }).await
    }

    pub(super) async fn sweep(&self, lag: Duration) -> Result<Swept> {
        self.ask(|answer| Work::Sweep { lag, answer }).await
    }

    async fn ask<T>(&self, work: impl FnOnce(oneshot::Sender<Result<T>>) -> Work) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        queue.send(work(answer)).await.map_err(|_| closed())?;
        answered.await.map_err(|_| {
            Error::new(
                Kind::Unknown,
                "the writer stopped before it answered; open the table again and read back",
            )
        })?
    }
}

fn closed() -> Error {
    Error::unavailable("the writer has stopped; open the table again")
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the table ended in a panic");
        }
    }
}

/// The thread's own state.
struct Scribe {
    connection: Connection,
    path: PathBuf,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
}

/// A transaction that waits, with the way to its committer.
type Waiting = (Order, oneshot::Sender<Result<Commit>>);

impl Scribe {
    fn run(&mut self, mut work: mpsc::Receiver<Work>, most: usize) {
        let mut group: Vec<Waiting> = Vec::new();
        while let Some(first) = next_work(&mut work) {
            let mut next = Some(first);
            while let Some(work_item) = next.take() {
                match work_item {
                    Work::Commit { order, answer } => group.push((order, answer)),
                    Work::Sweep { lag, answer } => {
                        let swept = self.sweep(lag);
                        // Nobody waits for it any more if the other side is gone.
                        let _ = answer.send(swept);
                    }
                }
                if group.len() < most {
                    next = work.try_recv().ok();
                }
            }
            self.commit_group(std::mem::take(&mut group));
        }
    }

    /// Commits all of a group at once, or, where one of them spoils that, each by itself.
    fn commit_group(&mut self, group: Vec<Waiting>) {
        if group.is_empty() {
            return;
        }
        let orders: Vec<&Order> = group.iter().map(|(order, _)| order).collect();
        let outcomes = match self.commit_together(&orders) {
            Ok(outcomes) => outcomes,
            Err(Spoiled::Wholly(error)) => orders.iter().map(|_| Err(same(&error))).collect(),
            Err(Spoiled::ByOne(_)) if orders.len() > 1 => {
                orders.iter().map(|order| self.commit_alone(order)).collect()
            }
            Err(Spoiled::ByOne(error)) => vec![Err(error)],
        };
        for ((_, answer), outcome) in group.into_iter().zip(outcomes) {
            // A committer that no longer waits gave up its right to know.
            let _ = answer.send(outcome);
        }
    }

    fn commit_alone(&mut self, order: &Order) -> Result<Commit> {
        match self.commit_together(&[order]) {
            Ok(mut outcomes) => outcomes.pop().unwrap_or_else(|| Err(closed())),
            Err(Spoiled::ByOne(error) | Spoiled::Wholly(error)) => Err(error),
        }
    }

    /// Answers may be given only once this returns: a refusal can rest on another transaction of the group.
    fn commit_together(&mut self, orders: &[&Order]) -> Result<Vec<Result<Commit>>, Spoiled> {
        let path = &self.path;
        let now = self.clock.now();
        let whole = |error: rusqlite::Error| Spoiled::Wholly(Fault::from(error).explain(path));
        let transaction = begin(&self.connection, self.busy_timeout).map_err(whole)?;
        let mut outcomes = Vec::with_capacity(orders.len());
        for order in orders {
            outcomes.push(match apply(&transaction, order, now) {
                Ok(commit) => Ok(commit),
                // Some failures, of a read too, make SQLite give up the whole transaction by itself. What
                // came after would then be written piece by piece.
                Err(Unapplied::Clean(fault)) if transaction.is_autocommit() => {
                    return Err(Spoiled::ByOne(fault.explain(path)));
                }
                Err(Unapplied::Clean(fault)) => Err(fault.explain(path)),
                Err(Unapplied::HalfWay(fault)) => return Err(Spoiled::ByOne(fault.explain(path))),
            });
        }
        transaction.commit().map_err(|error| Spoiled::Wholly(explain_commit(error, path)))?;
        Ok(outcomes)
    }

    fn sweep(&mut self, lag: Duration) -> Result<Swept> {
        let expired = ttl::Expired::at(self.clock.now(), lag);
        let delete = |connection: &Connection| -> Result<usize, Fault> {
            let mut statement = connection.prepare_cached(
                "DELETE FROM item WHERE (pk, sk) IN
                 (SELECT pk, sk FROM item WHERE ttl > ?1 AND ttl <= ?2 LIMIT ?3)",
            )?;
            Ok(statement.execute(params![expired.after, expired.until, SWEEP_ROWS])?)
        };
        let sweep = || -> Result<usize, Fault> {
            let transaction = begin(&self.connection, self.busy_timeout)?;
            let rows = delete(&transaction)?;
            transaction.commit()?;
            Ok(rows)
        };
        let rows = sweep().map_err(|fault| fault.explain(&self.path))?;
        tracing::debug!(rows, "deleted expired rows");
        Ok(Swept { rows: rows as u64, more: rows == SWEEP_ROWS as usize })
    }
}

/// The next piece of work; none once nobody can send any more.
///
/// A committer that waits for each answer before its next commit is back within microseconds, so it is
/// worth looking for it a while: going to sleep and being woken costs it a third of the time of a commit.
fn next_work(work: &mut mpsc::Receiver<Work>) -> Option<Work> {
    for _ in 0..LOOKS_BEFORE_SLEEP {
        match work.try_recv() {
            Ok(found) => return Some(found),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    work.blocking_recv()
}

/// Why a group was not committed; nothing of it was written, unless the error's kind says otherwise.
enum Spoiled {
    /// One transaction failed in the middle of its writes.
    ByOne(Error),
    /// The file did.
    Wholly(Error),
}

/// Why one transaction was not applied.
enum Unapplied {
    /// Before it wrote anything: the others of the group are not concerned.
    Clean(Fault),
    /// After it may have written something, so that the whole group must be rolled back.
    HalfWay(Fault),
}

/// A failed write of the log may have reached the disk all the same.
fn explain_commit(error: rusqlite::Error, path: &Path) -> Error {
    let io = error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure);
    let explained = Fault::from(error).explain(path);
    if io {
        return Error::new(
            Kind::Unknown,
            format!("writing the table file {} failed; check the disk, then read back", path.display()),
        )
        .caused_by(explained);
    }
    explained
}

/// The same error for one more of a group.
fn same(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

fn apply(transaction: &Transaction<'_>, order: &Order, now: Timestamp) -> Result<Commit, Unapplied> {
    let clean = Unapplied::Clean;
    let Order { txn, token } = order;
    if let Some((token, digest)) = token
        && let Some(known) = token::recall(transaction, token, now).map_err(clean)?
    {
        return if known == *digest { Ok(Commit::Done) } else { Err(clean(token_reused().into())) };
    }
    let mut unreadable = None;
    let verdict = decide(txn, |key| {
        reader::get(transaction, key).map_err(|fault| {
            unreadable = Some(fault);
            Error::unavailable("a row cannot be read")
        })
    });
    match verdict {
        Err(error) => Err(clean(unreadable.unwrap_or(error.into()))),
        Ok(Verdict::Refuse { index, seen }) => Ok(Commit::Refused { index, seen }),
        Ok(Verdict::Apply(effects)) => {
            let write = || -> Result<(), Fault> {
                for (key, after) in effects {
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
            write().map_err(Unapplied::HalfWay)?;
            Ok(Commit::Done)
        }
    }
}

fn put(transaction: &Transaction<'_>, key: &Key, item: &Item) -> Result<(), Fault> {
    let (text, crc) = row::encode(key, item);
    // Unlike REPLACE, this leaves the index of expiry times alone where the time stays the same.
    let mut statement = transaction.prepare_cached(
        "INSERT INTO item (pk, sk, ttl, item, crc) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (pk, sk) DO UPDATE SET ttl = excluded.ttl, item = excluded.item, crc = excluded.crc",
    )?;
    statement.execute(params![key.pk, key.sk, ttl::of(item), text, crc])?;
    Ok(())
}

fn delete(transaction: &Transaction<'_>, key: &Key) -> Result<(), Fault> {
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
    fn only_a_commit_that_may_have_reached_the_disk_is_in_doubt() {
        for (code, kind) in [
            (ffi::SQLITE_IOERR, Kind::Unknown),
            (ffi::SQLITE_IOERR_FSYNC, Kind::Unknown),
            (ffi::SQLITE_FULL, Kind::Unavailable),
            (ffi::SQLITE_BUSY, Kind::Unavailable),
            (ffi::SQLITE_CORRUPT, Kind::Corrupt),
        ] {
            let error = explain_commit(failure(code), Path::new("table.db"));
            assert_eq!(error.kind(), kind, "{code}: {error}");
        }
    }
}
