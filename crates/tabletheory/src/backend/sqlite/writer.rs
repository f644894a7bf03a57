//! Writing: one thread that commits all waiting work with one write to disk (group commit).

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::Transaction;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::SqliteSettings;
use super::error::BackendError;
use super::file::{Opened, SqliteFile, begin};
use super::place::{self, FileId};
use super::worker::Worker;
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, Kind, Result, is_storage_full};

/// Number of times the thread polls the queue before it sleeps: some tens of microseconds.
const POLLS_BEFORE_SLEEP: u32 = 2000;
/// On a single processor nothing can send work while this thread polls.
const POLLS_ON_ONE_PROCESSOR: u32 = 1;

/// Work that the writer thread does in one SQLite transaction, which it may share with other work.
pub(super) trait Work: Send + 'static {
    type Outcome: Send;

    /// Whether a commit has to be on the disk before it is acknowledged.
    fn is_durable(&self) -> bool {
        true
    }

    /// May be called again, if the transaction had to be rolled back because of other work.
    fn apply(&self, transaction: &Transaction<'_>, now: Timestamp) -> Result<Self::Outcome, ApplyError>;
}

/// Why work was not applied.
pub(super) enum ApplyError {
    /// The rest of the group is not affected.
    BeforeWriting(BackendError),
    /// Some rows may have been written, so the whole group must be rolled back.
    WhileWriting(BackendError),
}

/// The handle of the writer thread. Dropping it waits for queued work.
#[derive(Debug)]
pub(super) struct Writer {
    // Dropped first, which ends the thread.
    queue: Queue,
    _worker: Worker,
}

/// The sending side of the queue.
#[derive(Clone, Debug)]
pub(super) struct Queue(mpsc::Sender<Message>);

/// A task of the thread.
#[derive(Debug)]
enum Message {
    Commit(Box<dyn Job>),
    Renew(Renewal),
}

/// A reader could not read the file with this identity.
#[derive(Debug)]
struct Renewal {
    id: FileId,
    cause: String,
    done: oneshot::Sender<Result<()>>,
}

impl Writer {
    pub(super) fn start(
        opened: Opened,
        file: SqliteFile,
        settings: &SqliteSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(settings.queue);
        let mut thread = WriterThread { opened, file, busy_timeout: settings.busy_timeout, clock };
        let group = settings.group;
        let worker = Worker::spawn("tabletheory-writer", move || thread.run(jobs, group))?;
        Ok(Writer { queue: Queue(queue), _worker: worker })
    }

    /// Lets the thread replace a file that cannot be read, unless it has another one open already.
    pub(super) async fn renew(&self, id: FileId, cause: String) -> Result<()> {
        let (done, result) = oneshot::channel();
        let renewal = Message::Renew(Renewal { id, cause, done });
        self.queue.0.send(renewal).await.map_err(|_| stopped())?;
        result.await.map_err(|_| stopped())?
    }

    /// Waits until the work is committed.
    pub(super) async fn submit<W: Work>(&self, work: W) -> Result<W::Outcome> {
        let (job, result) = submitted(work);
        self.queue.0.send(Message::Commit(job)).await.map_err(|_| stopped())?;
        result.await.map_err(|_| outcome_unknown())?
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }
}

impl Queue {
    /// Like [`Writer::submit`], for threads that may block.
    pub(super) fn blocking_submit<W: Work>(&self, work: W) -> Result<W::Outcome> {
        let (job, result) = submitted(work);
        self.0.blocking_send(Message::Commit(job)).map_err(|_| stopped())?;
        result.blocking_recv().map_err(|_| outcome_unknown())?
    }
}

fn stopped() -> Error {
    Error::unavailable("the writer has stopped; open the file again")
}

fn outcome_unknown() -> Error {
    Error::new(Kind::Unknown, "the writer stopped during the write; open the file again and read back")
}

/// Work in the queue, whatever its outcome is.
trait Job: std::fmt::Debug + Send {
    fn is_durable(&self) -> bool;

    fn apply(&mut self, transaction: &Transaction<'_>, now: Timestamp) -> Result<(), ApplyError>;

    /// Reports the outcome of the last `apply`, or an error in its place.
    fn finish(self: Box<Self>, error: Option<Error>);
}

/// Work with the channel for its outcome.
struct Submitted<W: Work> {
    work: W,
    outcome: Option<W::Outcome>,
    sender: oneshot::Sender<Result<W::Outcome>>,
}

fn submitted<W: Work>(work: W) -> (Box<dyn Job>, oneshot::Receiver<Result<W::Outcome>>) {
    let (sender, result) = oneshot::channel();
    (Box::new(Submitted { work, outcome: None, sender }), result)
}

impl<W: Work> std::fmt::Debug for Submitted<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submitted").finish_non_exhaustive()
    }
}

impl<W: Work> Job for Submitted<W> {
    fn is_durable(&self) -> bool {
        self.work.is_durable()
    }

    fn apply(&mut self, transaction: &Transaction<'_>, now: Timestamp) -> Result<(), ApplyError> {
        self.outcome = Some(self.work.apply(transaction, now)?);
        Ok(())
    }

    fn finish(self: Box<Self>, error: Option<Error>) {
        let result = match error {
            Some(error) => Err(error),
            None => self.outcome.ok_or_else(outcome_unknown),
        };
        // The receiver may have been dropped.
        let _ = self.sender.send(result);
    }
}

/// The state of the thread.
struct WriterThread {
    opened: Opened,
    file: SqliteFile,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl WriterThread {
    fn run(&mut self, mut messages: mpsc::Receiver<Message>, max_group: usize) {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let polls = if processors > 1 { POLLS_BEFORE_SLEEP } else { POLLS_ON_ONE_PROCESSOR };
        let (mut group, mut renewals) = (Vec::new(), Vec::new());
        while let Some(first) = next_message(&mut messages, polls) {
            let mut add = |message| match message {
                Message::Commit(job) => group.push(job),
                Message::Renew(renewal) => renewals.push(renewal),
            };
            add(first);
            // Callers that wait for this processor can add to the group.
            thread::yield_now();
            for _ in 1..max_group {
                let Ok(message) = messages.try_recv() else { break };
                add(message);
            }
            for renewal in renewals.drain(..) {
                let renewed = self.renew(&renewal);
                // The receiver may have been dropped.
                let _ = renewal.done.send(renewed);
            }
            if group.is_empty() {
                continue;
            }
            let results = self.commit_in_place(&mut group);
            // Only now: a refusal can depend on other work of the group.
            for (job, result) in group.drain(..).zip(results) {
                job.finish(result.err());
            }
        }
    }

    /// Commits work. If the file turns out to be damaged, or does not have its name any more, the work is committed in the file
    /// that takes its place: what is written to any other file is lost.
    fn commit_in_place(&mut self, group: &mut [Box<dyn Job>]) -> Vec<Result<()>> {
        let results = self.commit_all(group);
        let damage = |result: &Result<()>| {
            let error = result.as_ref().err().filter(|error| error.kind() == Kind::Corrupt)?;
            Some(error.to_string())
        };
        match self.replace_if_lost(results.iter().find_map(damage).as_deref()) {
            Ok(false) => results,
            Ok(true) => self.commit_all(group),
            Err(error) => group.iter().map(|_| Err(duplicate(&error))).collect(),
        }
    }

    fn renew(&mut self, renewal: &Renewal) -> Result<()> {
        if self.opened.id == renewal.id {
            self.replace_if_lost(Some(&renewal.cause))?;
        }
        Ok(())
    }

    /// Opens the file that takes the place of the one that is open, if that is damaged or does not have its name any more.
    /// Returns whether it did.
    fn replace_if_lost(&mut self, damage: Option<&str>) -> Result<bool> {
        let is_in_place = FileId::of(&self.file.path) == Some(self.opened.id);
        match damage {
            None if is_in_place => return Ok(false),
            // The caller gets the error.
            Some(_) if is_in_place && !self.file.is_replaceable() => return Ok(false),
            _ if !self.file.may_be_followed() => return Err(self.file.lost()),
            Some(cause) if is_in_place => place::set_aside(&self.file, Some(self.opened.id), cause)?,
            _ => {
                place::leave(&self.file, self.opened.beside)?;
                tracing::error!("{} was replaced or removed; continuing with what is there now", self.file);
            }
        }
        self.opened = self.file.open_or_replace(self.busy_timeout)?.0;
        Ok(true)
    }

    /// Commits work together or, if some of it makes that impossible, each by itself.
    fn commit_all(&mut self, group: &mut [Box<dyn Job>]) -> Vec<Result<()>> {
        match self.commit_together(group) {
            Ok(results) => results,
            Err(GroupError::One(error) | GroupError::All(error)) if group.len() == 1 => vec![Err(error)],
            Err(GroupError::One(_)) => {
                group.iter_mut().flat_map(|job| self.commit_all(std::slice::from_mut(job))).collect()
            }
            Err(GroupError::All(error)) => group.iter().map(|_| Err(duplicate(&error))).collect(),
        }
    }

    fn commit_together(&mut self, group: &mut [Box<dyn Job>]) -> Result<Vec<Result<()>>, GroupError> {
        if self.file.is_read_only() {
            self.opened = self.file.open_to_write(self.busy_timeout).map_err(GroupError::All)?;
            self.file.set_read_only(false);
            tracing::info!("there is room on the disk: {} is written again", self.file);
        }
        let file = &self.file;
        let now = self.clock.now();
        self.opened
            .sync_commits(group.iter().any(|job| job.is_durable()))
            .map_err(|error| GroupError::All(error.into_error(file)))?;
        let transaction = begin(&self.opened.connection, self.busy_timeout)
            .map_err(|error| GroupError::All(BackendError::from(error).into_error(file)))?;
        let mut results = Vec::with_capacity(group.len());
        for job in group {
            results.push(match job.apply(&transaction, now) {
                Ok(()) => Ok(()),
                // Some errors, also of reads, make SQLite roll back the whole transaction. Later writes would then be
                // committed one by one.
                Err(ApplyError::BeforeWriting(error)) if !transaction.is_autocommit() => {
                    Err(error.into_error(file))
                }
                Err(ApplyError::BeforeWriting(error) | ApplyError::WhileWriting(error)) => {
                    return Err(GroupError::One(error.into_error(file)));
                }
            });
        }
        transaction.commit().map_err(|error| GroupError::All(commit_error(error, file)))?;
        Ok(results)
    }
}

/// Returns the next message, `None` once all senders are dropped.
///
/// Polls first: a caller that awaits each commit sends the next one within microseconds, and waking this thread
/// would cost a third of the time of a commit.
fn next_message(messages: &mut mpsc::Receiver<Message>, polls: u32) -> Option<Message> {
    for _ in 0..polls {
        match messages.try_recv() {
            Ok(message) => return Some(message),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    messages.blocking_recv()
}

/// Why a group was not committed. Nothing was written, unless the kind of the error says otherwise.
enum GroupError {
    /// One job failed, after which the group cannot be committed.
    One(Error),
    /// All jobs failed, because the file cannot be written.
    All(Error),
}

/// An I/O error of a commit leaves open whether it reached the disk.
fn commit_error(error: rusqlite::Error, file: &SqliteFile) -> Error {
    let is_io = error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure);
    let error = BackendError::from(error).into_error(file);
    if !is_io {
        return error;
    }
    Error::new(Kind::Unknown, format!("writing {file} failed; check the disk, then read back"))
        .caused_by(error)
}

/// Copies an error for each job of a group. Of its source, only that the disk is full is kept.
fn duplicate(error: &Error) -> Error {
    let copy = Error::new(error.kind(), error.to_string());
    if is_storage_full(error) { copy.caused_by(io::Error::from(io::ErrorKind::StorageFull)) } else { copy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sqlite::error::failure;
    use crate::backend::sqlite::file::OnCorruption;
    use rusqlite::ffi;

    #[test]
    fn only_an_io_error_of_a_commit_has_an_unknown_outcome() {
        let file = SqliteFile::new("table.db".into(), &crate::backend::sqlite::TABLE, OnCorruption::Refuse);
        for (code, kind) in [
            (ffi::SQLITE_IOERR, Kind::Unknown),
            (ffi::SQLITE_IOERR_FSYNC, Kind::Unknown),
            (ffi::SQLITE_FULL, Kind::Unavailable),
            (ffi::SQLITE_BUSY, Kind::Unavailable),
            (ffi::SQLITE_CORRUPT, Kind::Corrupt),
        ] {
            let error = commit_error(failure(code), &file);
            assert_eq!(error.kind(), kind, "{code}: {error}");
        }
    }
}
