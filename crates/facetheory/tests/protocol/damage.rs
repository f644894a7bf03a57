//! Damaged rows: each is the problem of its page or tag alone, and is replaced.

use std::sync::Arc;

use facetheory::protocol::{Acquire, Begin, EpochTerms, Freshness, Generation, Meta, Published};
use facetheory::{History, Invalidated, InvalidationMode, Listing, PageKey, PageStore, RolledBack, Tag};
use tabletheory::{Item, Key, ManualClock, MemoryTable, SeededRandom, Table, Timestamp, Txn, Write};

use crate::fixture::{LEASE, NOW, SECOND};

const VERSIONED: History = History::Versions;

struct Damaged {
    table: Arc<MemoryTable>,
    clock: Arc<ManualClock>,
    store: PageStore,
    page: PageKey,
}

impl Damaged {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        let table = Arc::new(MemoryTable::with_clock(clock.clone()));
        let mut terms = EpochTerms::default();
        terms.max_age = std::time::Duration::ZERO;
        let store =
            PageStore::new(table.clone()).with_random(Arc::new(SeededRandom::new(7))).with_epoch_terms(terms);
        Damaged { table, clock, store, page: PageKey::new("/").expect("a page").at_path("/") }
    }

    fn damage(&self, key: &Key) {
        assert!(self.table.damage(key), "{key}");
    }

    async fn meta(&self) -> Option<Meta> {
        self.store.lookup(&self.page).await.expect("no error").meta
    }

    async fn publish(&self, body: &str, history: History) -> Published {
        let Acquire::Granted(lease) = self.store.try_acquire(&self.page).await.expect("no error") else {
            panic!("the lease is free");
        };
        let rendered = Generation::new(body, self.store.now().seconds(), 60);
        let seen = self.meta().await;
        self.store.publish(&lease, &rendered, seen.as_ref(), history, None).await.expect("no error")
    }

    async fn is_damaged(&self, key: &Key) -> bool {
        let row = self.table.get(key, tabletheory::Consistency::Strong).await.expect("a row");
        row.is_some_and(|row| row.is_damaged())
    }
}

#[tokio::test]
async fn a_page_whose_row_is_damaged_counts_as_missing_and_its_next_render_replaces_the_row() {
    for history in [History::Latest, VERSIONED] {
        let t = Damaged::new();
        for body in ["1.html", "2.html"] {
            assert_eq!(t.publish(body, history).await, Published::Done);
            t.clock.advance(SECOND);
        }
        t.damage(&t.page.meta());
        assert_eq!(t.meta().await, None);
        assert!(t.store.list(&Listing::new(10)).await.expect("no error").entries.is_empty());
        assert!(!t.store.unpin(&t.page).await.expect("no error"));
        assert_eq!(t.publish("3.html", history).await, Published::Done);
        assert_eq!(t.meta().await.expect("a page").generation.s3_key, "3.html");
        assert!(!t.is_damaged(&t.page.meta()).await);
        assert_eq!(t.store.list(&Listing::new(10)).await.expect("no error").entries.len(), 1);
    }
}

#[tokio::test]
async fn an_invalidation_of_a_page_whose_row_is_damaged_stops_renders_that_began_before() {
    for mode in [InvalidationMode::Soft, InvalidationMode::Hard] {
        let t = Damaged::new();
        assert_eq!(t.publish("1.html", History::Latest).await, Published::Done);
        let Acquire::Granted(lease) = t.store.try_acquire(&t.page).await.expect("no error") else { panic!() };
        t.damage(&t.page.meta());
        assert_eq!(t.store.invalidate(&t.page, mode).await.expect("no error"), Invalidated::Absent);
        let late = Generation::new("late.html", NOW, 60);
        let published = t.store.publish(&lease, &late, None, History::Latest, None).await.expect("no error");
        assert_eq!(published, Published::Lost);
        assert_eq!(t.meta().await, None);
    }
}

/// Its token cannot be read, so its holder can neither publish nor extend it.
#[tokio::test]
async fn a_lease_whose_row_is_damaged_is_granted_to_another_worker_and_its_holder_cannot_publish() {
    let t = Damaged::new();
    let Acquire::Granted(first) = t.store.try_acquire(&t.page).await.expect("no error") else { panic!() };
    t.damage(&t.page.lock());
    assert!(t.store.lookup(&t.page).await.expect("no error").lock.is_none());
    assert_eq!(t.store.refresh(&first).await.expect("no error"), facetheory::protocol::Refresh::Lost);
    let Acquire::Granted(second) = t.store.try_acquire(&t.page).await.expect("no error") else {
        panic!("it counts as free");
    };
    let Acquire::Held { .. } = t.store.try_acquire(&t.page).await.expect("no error") else {
        panic!("one worker has it");
    };
    for (lease, body, expected) in
        [(&first, "first.html", Published::Lost), (&second, "second.html", Published::Done)]
    {
        let rendered = Generation::new(body, NOW, 60);
        let published = t.store.publish(lease, &rendered, None, History::Latest, None).await;
        assert_eq!(published.expect("no error"), expected, "{body}");
    }
    assert_eq!(t.meta().await.expect("a page").generation.s3_key, "second.html");
    t.clock.advance(LEASE);
}

#[tokio::test]
async fn a_damaged_tag_row_counts_as_invalidated_now_and_is_replaced() {
    let t = Damaged::new();
    let tag = Tag::everything();
    t.store.invalidate_tag(&tag, None).await.expect("no error");
    t.clock.advance(100 * SECOND);
    assert_eq!(t.publish("1.html", History::Latest).await, Published::Done);
    let freshness = async || {
        let meta = t.meta().await.expect("a page");
        t.store.freshness(&t.page, &meta).await.expect("no error")
    };
    assert_eq!(freshness().await, Freshness::Fresh);
    t.damage(&tag.key(None));
    assert_eq!(freshness().await, Freshness::Stale, "the invalidation in the row may have been a later one");
    assert!(!t.is_damaged(&tag.key(None)).await);
    assert_eq!(freshness().await, Freshness::Stale, "the new row says the same");
    t.clock.advance(5 * SECOND);
    assert_eq!(t.publish("2.html", History::Latest).await, Published::Done);
    assert_eq!(freshness().await, Freshness::Fresh, "pages that are rendered afterwards are not affected");
    // An invalidation works on a damaged row too.
    t.damage(&tag.key(None));
    t.store.invalidate_tag(&tag, None).await.expect("no error");
    assert!(!t.is_damaged(&tag.key(None)).await);
    assert_eq!(freshness().await, Freshness::Stale);
}

#[tokio::test]
async fn a_damaged_version_counts_as_deleted_and_the_others_are_listed() {
    let t = Damaged::new();
    for body in ["1.html", "2.html", "3.html"] {
        assert_eq!(t.publish(body, VERSIONED).await, Published::Done);
        t.clock.advance(SECOND);
    }
    let versions = t.store.versions(&t.page, 10).await.expect("no error");
    assert_eq!(versions.len(), 3);
    let damaged = versions[1].0.as_str();
    t.damage(&t.page.meta().sibling(damaged));
    let left: Vec<String> =
        t.store.versions(&t.page, 10).await.expect("no error").into_iter().map(|(sk, _)| sk).collect();
    assert_eq!(left, [versions[0].0.as_str(), versions[2].0.as_str()]);
    assert_eq!(t.store.version(&t.page, damaged).await.expect("no error"), None);
    let rolled_back = t.store.roll_back(&t.page, damaged, SECOND).await.expect("no error");
    assert_eq!(rolled_back, RolledBack::NoSuchVersion);
    assert_eq!(t.store.roll_back(&t.page, &left[1], SECOND).await.expect("no error"), RolledBack::Done);
    let delete = Txn::from(Write::delete(t.page.meta().sibling(damaged)));
    assert!(t.table.commit(&delete).await.expect("no error").is_done());
}

#[tokio::test]
async fn a_request_whose_row_is_damaged_is_started_again() {
    let t = Damaged::new();
    let begin = async || t.store.begin_request(&t.page, "order-7", "hash").await.expect("no error");
    let Begin::Started { lease, .. } = begin().await else { panic!("a new request") };
    let row = t.page.request("order-7").expect("a key");
    t.damage(&row);
    assert!(matches!(begin().await, Begin::Held { .. }), "the first worker has the lease");
    t.store.release(&lease).await.expect("no error");
    assert!(matches!(begin().await, Begin::Started { .. }));
    assert!(!t.is_damaged(&row).await);
}

#[tokio::test]
async fn good_rows_are_read_beside_damaged_ones() {
    let t = Damaged::new();
    assert_eq!(t.publish("1.html", History::Latest).await, Published::Done);
    // Between `LOCK` and `META`, where other services may store rows.
    let foreign = t.page.meta().sibling("M");
    assert!(
        t.table.commit(&Txn::from(Write::put(foreign.clone(), Item::new()))).await.expect("a row").is_done()
    );
    t.damage(&foreign);
    assert_eq!(t.meta().await.expect("a page").generation.s3_key, "1.html");
    let tags = [Tag::new("damaged").expect("a tag"), Tag::new("good").expect("a tag")];
    for tag in &tags {
        t.store.invalidate_tag(tag, None).await.expect("no error");
    }
    t.damage(&tags[0].key(None));
    assert_eq!(t.store.epochs(&tags, None).await.expect("no error").len(), 2);
}
