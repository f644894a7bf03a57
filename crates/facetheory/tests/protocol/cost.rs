//! The cost of operations: requests to the table and objects written, counted and printed as a table.

use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::{Acquire, Freshness};
use facetheory::testing::CountedTable;
use facetheory::{Bodies, InvalidationMode, Outcome, PageKey, PageStore, Pages, Policy, Rendered, Tag};
use object_store::memory::InMemory;
use tabletheory::{ManualClock, Timestamp};

use crate::fixture::{NOW, count_objects};

/// Requests that read, requests that write, and rows written by them.
type Cost = (u32, u32, u32);

#[tokio::test]
async fn every_operation_costs_a_known_number_of_requests() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
    let table = Arc::new(CountedTable::new(clock.clone()));
    let objects = Arc::new(InMemory::new());
    let bodies = Bodies::over(objects.clone());
    let pages = Pages::new(PageStore::new(table.clone()), bodies);
    let page = PageKey::new("/").expect("a page");
    let policy = Policy::every(Duration::from_secs(60));
    let mut bill: Vec<(&str, Cost, usize, Cost, usize)> = Vec::new();
    let mut stored = 0;
    let mut note = async |what, expected: Cost, expected_objects: usize| {
        let new = count_objects(&objects).await - stored;
        stored += new;
        bill.push((what, table.take_all(), new, expected, expected_objects));
    };

    let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("one")) }).await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))));
    // The rows of its tags are read too: no earlier count of them is known.
    note("the first render", (2, 2, 3), 1).await;

    let view = pages.store().lookup(&page).await.expect("no error");
    assert_eq!(view.meta.expect("a page").freshness(pages.store().now()), Freshness::Fresh);
    note("a lookup of a fresh page", (1, 0, 0), 0).await;

    clock.advance(Duration::from_secs(100));
    let Acquire::Granted(lease) = pages.store().try_acquire(&page).await.expect("no error") else {
        panic!("free")
    };
    note("acquiring a lease", (0, 1, 1), 0).await;
    let refused = pages.store().try_acquire(&page).await.expect("no error");
    assert!(matches!(refused, Acquire::Held { until } if until > pages.store().now().seconds()));
    note("an attempt to acquire a lease that is held", (0, 1, 1), 0).await;
    let view = pages.store().lookup(&page).await.expect("no error");
    assert!(view.lock.expect("another worker regenerates it").is_held(pages.store().now()));
    note("a lookup of a stale page that another regenerates", (1, 0, 0), 0).await;
    pages.store().release(&lease).await.expect("no error");
    note("releasing a lease", (0, 1, 1), 0).await;

    let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("one")) }).await;
    assert!(matches!(outcome, Ok(Outcome::Unchanged(_))));
    note("a regeneration with an unchanged body", (1, 3, 3), 0).await;

    println!("{:<50} {:>6} {:>8} {:>13} {:>8}", "", "reads", "commits", "rows written", "objects");
    for (what, (reads, commits, writes), objects, ..) in &bill {
        println!("{what:<50} {reads:>6} {commits:>8} {writes:>13} {objects:>8}");
    }
    for (what, cost, objects, expected, expected_objects) in bill {
        assert_eq!((cost, objects), (expected, expected_objects), "{what}");
    }
}

#[tokio::test]
async fn an_invalidation_costs_one_write_however_many_pages_it_affects() {
    for count in [1, 10, 1000] {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        let table = Arc::new(CountedTable::new(clock.clone()));
        let pages = Pages::new(PageStore::new(table.clone()), Bodies::over(Arc::new(InMemory::new())));
        let page = |number: u32| {
            let path = format!("/docs/{number}");
            let page = PageKey::new(path.as_str()).expect("a page").at_path(&path);
            page.of_route("/docs/{number}").expect("a route")
        };
        let tagged = || {
            let mut rendered = Rendered::html("one");
            rendered.content.tags = vec!["news".to_owned()];
            rendered
        };
        let tags =
            [Tag::new("news"), Tag::path("/docs"), Tag::route("/docs/{number}"), Ok(Tag::everything())];
        for tag in tags.map(|tag| tag.expect("a tag")) {
            // A render within the margin of an invalidation is stale.
            clock.advance(Duration::from_secs(100));
            for number in 0..count {
                let policy = Policy::every(Duration::from_secs(60));
                let outcome = pages.regenerate(&page(number), &policy, |_| async { Ok(tagged()) }).await;
                assert!(matches!(outcome, Ok(Outcome::Published(_) | Outcome::Unchanged(_))), "{outcome:?}");
            }
            clock.advance(Duration::from_secs(10));
            table.take_all();
            pages.store().invalidate_tag(&tag, None).await.expect("no error");
            assert_eq!(table.take_all(), (0, 1, 1), "{tag:?} on {count} pages");
            pages.store().invalidate_tag_with(&tag, None, InvalidationMode::Hard).await.expect("no error");
            assert_eq!(table.take_all(), (1, 1, 1), "hard, {tag:?} on {count} pages");
            for number in 0..count {
                let page = page(number);
                let meta = pages.store().lookup(&page).await.expect("no error").meta.expect("a page");
                let freshness = pages.store().freshness(&page, &meta).await.expect("no error");
                assert_eq!(freshness, Freshness::MustNotServe, "{tag:?}");
            }
        }
    }
}
