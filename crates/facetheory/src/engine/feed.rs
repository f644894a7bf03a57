//! The change feed in an engine: reads it from time to time, and decides which pages in memory need not be read again.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::{counter, gauge, histogram};
use tabletheory::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::Engine;
use super::memory::Metadata;
use crate::protocol::Freshness;
use crate::protocol::feed::{Changes, FeedRead, FeedReader, Gap, Subject};
use crate::{PageKey, Result, Tag, Tenant};

/// How often the feed is read. Half of the time within which a change must be known, so that one slow read does not matter.
const INTERVAL: Duration = Duration::from_millis(500);
/// The feed is not read more often, however short `metadata_max_age` is.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);
/// A page that has not been read for this long is read again although the feed says that it has not changed, ...
const CHECK_AFTER: Duration = Duration::from_secs(3600);
/// ... but no more than one row in this time on average, so that the cost does not grow with the number of pages or tags.
const PAUSE_PER_ROW: Duration = Duration::from_secs(1);

/// Which processes write the table. This decides how an engine learns about their changes.
///
/// ```
/// assert_eq!(facetheory::Feed::default(), facetheory::Feed::Mixed);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feed {
    /// Other programs may write the table too. Metadata is read again once it is older than
    /// [`metadata_max_age`](crate::IsrBuilder::metadata_max_age).
    #[default]
    Mixed,
    /// Every process that writes the table appends its changes to the change feed. An engine does so only if
    /// [`IsrBuilder::feed`](crate::IsrBuilder::feed) was called, with either value, and a store only
    /// [with announcements](crate::PageStore::with_announcements). The engine reads the feed twice per second. As long as it
    /// can, it does not read a fresh page again unless the feed names it or one of its tags.
    Exclusive,
}

/// The state of an engine that relies on the feed.
#[derive(Debug)]
pub(super) struct FeedWatch {
    pub(super) mode: Feed,
    /// Whether the task that reads the feed was started.
    running: AtomicBool,
    /// When the next page may be read although the feed says that it has not changed, in milliseconds.
    next_check: AtomicI64,
}

impl FeedWatch {
    pub(super) fn new() -> Self {
        let (running, next_check) = (AtomicBool::new(false), AtomicI64::new(i64::MIN));
        FeedWatch { mode: Feed::Mixed, running, next_check }
    }

    /// Whether a page may be read now, by reading so many rows, although the feed says that it has not changed.
    fn allows_check(&self, rows: usize, now: Timestamp) -> bool {
        let next = self.next_check.load(Ordering::Relaxed);
        // If the clock was set back, the next check would be far away.
        let is_due = next <= now.millis() || next > (now + CHECK_AFTER).millis();
        let pause = PAUSE_PER_ROW.saturating_mul(u32::try_from(rows).unwrap_or(u32::MAX)).min(CHECK_AFTER);
        let after = (now + pause).millis();
        is_due && self.next_check.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Engine {
    /// Starts to read the feed, if this engine relies on it and has something to gain from it.
    pub(super) fn watch_feed(self: &Arc<Self>, memory: u64) {
        if self.feed.mode == Feed::Mixed || memory == 0 || self.metadata_max_age.is_zero() {
            return;
        }
        self.feed.running.store(true, Ordering::Relaxed);
        let interval = INTERVAL.min(self.metadata_max_age / 2).max(SHORTEST_INTERVAL);
        let (engine, stop) = (Arc::downgrade(self), self.stop.clone());
        tokio::spawn(async move {
            stop.run_until_cancelled(read_feed(engine, interval, &stop)).await;
        });
    }

    /// Whether metadata was read recently enough to serve the page without reading the table, or is known not to have
    /// changed since.
    pub(super) fn is_current(&self, page: &PageKey, metadata: &Metadata, now: Timestamp) -> bool {
        let age = if self.is_watched(metadata, now) { Duration::MAX } else { self.metadata_max_age };
        !metadata.check.superseded
            && self.memory.is_current(page, metadata, now, age)
            && !self.has_changed(page, metadata)
            && !self.is_due_for_check(page, metadata, now)
    }

    /// Whether the feed names every change of this page before its interval ends. A stale page is published without an
    /// entry in the feed.
    fn is_watched(&self, metadata: &Metadata, now: Timestamp) -> bool {
        let changes = self.pages.store().known_changes();
        if !changes.is_complete(now, self.metadata_max_age) {
            return false;
        }
        let (meta, check, deployment) = (&metadata.meta, metadata.check, self.deployment.as_deref());
        let is_ours = deployment.is_none_or(|ours| !meta.is_of_other_deployment(ours));
        is_ours && !check.stale && !check.invalidated && meta.freshness(now) == Freshness::Fresh
    }

    /// Whether a change of the page or of its tags has become known since its metadata was read.
    pub(super) fn has_changed(&self, page: &PageKey, metadata: &Metadata) -> bool {
        let (store, known) = (self.pages.store(), metadata.known_changes());
        let number = store.known_changes().number();
        if known == number {
            return false;
        }
        let has_changed = store.has_changed(page, &metadata.meta, known);
        if !has_changed {
            metadata.set_known_changes(number);
        }
        has_changed
    }

    /// Whether the page is read again for safety.
    fn is_due_for_check(&self, page: &PageKey, metadata: &Metadata, now: Timestamp) -> bool {
        // The rows are counted only for a page that has not been read for long.
        let rows = || self.pages.store().rows_of_check(page, &metadata.meta);
        let is_due =
            now >= metadata.check.before.at.wall + CHECK_AFTER && self.feed.allows_check(rows(), now);
        if is_due {
            // This request may look at the metadata several times.
            metadata.set_known_changes(0);
        }
        is_due
    }

    /// Makes requests read the metadata of the pages with a tag again.
    pub(super) fn mark_tag_unverified(&self, tag: &Tag, tenant: Option<&Tenant>) {
        if self.feed.running.load(Ordering::Relaxed) {
            let subject = Subject::of(&tag.key(tenant).pk);
            self.pages.store().known_changes().add(Changes::Of(vec![subject]));
        } else {
            self.memory.mark_all_unverified();
        }
    }

    /// Starts the feed again if the table has been replaced since the last call: it may lack entries of the one before.
    fn restart_feed_of_replaced_table(&self, reader: &mut FeedReader, replacements: &mut u64) {
        // If writes to the table are lost, its feed is the one that was read before.
        let Ok(number) = self.pages.store().table().replacements() else { return };
        if std::mem::replace(replacements, number) != number {
            counter!("facetheory_feed_gaps_total", "reason" => "replaced").increment(1);
            tracing::warn!("the table was replaced; all pages are read again");
            *reader = FeedReader::default();
        }
    }

    /// Reads the feed once.
    async fn read_feed_once(&self, reader: &mut FeedReader, start: Instant) -> Result<()> {
        let (store, now, began) = (self.pages.store(), self.now(), start.elapsed());
        let reading = self.within_table_timeout(store.read_feed(reader.bound(), reader.known())).await;
        let (entries, complete) = reading.inspect_err(|_| count_read("error"))?;
        count_read("ok");
        gauge!("facetheory_feed_read_entries")
            .set(f64::from(u32::try_from(entries.len()).unwrap_or(u32::MAX)));
        let read = FeedRead { at: now, during: began..start.elapsed(), entries, complete };
        let (was_watching, gap) = (reader.bound().is_some(), reader.gap(&read));
        let changes = reader.observe(&read);
        match (&changes, read.entries.first()) {
            (Changes::Of(changed), Some(newest)) if !changed.is_empty() => {
                counter!("facetheory_feed_entries_total")
                    .increment(u64::try_from(changed.len()).unwrap_or(0));
                let written = i64::try_from(newest.position.sequence).unwrap_or(i64::MAX);
                let lag = u64::try_from(self.now().millis().saturating_sub(written)).unwrap_or(0);
                histogram!("facetheory_feed_lag_seconds").record(Duration::from_millis(lag).as_secs_f64());
            }
            _ => {}
        }
        let is_unreadable = was_watching && changes == Changes::Everything;
        if let Some(reason) = gap.map(Gap::as_str).or(is_unreadable.then_some("unreadable-entry")) {
            counter!("facetheory_feed_gaps_total", "reason" => reason).increment(1);
            let entries = read.entries.len();
            tracing::warn!(
                reason,
                entries,
                "entries of the change feed may have been missed; all pages are read again"
            );
        }
        store.known_changes().apply(changes, now, start + began);
        gauge!("facetheory_feed_complete").set(1.0);
        Ok(())
    }
}

fn count_read(outcome: &'static str) {
    counter!("facetheory_feed_reads_total", "outcome" => outcome).increment(1);
}

/// Reads the feed until the engine is dropped.
async fn read_feed(engine: Weak<Engine>, interval: Duration, stop: &CancellationToken) {
    let (start, mut reader, mut failing) = (Instant::now(), FeedReader::default(), false);
    let mut replacements = 0;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(engine) = engine.upgrade().filter(|_| !stop.is_cancelled()) else { return };
        engine.restart_feed_of_replaced_table(&mut reader, &mut replacements);
        let read = engine.read_feed_once(&mut reader, start).await;
        // One message per outage.
        match &read {
            Err(error) if !failing => {
                gauge!("facetheory_feed_complete").set(0.0);
                tracing::warn!(%error, "the change feed cannot be read; pages are read again after metadata_max_age");
            }
            Ok(()) if failing => tracing::info!("the change feed is read again"),
            _ => {}
        }
        failing = read.is_err();
    }
}
