//! Announces changes in the change feed. Changes that are made while an entry is appended share the next entry, so a process
//! appends one entry at a time, however many changes it makes.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tabletheory::{Key, Table as _, Timestamp};
use tokio::time::Instant;

use super::PageStore;
use super::feed::FIRST_ENTRIES;
use crate::error::{Error, Kind, Result};
use crate::protocol::feed::{self, APPEND_LIMIT, Appended, MAX_CHANGED, Position, Subject};

/// How long a change that nobody would repeat is waited for to be announced.
const SOON: Duration = Duration::from_millis(250);
/// How often an entry is appended again, because it took too long or its outcome is unknown.
const MAX_APPENDS: u32 = 3;
/// Changes that had to wait for an append wait this much longer, unless they fill an entry, so that others can join them and
/// there are fewer entries.
const PAUSE: Duration = Duration::from_millis(50);

/// The changes of this process that are being announced.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    /// The group that a new change joins. Its append has not begun.
    open: Mutex<Arc<Group>>,
    /// Locked while an entry is appended.
    appending: tokio::sync::Mutex<()>,
    failures: Mutex<Failures>,
}

/// The entries that could not be appended.
#[derive(Debug, Default)]
struct Failures {
    number: u64,
    last: Option<Arc<Error>>,
}

/// Changes that one entry announces.
#[derive(Debug, Default)]
struct Group {
    changed: Mutex<BTreeSet<Subject>>,
    /// Set once the entry was appended, or could not be.
    outcome: OnceLock<std::result::Result<(), Arc<Error>>>,
}

impl Announcements {
    /// The number of entries that could not be appended until now.
    fn failures(&self) -> u64 {
        self.failures.lock().number
    }

    /// Why an entry could not be appended since there were so many failures.
    fn failure_since(&self, number: u64) -> Option<Arc<Error>> {
        let failures = self.failures.lock();
        failures.last.clone().filter(|_| failures.number > number)
    }

    fn record_failure(&self, error: &Arc<Error>) {
        let mut failures = self.failures.lock();
        *failures = Failures { number: failures.number + 1, last: Some(error.clone()) };
    }

    fn join(&self, changed: Subject) -> Arc<Group> {
        let mut open = self.open.lock();
        if open.changed.lock().len() >= MAX_CHANGED {
            *open = Arc::default();
        }
        open.changed.lock().insert(changed);
        open.clone()
    }

    /// Returns the changes of a group, which no change joins any more.
    fn close(&self, group: &Arc<Group>) -> BTreeSet<Subject> {
        let mut open = self.open.lock();
        if Arc::ptr_eq(&open, group) {
            *open = Arc::default();
        }
        group.changed.lock().clone()
    }
}

impl PageStore {
    /// Announces a change of the rows of a partition to other processes, before its outcome is returned. An outcome that is
    /// unknown is announced too: the change may have been made.
    ///
    /// If it cannot be announced, the caller gets an error, and the announcement is
    /// [pending](PageStore::add_pending_announcement): the engine repeats it even if the caller does not.
    pub(super) async fn announce<T>(&self, changed: &Key, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => self.announce_or_add_pending(changed).await.map(|()| value),
            Err(error) if error.kind() == Kind::Unknown => {
                if let Err(not_announced) = self.announce_or_add_pending(changed).await {
                    tabletheory::warn_limited!(error = %not_announced, "a change whose outcome is unknown was not announced");
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Announces a change, or makes its announcement pending.
    pub(super) async fn announce_or_add_pending(&self, changed: &Key) -> Result<()> {
        let announced = self.announce_change(changed).await;
        if announced.is_err() && self.add_pending_announcement(changed).is_none() {
            tracing::error!(
                "other processes were not told about a change: too many announcements are pending"
            );
        }
        announced
    }

    /// Announces a change that nobody would repeat. If that takes longer than a moment, the announcement is pending.
    pub(super) async fn announce_soon(&self, changed: &Key) {
        if !self.announces {
            return;
        }
        // Added first, so that the announcement is not lost if this call is cancelled.
        let Some(announcement) = self.add_pending_announcement(changed) else {
            tracing::error!(
                "other processes were not told about a change: too many announcements are pending"
            );
            return;
        };
        let announced = tokio::time::timeout(SOON, self.announce_pending(changed, &announcement)).await;
        if !matches!(announced, Ok(Ok(()))) {
            tracing::debug!("the announcement of a change is pending");
        }
    }

    /// Announces a change that was made, if this store does so. Returns once an entry that names it is stored.
    pub(crate) async fn announce_change(&self, changed: &Key) -> Result<()> {
        if !self.announces {
            return Ok(());
        }
        let announced = self.append_with_others(Subject::of(&changed.pk)).await;
        announced.map_err(|cause| {
            let context =
                "the change was stored, but not announced to other processes, which may notice it late; try again";
            Error::new(Kind::Unavailable, context).caused_by(cause)
        })
    }

    /// Appends an entry about a change, together with those that other tasks announce meanwhile.
    ///
    /// The first task of a group that may append does so for all. If it is cancelled, the next one does. If it fails, so do
    /// the tasks that wait: a feed that does not respond would make them wait for one failure after the other.
    async fn append_with_others(&self, changed: Subject) -> std::result::Result<(), Arc<Error>> {
        let announcements = &*self.announcements;
        let (group, failures) = (announcements.join(changed), announcements.failures());
        let is_decided = || group.outcome.get().is_some() || announcements.failures() > failures;
        let _appending = if let Ok(appending) = announcements.appending.try_lock() {
            appending
        } else {
            let appending = announcements.appending.lock().await;
            if !is_decided() && group.changed.lock().len() < MAX_CHANGED {
                tokio::time::sleep(PAUSE).await;
            }
            appending
        };
        if let Some(outcome) = group.outcome.get() {
            return outcome.clone();
        }
        if let Some(error) = announcements.failure_since(failures) {
            return Err(error);
        }
        // The newest position is read after this, and thus after every change of the group was made.
        let changed = announcements.close(&group);
        let outcome = self.append(&changed).await.map_err(Arc::new);
        if let Err(error) = &outcome {
            announcements.record_failure(error);
        }
        group.outcome.get_or_init(|| outcome).clone()
    }

    /// Appends an entry about these changes, and appends it again if it may have been stored too late.
    async fn append(&self, changed: &BTreeSet<Subject>) -> Result<()> {
        let mut last_error = None;
        for _ in 0..MAX_APPENDS {
            let (started, started_at) = (Instant::now(), self.now());
            // A reader waits only so long for an entry with an old position.
            match tokio::time::timeout(APPEND_LIMIT, self.append_once(changed)).await {
                // If the process or the machine was suspended meanwhile, the entry may have been stored too late.
                Ok(Ok(())) if started.elapsed().max(self.since(started_at)) <= APPEND_LIMIT => return Ok(()),
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(error)) => last_error = Some(error),
            }
        }
        let late = || Error::new(Kind::Unavailable, format!("no entry was stored within {APPEND_LIMIT:?}"));
        Err(last_error.unwrap_or_else(late))
    }

    /// The time since then by the wall clock, which runs while a machine is suspended. If it was set back, the time is unknown.
    fn since(&self, then: Timestamp) -> Duration {
        let millis = self.now().millis().saturating_sub(then.millis());
        u64::try_from(millis).map_or(Duration::MAX, Duration::from_millis)
    }

    async fn append_once(&self, changed: &BTreeSet<Subject>) -> Result<()> {
        let newest = self.table.query(&feed::newest_first().limit(FIRST_ENTRIES)).await?;
        let newest = newest.items.iter().find_map(Appended::of).map(|entry| entry.position);
        let now = self.now();
        let position = Position::after(newest, now, &*self.random);
        // An entry that is stored twice, because a response was lost, does no harm.
        let _ = self.table.commit(&feed::append(position, changed, now)).await?;
        Ok(())
    }
}
