//! Versions, rollback and pins.

use std::time::Duration;

use facetheory::protocol::{Freshness, Published};
use facetheory::{History, Invalidated, InvalidationMode, Kind, Retention, RolledBack};

use crate::fixture::{SECOND, Test};
use crate::scripted::Fate;

const PIN: Duration = Duration::from_secs(3600);

/// Publishes these bodies one after the other, and returns the sort keys of their versions.
async fn publish_versions(t: &Test, bodies: &[&str]) -> Vec<String> {
    for body in bodies {
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, body, History::Versions).await, Published::Done);
        t.advance(SECOND);
    }
    let mut versions = t.store.versions(&t.page, 10).await.expect("no error");
    versions.reverse();
    versions.into_iter().map(|(sk, _)| sk).collect()
}

#[tokio::test]
async fn versions_are_listed_newest_first() {
    for t in Test::on_each_table() {
        publish_versions(&t, &["a", "b", "c"]).await;
        let versions = t.store.versions(&t.page, 2).await.expect("no error");
        let bodies: Vec<&str> =
            versions.iter().map(|(_, version)| version.generation.s3_key.as_str()).collect();
        assert_eq!(bodies, ["c", "b"]);
    }
}

#[tokio::test]
async fn a_page_that_was_rolled_back_is_pinned() {
    for t in Test::on_each_table() {
        let versions = publish_versions(&t, &["good", "bad"]).await;
        let in_flight = t.acquire().await;
        let done = t.store.roll_back(&t.page, &versions[0], PIN).await.expect("no error");
        assert_eq!(done, RolledBack::Done);
        assert_eq!(t.publish(&in_flight, "bad again", History::Versions).await, Published::Lost);
        let meta = t.meta().await.expect("a page");
        assert_eq!(meta.generation.s3_key, "good");
        assert_eq!((meta.version, meta.current_sk.as_ref()), (Some(3), Some(&versions[0])));
        t.advance(PIN - SECOND);
        assert_eq!(meta.freshness(t.store.now()), Freshness::Fresh, "for readers without pins, too");
        assert_eq!(
            t.store.invalidate(&t.page, InvalidationMode::Soft).await.expect("no error"),
            Invalidated::Pinned
        );
        t.advance(SECOND);
        assert_eq!(t.meta().await.expect("a page").freshness(t.store.now()), Freshness::Stale);
        assert_eq!(
            t.store.invalidate(&t.page, InvalidationMode::Soft).await.expect("no error"),
            Invalidated::Stale
        );
    }
}

#[tokio::test]
async fn a_pin_ends_by_unpinning_and_by_hard_invalidation() {
    for t in Test::on_each_table() {
        let versions = publish_versions(&t, &["good", "bad"]).await;
        for hard in [false, true] {
            let done = t.store.roll_back(&t.page, &versions[0], PIN).await.expect("no error");
            assert_eq!(done, RolledBack::Done);
            if hard {
                let done = t.store.invalidate(&t.page, InvalidationMode::Hard).await.expect("no error");
                assert_eq!(done, Invalidated::Stale);
            } else {
                assert!(t.store.unpin(&t.page).await.expect("no error"));
                assert!(!t.store.unpin(&t.page).await.expect("no error"), "the pin is gone");
            }
            let meta = t.meta().await.expect("a page");
            assert!(!meta.is_pinned(t.store.now()));
            assert_ne!(meta.freshness(t.store.now()), Freshness::Fresh);
        }
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "better", History::Versions).await, Published::Done);
        assert_eq!(t.meta().await.expect("a page").generation.s3_key, "better");
    }
}

#[tokio::test]
async fn a_version_that_does_not_exist_cannot_be_rolled_back_to() {
    for t in Test::on_each_table() {
        publish_versions(&t, &["a"]).await;
        let gone = t.store.roll_back(&t.page, "VER#01AAAAAAAAAAAAAAAAAAAAAAAA", PIN).await.expect("no error");
        assert_eq!(gone, RolledBack::NoSuchVersion);
        for sk in ["LOCK", "META", "", "ver#1"] {
            let error = t.store.roll_back(&t.page, sk, PIN).await.expect_err("not a version");
            assert_eq!(error.kind(), Kind::Invalid);
        }
        assert_eq!(t.meta().await.expect("a page").version, Some(1));
    }
}

#[tokio::test]
async fn a_rollback_with_a_lost_response_is_applied_once() {
    for t in Test::on_each_table() {
        let versions = publish_versions(&t, &["good", "bad"]).await;
        t.table.script(&[Fate::LoseResponse, Fate::LoseResponse, Fate::Pass]);
        let done = t.store.roll_back(&t.page, &versions[0], PIN).await.expect("no error");
        assert_eq!(done, RolledBack::Done);
        assert_eq!(t.meta().await.expect("a page").version, Some(3));
    }
}

#[tokio::test]
async fn gc_retains_the_newest_versions_and_the_current_one() {
    for t in Test::on_each_table() {
        let versions = publish_versions(&t, &["a", "b", "c", "d", "e"]).await;
        let keep_four = Retention::newest(4);
        let none = t.store.gc_versions(&t.page, keep_four).await.expect("no error");
        assert!(none.is_empty(), "the current version does not count");
        let done = t.store.roll_back(&t.page, &versions[0], PIN).await.expect("no error");
        assert_eq!(done, RolledBack::Done);
        let keep_two = Retention::newest(2);
        let bodies = t.store.gc_versions(&t.page, keep_two).await.expect("no error");
        assert_eq!(bodies, ["c", "b"], "newest first; the body of the current version is not deleted");
        let left = t.store.versions(&t.page, 10).await.expect("no error");
        let left: Vec<&str> = left.iter().map(|(_, version)| version.generation.s3_key.as_str()).collect();
        assert_eq!(left, ["e", "d", "a"]);
        let mut young = Retention::newest(2);
        young.oldest = Some(t.store.now().seconds());
        assert_eq!(t.store.gc_versions(&t.page, young).await.expect("no error"), ["e", "d"]);
        assert_eq!(t.meta().await.expect("a page").generation.s3_key, "a");
    }
}

#[tokio::test]
async fn a_rollback_without_a_pin_does_not_undo_an_invalidation() {
    for t in Test::on_each_table() {
        let versions = publish_versions(&t, &["young"]).await;
        let invalidated = t.store.invalidate(&t.page, InvalidationMode::Soft).await.expect("no error");
        assert_eq!(invalidated, Invalidated::Stale);
        let back = t.store.roll_back(&t.page, &versions[0], Duration::ZERO).await.expect("no error");
        assert_eq!(back, RolledBack::Done);
        assert_eq!(t.meta().await.expect("a page").freshness(t.store.now()), Freshness::Stale);
    }
}

/// A rollback whose requests are delayed until `come_late`.
async fn roll_back_without_response(t: &Test, version_sk: &str) {
    t.table.script(&[Fate::Delay; 3]);
    let error = t.store.roll_back(&t.page, version_sk, PIN).await.expect_err("no response");
    assert_eq!(error.kind(), Kind::Unknown);
}

#[tokio::test]
async fn a_late_rollback_replaces_only_the_page_that_its_operator_saw() {
    for t in Test::on_each_table() {
        let versions = publish_versions(&t, &["good", "bad"]).await;
        roll_back_without_response(&t, &versions[0]).await;
        publish_versions(&t, &["better"]).await;
        t.table.come_late().await;
        let meta = t.meta().await.expect("a page");
        assert_eq!((meta.generation.s3_key.as_str(), meta.version), ("better", Some(3)));
    }
}

#[tokio::test]
async fn a_late_rollback_does_not_bring_a_deleted_version_back() {
    for t in Test::on_each_table() {
        let versions = publish_versions(&t, &["good", "bad"]).await;
        roll_back_without_response(&t, &versions[0]).await;
        let none = Retention::newest(0);
        assert_eq!(t.store.gc_versions(&t.page, none).await.expect("no error"), ["good"]);
        t.table.come_late().await;
        assert_eq!(t.meta().await.expect("a page").generation.s3_key, "bad");
        assert!(!t.rows().await.contains(&versions[0]));
    }
}

#[tokio::test]
async fn a_late_soft_invalidation_does_not_end_a_pin() {
    for t in Test::on_each_table() {
        let versions = publish_versions(&t, &["good", "bad"]).await;
        t.table.script(&[Fate::Delay; 3]);
        let error = t.store.invalidate(&t.page, InvalidationMode::Soft).await.expect_err("no response");
        assert_eq!(error.kind(), Kind::Unknown);
        let done = t.store.roll_back(&t.page, &versions[0], PIN).await.expect("no error");
        assert_eq!(done, RolledBack::Done);
        t.table.come_late().await;
        assert_eq!(t.meta().await.expect("a page").freshness(t.store.now()), Freshness::Fresh);
    }
}
