//! What things cost: requests to the table and objects written, counted and printed as a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use facetheory::{Acquire, Bodies, Freshness, Outcome, PageKey, PageStore, Pages, Policy, Rendered, Tag};
use tabletheory::{
    Clock, Commit, Consistency, Item, Key, ManualClock, MemoryTable, Page, Query, Result, Scan, Table,
    Timestamp, Txn,
};

use crate::fixture::NOW;

/// A table that counts what is asked of it.
#[derive(Debug)]
struct Counted {
    table: MemoryTable,
    reads: AtomicU32,
    commits: AtomicU32,
    writes: AtomicU32,
}

/// Requests that read, requests that write, and rows written by them.
type Cost = (u32, u32, u32);

impl Counted {
    /// What was counted since it was last asked.
    fn take(&self) -> Cost {
        let take = |counter: &AtomicU32| counter.swap(0, Ordering::SeqCst);
        (take(&self.reads), take(&self.commits), take(&self.writes))
    }

    fn read(&self) {
        self.reads.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Table for Counted {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.read();
        self.table.get(key, consistency).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.read();
        self.table.batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.read();
        self.table.query(query).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.read();
        self.table.scan(scan).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.writes.fetch_add(u32::try_from(txn.writes().len()).expect("few"), Ordering::SeqCst);
        self.table.commit(txn).await
    }

    fn clock(&self) -> &dyn Clock {
        self.table.clock()
    }
}

#[tokio::test]
async fn everything_costs_what_it_must_and_no_more() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
    let table = Arc::new(Counted {
        table: MemoryTable::with_clock(clock.clone()),
        reads: AtomicU32::new(0),
        commits: AtomicU32::new(0),
        writes: AtomicU32::new(0),
    });
    let directory = tempfile::tempdir().expect("a directory");
    let objects = || {
        let pages = std::fs::read_dir(directory.path().join("isr")).into_iter().flatten().flatten();
        pages.map(|page| std::fs::read_dir(page.path()).expect("a page").count()).sum::<usize>()
    };
    let bodies = Bodies::files(directory.path()).expect("a store");
    let pages = Pages::new(PageStore::new(table.clone()), bodies);
    let page = PageKey::new("/").expect("a page");
    let policy = Policy::every(Duration::from_secs(60));
    let mut bill: Vec<(&str, Cost, usize, Cost, usize)> = Vec::new();
    let mut stored = 0;
    let mut note = |what, expected: Cost, expected_objects: usize| {
        let new = objects() - stored;
        stored += new;
        bill.push((what, table.take(), new, expected, expected_objects));
    };

    let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("one")) }).await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))));
    note("a regeneration", (1, 2, 3), 1);

    let view = pages.store().look(&page).await.expect("an answer");
    assert_eq!(view.meta.expect("a page").freshness(pages.store().now()), Freshness::Fresh);
    note("a look at a fresh page", (1, 0, 0), 0);

    clock.advance(Duration::from_secs(100));
    let Acquire::Granted(lease) = pages.store().try_acquire(&page).await.expect("an answer") else {
        panic!("free")
    };
    note("taking a lease", (0, 1, 1), 0);
    let view = pages.store().look(&page).await.expect("an answer");
    assert!(view.lock.expect("somebody renews it").is_held(pages.store().now()));
    note("a look at a stale page that another renews", (1, 0, 0), 0);
    pages.store().release(&lease).await.expect("an answer");
    note("giving a lease back", (0, 1, 1), 0);

    let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("one")) }).await;
    assert!(matches!(outcome, Ok(Outcome::Unchanged(_))));
    note("a regeneration that changes nothing", (1, 2, 3), 0);

    pages.store().invalidate_tag(&Tag::new("news").expect("a tag"), None).await.expect("an answer");
    note("the invalidation of a tag, on any number of pages", (0, 1, 1), 0);

    println!("{:<50} {:>6} {:>8} {:>13} {:>8}", "", "reads", "commits", "rows written", "objects");
    for (what, (reads, commits, writes), objects, ..) in &bill {
        println!("{what:<50} {reads:>6} {commits:>8} {writes:>13} {objects:>8}");
    }
    for (what, cost, objects, expected, expected_objects) in bill {
        assert_eq!((cost, objects), (expected, expected_objects), "{what}");
    }
}
