//! The change feed: appends to it and reads it, and what this process knows from it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tabletheory::{Key, Query, Timestamp};
use tokio::time::Instant;

use super::PageStore;
use crate::error::{Error, Kind, Result};
use crate::protocol::feed::{self, APPEND_LIMIT, Appended, Changes, Position, Subject};

/// How often an entry is appended again, because it took too long or its outcome is unknown.
const MAX_APPENDS: u32 = 3;
/// The entries of the first query of a read. So many cost one read unit, like none.
const FIRST_ENTRIES: usize = 25;
/// The entries of each further query of a read, and of all queries of one read. A read that would need more is a gap.
const MORE_ENTRIES: usize = 500;
const MAX_ENTRIES: usize = FIRST_ENTRIES + 4 * MORE_ENTRIES;
/// How many changes a process remembers. With more, every page and tag counts as changed once.
const MAX_CHANGES: usize = 100_000;

/// The changes that this process has read from the feed, or has made.
#[derive(Debug)]
pub(crate) struct KnownChanges {
    /// Counts the reads that brought changes. It numbers them.
    read: AtomicU64,
    /// When the last read of the feed began, in milliseconds; `i64::MIN` if the feed is not read.
    complete_at: AtomicI64,
    recent: RwLock<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    /// Before the read with this number, everything counts as changed.
    floor: u64,
    /// The number of the read that brought the last change of each subject.
    last: HashMap<Subject, u64>,
}

impl Default for KnownChanges {
    fn default() -> Self {
        let (read, complete_at) = (AtomicU64::new(0), AtomicI64::new(i64::MIN));
        KnownChanges { read, complete_at, recent: RwLock::default() }
    }
}

impl KnownChanges {
    /// The number of the latest read. A row that is read from the table after this call includes its changes.
    pub(crate) fn number(&self) -> u64 {
        self.read.load(Ordering::Acquire)
    }

    /// Whether one of these subjects has changed since the read with this number.
    pub(crate) fn has_changed(&self, since: u64, subjects: impl IntoIterator<Item = Subject>) -> bool {
        // The subjects are computed only if there is something to compare them with.
        if since == self.number() {
            return false;
        }
        let recent = self.recent.read();
        since < recent.floor
            || subjects.into_iter().any(|subject| recent.last.get(&subject).is_some_and(|last| *last > since))
    }

    /// Whether the feed was read recently enough to rely on it, like metadata that was read at that time.
    pub(crate) fn is_complete(&self, now: Timestamp, max_age: Duration) -> bool {
        let complete_at = Timestamp::from_millis(self.complete_at.load(Ordering::Acquire));
        complete_at <= now && now < complete_at + max_age
    }

    /// Takes note of a read of the feed that began at this time.
    pub(crate) fn apply(&self, changes: Changes, began: Timestamp) {
        self.add(changes);
        self.complete_at.store(began.millis(), Ordering::Release);
    }

    /// Takes note of changes.
    pub(crate) fn add(&self, changes: Changes) {
        let mut recent = self.recent.write();
        let number = self.number() + 1;
        match changes {
            Changes::Of(subjects) if subjects.is_empty() => return,
            Changes::Of(subjects) if recent.last.len() + subjects.len() <= MAX_CHANGES => {
                recent.last.extend(subjects.into_iter().map(|subject| (subject, number)));
            }
            Changes::Of(_) | Changes::Everything => *recent = Recent { floor: number, ..Recent::default() },
        }
        // After the map, so that whoever sees the number also finds the changes.
        self.read.store(number, Ordering::Release);
    }
}

impl PageStore {
    /// Announces a change of the rows of a partition to other processes, before its outcome is returned. An outcome that is
    /// unknown is announced too: the change may have been made.
    pub(super) async fn announce<T>(&self, changed: &Key, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => self.announce_change(changed).await.map(|()| value),
            Err(error) if error.kind() == Kind::Unknown => {
                drop(self.announce_change(changed).await);
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Appends an entry to the feed, if this store does so.
    pub(crate) async fn announce_change(&self, changed: &Key) -> Result<()> {
        if !self.announces {
            return Ok(());
        }
        let changed = Subject::of(&changed.pk);
        let mut last_error = None;
        for _ in 0..MAX_APPENDS {
            let (started, started_at) = (Instant::now(), self.now());
            // A reader waits only so long for an entry with an old position.
            match tokio::time::timeout(APPEND_LIMIT, self.append(&changed)).await {
                // If the process or the machine was suspended meanwhile, the entry may have been stored too late.
                Ok(Ok(())) if started.elapsed().max(self.since(started_at)) <= APPEND_LIMIT => return Ok(()),
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(error)) => last_error = Some(error),
            }
        }
        let context = "the change was stored, but not announced to other processes, which may notice it late; try again";
        let error = Error::new(Kind::Unavailable, context);
        Err(match last_error {
            Some(cause) => error.caused_by(cause),
            None => error,
        })
    }

    /// The time since then by the wall clock, which runs while a machine is suspended. If it was set back, the time is unknown.
    fn since(&self, then: Timestamp) -> Duration {
        let millis = self.now().millis().saturating_sub(then.millis());
        u64::try_from(millis).map_or(Duration::MAX, Duration::from_millis)
    }

    async fn append(&self, changed: &Subject) -> Result<()> {
        let newest = self.table.query(&Query::of(feed::PK).backward().limit(FIRST_ENTRIES)).await?;
        // A row that is not an entry is skipped, as by readers.
        let newest = newest.items.iter().find_map(Appended::of).map(|entry| entry.position);
        let now = self.now();
        let position = Position::after(newest, now, &*self.random);
        // An entry that is stored twice, because a response was lost, does no harm.
        let _ = self.table.commit(&feed::append(position, changed, now)).await?;
        Ok(())
    }

    /// Reads the entries of the feed after this sequence number, newest first, and whether they are all.
    pub(crate) async fn read_feed(&self, after: Option<u64>) -> Result<(Vec<Appended>, bool)> {
        let mut query = Query::of(feed::PK).backward().limit(FIRST_ENTRIES);
        let mut entries = Vec::new();
        loop {
            let page = self.table.query(&query).await?;
            entries.extend(page.items.iter().filter_map(Appended::of));
            let reaches = |after| entries.last().is_some_and(|oldest| oldest.position.sequence <= after);
            let Some(next) = page.next.filter(|_| !after.is_none_or(reaches)) else {
                return Ok((entries, true));
            };
            if entries.len() >= MAX_ENTRIES {
                return Ok((entries, false));
            }
            query = Query::of(feed::PK).backward().limit(MORE_ENTRIES).after(next);
        }
    }

    /// The changes that this process knows of.
    pub(crate) fn known_changes(&self) -> &Arc<KnownChanges> {
        &self.known_changes
    }
}
