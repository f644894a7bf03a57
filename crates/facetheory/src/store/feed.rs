//! Reads the change feed, and what this process knows from it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tabletheory::{Table as _, Timestamp};
use tokio::time::Instant;

use super::PageStore;
use crate::error::Result;
use crate::protocol::feed::{self, Appended, Changes, Subject};

/// The entries of the first query of a read, besides those that the reader knows. So many cost one read unit, like none,
/// however many changes each announces.
pub(super) const FIRST_ENTRIES: usize = 4;
/// The entries of each further query of a read, and of the first read, which finds out which entries are old.
const MORE_ENTRIES: usize = 500;
/// The rows of all queries of one read. A read that would need more is a gap.
const MAX_ROWS: usize = 2_000;
/// How many changes a process remembers. With more, every page and tag counts as changed once.
const MAX_CHANGES: usize = 100_000;

/// The changes that this process has read from the feed, or has made.
#[derive(Debug)]
pub(crate) struct KnownChanges {
    /// Counts the reads that brought changes. It numbers them.
    read: AtomicU64,
    /// When the last read of the feed began by the wall clock, in milliseconds; `i64::MIN` if the feed is not read.
    complete_at: AtomicI64,
    /// When it began by the clock that is never set, in milliseconds after `started`.
    complete_after: AtomicU64,
    started: Instant,
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
        KnownChanges {
            read: AtomicU64::new(0),
            complete_at: AtomicI64::new(i64::MIN),
            complete_after: AtomicU64::new(0),
            started: Instant::now(),
            recent: RwLock::default(),
        }
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
        self.is_complete_at(now, Instant::now, max_age)
    }

    /// Whether the feed was read recently enough at this time, by both clocks: the wall clock may be set back, and the other
    /// one stands still while a machine is suspended.
    pub(crate) fn is_complete_at(
        &self,
        now: Timestamp,
        instant: impl FnOnce() -> Instant,
        max_age: Duration,
    ) -> bool {
        let complete_at = Timestamp::from_millis(self.complete_at.load(Ordering::Acquire));
        let is_recent = complete_at <= now && now < complete_at + max_age;
        // The second clock is not read without a feed.
        is_recent && {
            let complete_after = Duration::from_millis(self.complete_after.load(Ordering::Acquire));
            instant().saturating_duration_since(self.started) < complete_after + max_age
        }
    }

    /// When the clock that is never set began to count.
    #[cfg(test)]
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Takes note of a read of the feed that began at this time, by both clocks.
    pub(crate) fn apply(&self, changes: Changes, began: Timestamp, began_at: Instant) {
        self.add(changes);
        let after = began_at.saturating_duration_since(self.started).as_millis();
        // A reader may see one of them before the other. It relies on the feed only if both are recent.
        self.complete_after.store(u64::try_from(after).unwrap_or(0), Ordering::Release);
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
        // Stored after the changes, so that a reader that sees the number also finds the changes.
        self.read.store(number, Ordering::Release);
    }
}

impl PageStore {
    /// Reads the entries of the feed after this sequence number, newest first, and whether they are all. So many of them are
    /// `known` already.
    pub(crate) async fn read_feed(&self, after: Option<u64>, known: usize) -> Result<(Vec<Appended>, bool)> {
        let first = after.map_or(MORE_ENTRIES, |_| known.saturating_add(FIRST_ENTRIES).min(MORE_ENTRIES));
        let mut query = feed::newest_first().limit(first);
        let (mut entries, mut rows) = (Vec::new(), 0);
        loop {
            let page = self.table.query(&query).await?;
            rows += page.items.len();
            entries.extend(page.items.iter().filter_map(Appended::of));
            let reaches = |after| entries.last().is_some_and(|oldest| oldest.position.sequence <= after);
            let Some(next) = page.next.filter(|_| !after.is_none_or(reaches)) else {
                return Ok((entries, true));
            };
            if rows >= MAX_ROWS {
                return Ok((entries, false));
            }
            query = feed::newest_first().limit(MORE_ENTRIES).after(next);
        }
    }

    /// The changes that this process knows of.
    pub(crate) fn known_changes(&self) -> &Arc<KnownChanges> {
        &self.known_changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FeedEntry;
    use crate::protocol::feed::{MAX_CHANGED, Position};
    use tabletheory::{SeededRandom, Value};

    /// The size of an attribute as DynamoDB counts it, in bytes.
    fn size(name: &str, value: &Value) -> usize {
        let value = match value {
            Value::S(text) => text.len(),
            Value::Ss(texts) => texts.members().iter().map(String::len).sum(),
            // At most: an entry has no other type than a number with ten digits.
            _ => 6,
        };
        name.len() + value
    }

    #[test]
    fn a_full_entry_costs_one_write_unit_and_the_first_query_one_read_unit() {
        let position = Position::after(None, Timestamp::from_seconds(1_700_000_000), &SeededRandom::new(1));
        let mut entry = FeedEntry { ttl: Some(1_700_003_600), ..FeedEntry::default() };
        entry.changed = (0..MAX_CHANGED).map(|number| format!("{number:024}")).collect();
        let (mut item, key) = (entry.to_item(), position.key());
        item.set("pk", key.pk);
        item.set("sk", key.sk);
        let bytes: usize = item.iter().map(|(name, value)| size(name, value)).sum();
        assert!(bytes <= 1024, "{bytes} bytes");
        assert!(FIRST_ENTRIES * bytes <= 4096, "{bytes} bytes");
    }
}
