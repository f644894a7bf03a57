//! The limits of the change feed: what a process does if it cannot know every change from the feed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use facetheory::protocol::FeedEntry;
use facetheory::testing::{self, CountedTable, RuntimeClock};
use facetheory::{Bodies, InvalidationMode, PageKey, Policy, Rendered, State};
use tabletheory::{Clock, Key, Table as _, Timestamp, Txn, Write};

use crate::fixture::{INTERVAL, SECOND, Site, exclusive, served};

const MINUTE: Duration = Duration::from_secs(60);
/// How long the page is fresh.
const FRESH_FOR: Duration = Duration::from_secs(10 * 3600);
/// A page that was not read for this long is read again although the feed does not name it.
const CHECK_AFTER: Duration = Duration::from_secs(3600);
/// At most one row is read again for this reason within this time, on average.
const PAUSE_PER_ROW: Duration = Duration::from_secs(1);
/// The rows of the feed that a process reads at once.
const MAX_ROWS: usize = 2_000;
/// The changes that a process remembers.
const MAX_CHANGES: usize = 100_000;

/// Whether the page would be served from memory without reading the table.
fn is_current(site: &Site) -> bool {
    site.isr.get_fresh(&site.page, &site.policy).is_some()
}

/// Appends this many entries about other pages, each with so many changes, and lets the process read them.
async fn append(site: &Site, entries: usize, changes: usize) {
    let first = site.table.clock().now().millis();
    for number in 0..entries {
        let sequence = first + i64::try_from(number).expect("few");
        let mut entry = FeedEntry::default();
        entry.changed = (0..changes).map(|change| format!("{sequence:015}{change:09}")).collect();
        let put = Write::put(Key::new("FEED#0", format!("{sequence:015}-{:016x}", 0)), entry.to_item());
        assert!(site.table.commit(&Txn::from(put)).await.expect("no error").is_done());
    }
    tokio::time::sleep(SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_never_announced_is_noticed_by_the_hourly_check() {
    let site = Site::on_feed(FRESH_FOR).await;
    // A process that does not write the feed, like one that was killed between its change and the entry.
    let silent = site.another();
    silent.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    tokio::time::sleep(CHECK_AFTER - MINUTE).await;
    assert_eq!(site.get("two").await, served(State::Hit, "one"));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(site.get("two").await, served(State::Miss, "two"));
}

#[tokio::test(start_paused = true)]
async fn the_hourly_check_reads_one_row_in_a_second() {
    const PAGES: usize = 10;
    for tags in [0, 10, 50] {
        check_pages(PAGES, tags).await;
    }
}

/// Pages with so many tags each are checked at a rate that depends on the number of their rows.
async fn check_pages(number: usize, tags: usize) {
    let site = Site::built(exclusive);
    let policy = Policy::every(600 * INTERVAL);
    let pages: Vec<PageKey> =
        (0..number).map(|number| PageKey::new(format!("/{number}")).expect("a page")).collect();
    tokio::time::sleep(SECOND).await;
    for page in &pages {
        let mut rendered = Rendered::html("a page");
        rendered.content.tags = (0..tags).map(|tag| format!("tag-{tag}")).collect();
        let render = |_| async { Ok(rendered) };
        let _page = site.isr.get(page, &policy, render).await.expect("a result");
    }
    // `META`, the tags, and the tag that every page has.
    let rows = u32::try_from(tags + 2).expect("few");
    let current = || pages.iter().filter(|page| site.isr.get_fresh(page, &policy).is_some()).count();
    tokio::time::sleep(CHECK_AFTER - MINUTE).await;
    assert_eq!(current(), number);
    tokio::time::sleep(MINUTE).await;
    for checked in 1..=number {
        assert_eq!(current(), number - checked);
        tokio::time::sleep(rows * PAUSE_PER_ROW - SECOND / 10).await;
        assert_eq!(current(), number - checked, "no other page is read again so soon");
        tokio::time::sleep(SECOND / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_more_changes_than_a_process_remembers_every_page_is_read_again_once() {
    const PER_ENTRY: usize = 400;
    let site = Site::on_feed(FRESH_FOR).await;
    append(&site, MAX_CHANGES / PER_ENTRY, PER_ENTRY).await;
    assert!(is_current(&site), "all changes are about other pages");
    append(&site, 1, 1).await;
    assert!(!is_current(&site), "one change more");
    assert_eq!(site.get("two").await, served(State::Hit, "one"), "it was read again");
    tokio::time::sleep(MINUTE).await;
    assert!(is_current(&site), "once");
    append(&site, 1, 1).await;
    assert!(is_current(&site), "the process remembers changes again");
}

#[tokio::test(start_paused = true)]
async fn with_more_entries_than_one_read_may_have_every_page_is_read_again_once() {
    let site = Site::on_feed(FRESH_FOR).await;
    // The first entry ends the read, since the process has read up to it.
    append(&site, 1, 1).await;
    tokio::time::sleep(MINUTE).await;
    append(&site, MAX_ROWS - 1, 1).await;
    assert!(is_current(&site), "all entries are about other pages");
    tokio::time::sleep(MINUTE).await;
    append(&site, MAX_ROWS, 1).await;
    assert!(!is_current(&site), "an entry more may be missing");
    assert_eq!(site.get("two").await, served(State::Hit, "one"), "it was read again");
    tokio::time::sleep(MINUTE).await;
    assert!(is_current(&site), "once");
}

/// The number of times that the page was not current, if it is looked at each second, and this many entries per second are
/// appended in between.
async fn gaps(site: &Site, per_second: usize, seconds: usize) -> usize {
    let mut gaps = 0;
    for _ in 0..seconds {
        append(site, per_second, 1).await;
        if !is_current(site) {
            gaps += 1;
            assert_eq!(site.get("two").await, served(State::Hit, "one"), "it was read again");
        }
    }
    gaps
}

#[tokio::test(start_paused = true)]
async fn under_a_sustained_load_a_process_follows_180_entries_per_second() {
    const SECONDS: usize = 60;
    let site = Site::on_feed(FRESH_FOR).await;
    assert_eq!(gaps(&site, 180, SECONDS).await, 0, "every read finds all entries again");
}

#[tokio::test(start_paused = true)]
async fn above_its_limit_a_process_reads_pages_again_and_misses_no_change() {
    const SECONDS: usize = 60;
    let site = Site::on_feed(FRESH_FOR).await;
    let other = site.another_built(exclusive);
    let gaps = gaps(&site, 300, SECONDS).await;
    println!("{gaps} gaps in {SECONDS} s");
    assert!((1..=SECONDS / 5).contains(&gaps), "{gaps} gaps: once per several seconds");
    for body in ["two", "three", "four"] {
        other.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
        append(&site, 300, 1).await;
        assert_eq!(site.get(body).await, served(State::Miss, body), "the change is known");
    }
}

/// A clock that follows the runtime until it is set.
#[derive(Debug)]
struct SteppedClock {
    runtime: RuntimeClock,
    ahead_millis: AtomicI64,
}

impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        self.runtime.ahead_by(self.ahead_millis.load(Ordering::SeqCst)).now()
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_does_not_make_an_old_read_of_the_feed_recent() {
    let runtime = RuntimeClock::starting_at(testing::Site::START);
    let clock = Arc::new(SteppedClock { runtime, ahead_millis: AtomicI64::new(0) });
    let table = Arc::new(CountedTable::new(clock.clone()));
    let process = testing::Site::over(table, Bodies::memory(), |store| store, exclusive);
    let (page, policy) = (PageKey::new("/").expect("a page"), Policy::every(600 * INTERVAL));
    tokio::time::sleep(SECOND).await;
    let render = |_| async { Ok(Rendered::html("one")) };
    let _page = process.isr.get(&page, &policy, render).await.expect("a result");
    let is_served = || process.isr.get_fresh(&page, &policy).is_some();
    tokio::time::sleep(MINUTE).await;
    assert!(is_served());

    process.table.break_down();
    tokio::time::sleep(10 * SECOND).await;
    assert!(!is_served(), "the feed has not been read for ten seconds");
    for millis in (9_000..11_000).step_by(100) {
        clock.ahead_millis.store(-millis, Ordering::SeqCst);
        assert!(!is_served(), "the clock was set back by {millis} ms");
    }
}
