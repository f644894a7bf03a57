//! The `ttl` of rows: all have one but a current version.

use std::time::Duration;

use facetheory::protocol::{Published, Ttls};
use facetheory::{History, RolledBack};
use tabletheory::{Table as _, Txn, Write};

use crate::fixture::{NOW, SECOND, Test};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

fn forgetful(t: Test) -> Test {
    let mut ttls = Ttls::default();
    (ttls.page, ttls.superseded) = (Some(WEEK), Some(WEEK));
    t.with(|store| store.with_ttls(ttls))
}

/// The `ttl` of each version, oldest first.
async fn ttls(t: &Test) -> Vec<Option<i64>> {
    let versions = t.store.versions(&t.page, 10).await.expect("no error");
    versions.iter().rev().map(|(_, version)| version.ttl).collect()
}

async fn publish(t: &Test, body: &str, history: History) -> Published {
    let lease = t.acquire().await;
    t.publish(&lease, body, history).await
}

#[tokio::test]
async fn a_version_gets_a_ttl_when_another_replaces_it() {
    for t in Test::on_each_table().map(forgetful) {
        assert_eq!(publish(&t, "a", History::Versions).await, Published::Done);
        assert_eq!(ttls(&t).await, [None], "the current version has no ttl");
        t.advance(SECOND);
        assert_eq!(publish(&t, "b", History::Versions).await, Published::Done);
        assert_eq!(ttls(&t).await, [Some(NOW + 1 + 604_800), None]);
        t.advance(SECOND);
        assert_eq!(publish(&t, "c", History::Versions).await, Published::Done);
        assert_eq!(ttls(&t).await, [Some(NOW + 1 + 604_800), Some(NOW + 2 + 604_800), None]);
    }
}

async fn publish_two_versions(t: &Test) {
    for body in ["a", "b"] {
        assert_eq!(publish(t, body, History::Versions).await, Published::Done);
        t.advance(SECOND);
    }
}

#[tokio::test]
async fn a_version_that_is_current_again_loses_its_ttl() {
    for t in Test::on_each_table().map(forgetful) {
        publish_two_versions(&t).await;
        let versions = t.store.versions(&t.page, 10).await.expect("no error");
        let (oldest, _) = versions.last().expect("two versions");
        for _ in 0..2 {
            let done = t.store.roll_back(&t.page, oldest, WEEK).await.expect("no error");
            assert_eq!(done, RolledBack::Done);
            assert_eq!(ttls(&t).await, [None, Some(NOW + 2 + 604_800)], "also if it is current already");
        }
        let ttl = t.meta().await.expect("a page").ttl;
        assert_eq!(ttl, Some(NOW + 2 + 604_800 * 11 / 10), "a page is stored for as long as it is pinned");
    }
}

#[tokio::test]
async fn a_page_is_published_and_rolled_back_even_if_its_current_version_was_deleted() {
    for t in Test::on_each_table().map(forgetful) {
        publish_two_versions(&t).await;
        let delete_served = async || {
            let current = t.meta().await.and_then(|meta| meta.current_sk).expect("a current version");
            let delete = Write::delete(t.page.meta().sibling(current));
            assert!(t.table.commit(&Txn::from(delete)).await.expect("no error").is_done());
        };
        delete_served().await;
        let versions = t.store.versions(&t.page, 10).await.expect("no error");
        let done = t.store.roll_back(&t.page, &versions[0].0, SECOND).await.expect("no error");
        assert_eq!(done, RolledBack::Done);
        t.advance(SECOND);
        delete_served().await;
        assert_eq!(publish(&t, "c", History::Versions).await, Published::Done);
        assert_eq!(t.rows().await.len(), 2, "META and the new version; no deleted version came back");
        assert_eq!(t.meta().await.expect("a page").version, Some(4));
    }
}

#[tokio::test]
async fn the_ttl_of_a_page_is_its_retention_and_a_tenth_after_its_last_use() {
    for t in Test::on_each_table().map(forgetful) {
        assert_eq!(publish(&t, "a", History::Latest).await, Published::Done);
        assert_eq!(t.meta().await.expect("a page").ttl, Some(NOW + 604_800 * 11 / 10));
        t.advance(SECOND);
        assert_eq!(publish(&t, "b", History::Versions).await, Published::Done);
        let meta = t.meta().await.expect("a page");
        assert_eq!((meta.ttl, meta.used_at), (Some(NOW + 1 + 604_800 * 11 / 10), Some(NOW + 1)));
    }
    for t in Test::on_each_table() {
        assert_eq!(publish(&t, "a", History::Latest).await, Published::Done);
        assert_eq!(t.meta().await.expect("a page").ttl, Some(NOW + 33 * 86_400), "30 days by default");
    }
}

#[tokio::test]
async fn a_page_is_never_stored_for_less_than_it_is_fresh() {
    for t in Test::on_each_table() {
        let mut ttls = Ttls::default();
        ttls.page = Some(SECOND);
        let t = t.with(|store| store.with_ttls(ttls));
        assert_eq!(publish(&t, "a", History::Latest).await, Published::Done);
        assert_eq!(t.meta().await.expect("a page").ttl, Some(NOW + 66), "it is fresh for 60 s");
    }
}

#[tokio::test]
async fn the_row_of_a_tag_outlives_every_page_that_it_may_concern() {
    for t in Test::on_each_table() {
        let tag = facetheory::Tag::new("news").expect("a tag");
        t.store.invalidate_tag(&tag, None).await.expect("no error");
        let row = t.table.get(&tag.key(None), tabletheory::Consistency::Strong).await.expect("no error");
        let ttl = row.expect("a row").get("ttl").and_then(tabletheory::Value::as_i64);
        assert_eq!(ttl, Some(NOW + 100 * 86_400));
        // A page of that time is stale before the row is deleted, however long its interval is.
        let mut generation = facetheory::protocol::Generation::new("a.html", NOW + 10, i64::from(u32::MAX));
        generation.content.tags = vec!["news".to_owned()];
        let meta = facetheory::protocol::Meta::of(generation);
        t.advance(Duration::from_secs(99 * 86_400));
        assert_eq!(t.freshness(&meta).await, facetheory::protocol::Freshness::Fresh);
        t.advance(Duration::from_secs(10));
        assert_eq!(t.freshness(&meta).await, facetheory::protocol::Freshness::Stale);
    }
}
