//! Freshness, leases and other rules of the protocol; `docs/internals/rules.md` lists the test of each rule.

use std::time::Duration;

use facetheory::protocol::{Acquire, Freshness, Generation, Lease, LeaseTerms, Lock, Meta, Published};
use facetheory::{History, Invalidated, InvalidationMode, Outcome, PageKey, Pages, Policy, Rendered};
use tabletheory::{Consistency, Table, Timestamp, Txn, Value, Write};

use crate::fixture::{NOW, SECOND, Test};
use crate::scripted::Fate;

#[test]
fn a_page_is_fresh_until_its_interval_is_over() {
    let meta = Meta::of(Generation::new("a.html", NOW, 60));
    for (now, state) in [(NOW, Freshness::Fresh), (NOW + 59, Freshness::Fresh), (NOW + 60, Freshness::Stale)]
    {
        assert_eq!(meta.freshness(Timestamp::from_seconds(now)), state);
    }
}

#[test]
fn a_lease_is_held_until_its_expiry_which_rounds_up() {
    let page = PageKey::new("/").expect("a page");
    for (millis, expires_at) in [(0, NOW + 8), (1, NOW + 9), (999, NOW + 9)] {
        let now = Timestamp::from_millis(NOW * 1000 + millis);
        let lease = Lease::starting(page.clone(), "token", now, &LeaseTerms::default());
        assert_eq!(lease.expires_at(), expires_at, "{millis} ms");
    }
    let lock = Lock::new("token", NOW);
    assert!(lock.is_held(Timestamp::from_millis(NOW * 1000 - 1)));
    assert!(!lock.is_held(Timestamp::from_seconds(NOW)));
}

#[tokio::test]
async fn the_ttl_of_a_lock_is_an_hour_after_its_expiry() {
    for t in Test::on_each_table() {
        let lease = t.acquire().await;
        let lock = t.store.lookup(&t.page).await.expect("no error").lock.expect("a lock");
        assert_eq!(lock.ttl, Some(lease.expires_at() + 3600));
        t.advance(SECOND);
        t.store.refresh(&lease).await.map(drop).expect("no error");
        let lock = t.store.lookup(&t.page).await.expect("no error").lock.expect("a lock");
        assert_eq!(lock.ttl, Some(lease.expires_at() + 1 + 3600), "a refresh moves both");
    }
}

#[tokio::test]
async fn a_lease_acquired_just_after_a_publish_is_released_without_a_render() {
    for t in Test::on_each_table() {
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "a", History::Latest).await, Published::Done);
        let pages = Pages::new(t.store.clone(), facetheory::Bodies::memory());
        let policy = Policy::every(Duration::from_secs(60));
        let outcome =
            pages.regenerate(&t.page, &policy, |_| async { Err::<Rendered, _>("it is fresh".into()) }).await;
        let Ok(Outcome::AlreadyFresh(meta)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(meta.generation.s3_key, "a");
        assert_eq!(t.store.lookup(&t.page).await.expect("no error").lock, None);
    }
}

#[tokio::test]
async fn a_publish_with_a_lost_response_that_was_overwritten_is_superseded() {
    for history in [History::Latest, History::Versions] {
        for t in Test::on_each_table() {
            let lease = t.acquire().await;
            let theirs = Write::put(t.page.meta(), Meta::of(t.rendered("theirs")).to_item());
            t.table.script(&[Fate::Delay]);
            t.table.commit(&Txn::from(theirs)).await.expect_err("it is delayed");
            // Our publish is applied, its response is lost, and then the other one arrives.
            t.table.script(&[Fate::LoseResponse, Fate::LoseResponse, Fate::LoseResponse, Fate::ComeLate]);
            let published = t.store.publish(&lease, &t.rendered("ours"), None, history, None).await;
            assert_eq!(published.expect("no error"), Published::Superseded);
            assert_eq!(t.meta().await.expect("a page").generation.s3_key, "theirs");
        }
    }
}

#[tokio::test]
async fn readers_that_know_only_two_attributes_see_an_invalidated_page_as_stale() {
    for strength in [InvalidationMode::Soft, InvalidationMode::Hard] {
        for t in Test::on_each_table() {
            let lease = t.acquire().await;
            assert_eq!(t.publish(&lease, "a", History::Versions).await, Published::Done);
            let done = t.store.invalidate(&t.page, strength).await.expect("no error");
            assert_eq!(done, Invalidated::Stale);
            let row = t.table.get(&t.page.meta(), Consistency::Strong).await.expect("a get").expect("a row");
            assert_eq!(row.get("revalidate_seconds"), Some(&Value::from(0)));
            assert_eq!(row.get("generated_at"), Some(&Value::from(NOW)));
        }
    }
}

#[tokio::test]
async fn a_page_that_appears_during_its_invalidation_is_invalidated_too() {
    for t in Test::on_each_table() {
        let first = Write::put(t.page.meta(), Meta::of(t.rendered("first")).to_item());
        t.table.script(&[Fate::Delay]);
        t.table.commit(&Txn::from(first)).await.expect_err("it is delayed");
        // No page was read, but one exists when the invalidation is committed.
        t.table.script(&[Fate::ComeLate]);
        let done = t.store.invalidate(&t.page, InvalidationMode::Soft).await.expect("no error");
        assert_eq!(done, Invalidated::Stale);
        assert_eq!(t.meta().await.expect("a page").freshness(t.store.now()), Freshness::Stale);
    }
}

#[tokio::test]
async fn a_refused_condition_is_not_retried() {
    for t in Test::on_each_table() {
        t.acquire().await;
        // Every commit after the first is lost, so a retry would fail.
        t.table.script(&[Fate::Pass, Fate::LoseRequest, Fate::LoseRequest, Fate::LoseRequest]);
        let held = t.store.try_acquire(&t.page).await.expect("one request");
        assert_eq!(held, Acquire::Held { until: NOW + 8 });
        t.table.script(&[]);
    }
}

#[test]
fn an_absent_value_of_a_render_is_an_absent_attribute() {
    let mut rendered = Rendered::html("x");
    rendered.content.content_type = Some(String::new());
    rendered.content.deployment = Some(String::new());
    let mut generation = Generation::new("a.html", NOW, 60);
    generation.content = rendered.content;
    generation.etag = Some(String::new());
    let item = Meta::of(generation).to_item();
    let names: Vec<&str> = item.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["generated_at", "http_status", "revalidate_seconds", "s3_key"]);
}
