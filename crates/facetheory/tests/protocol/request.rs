//! Requests: a request is executed once, however often it is delivered.

use std::time::Duration;

use facetheory::protocol::{Begin, Claim, Lease, Published, Request, RequestStatus};
use facetheory::{History, Kind};
use tabletheory::{Consistency, Item, Scan, Table, Txn, Value, Write};

use crate::fixture::{LEASE, NOW, Test};
use crate::scripted::Fate;

const KEY: &str = "order-7";
const HASH: &str = "hash";
/// The hash of another request, which is as long as hashes are.
const OTHER_HASH: &str = "hush";

async fn begin(t: &Test, hash: &str) -> Begin {
    t.store.begin_request(&t.page, KEY, hash).await.expect("no error")
}

async fn started(t: &Test) -> (Lease, Claim) {
    match begin(t, HASH).await {
        Begin::Started { lease, claim } => (lease, claim),
        other => panic!("{other:?}"),
    }
}

async fn row(t: &Test) -> Option<Request> {
    let key = t.page.request(KEY).expect("a key");
    let item = t.table.get(&key, Consistency::Strong).await.expect("a get");
    item.map(|item| Request::read(&item).expect("a request"))
}

/// A request of another language, with only the required attributes.
async fn put_foreign(t: &Test, status: &str) {
    let item = Item::from([("request_hash", Value::from(HASH)), ("status", status.into())]);
    let put = Write::put(t.page.request(KEY).expect("a key"), item);
    assert!(t.table.commit(&Txn::from(put)).await.expect("a put").is_done());
}

#[tokio::test]
async fn a_request_is_executed_once_and_then_replayed() {
    for history in [History::Latest, History::Versions] {
        for t in Test::on_each_table() {
            let (lease, claim) = started(&t).await;
            assert_eq!(begin(&t, HASH).await, Begin::InProgress { until: Some(NOW + 300) });
            let page = facetheory::protocol::Generation::new("a", NOW, 0);
            let done = t.store.publish(&lease, &page, None, history, Some(&claim)).await;
            assert_eq!(done.expect("no error"), Published::Done);
            assert_eq!(begin(&t, HASH).await, Begin::Replayed { s3_key: Some("a".into()) });
            let row = row(&t).await.expect("a row");
            assert_eq!((row.status, row.in_progress_until), (RequestStatus::Completed, None));
            assert!(!t.rows().await.contains(&"LOCK".to_owned()));
        }
    }
}

#[tokio::test]
async fn the_same_key_with_another_request_is_an_error_on_every_path_and_writes_nothing() {
    for t in Test::on_each_table() {
        let (lease, claim) = started(&t).await;
        assert_refused_without_a_write(&t, "while it is in progress").await;
        let fresh = facetheory::protocol::Generation::new("a", NOW, 60);
        let done = t.store.publish(&lease, &fresh, None, History::Latest, Some(&claim)).await;
        assert_eq!(done.expect("no error"), Published::Done);
        assert_refused_without_a_write(&t, "while the page is fresh").await;
        t.advance(Duration::from_secs(100));
        assert_refused_without_a_write(&t, "when the page is stale").await;
        put_foreign(&t, "FAILED").await;
        assert_refused_without_a_write(&t, "when the request has failed").await;
        put_foreign(&t, "STARTED").await;
        assert_refused_without_a_write(&t, "when another language has started it, and the lease is free")
            .await;
    }
    for t in Test::on_each_table() {
        let _crashed = started(&t).await;
        t.advance(LEASE + Duration::from_secs(300));
        assert_refused_without_a_write(&t, "when its worker has crashed").await;
    }
}

/// Fails unless another request with the same key is an error that leaves every row as it is.
async fn assert_refused_without_a_write(t: &Test, when: &str) {
    let rows = async || t.table.scan(&Scan::new()).await.expect("a scan").items;
    let before = rows().await;
    assert_eq!(begin(t, OTHER_HASH).await, Begin::OtherRequest, "{when}");
    assert_eq!(rows().await, before, "{when}");
}

#[tokio::test]
async fn a_fresh_page_needs_no_request() {
    for t in Test::on_each_table() {
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "a", History::Latest).await, Published::Done);
        assert_eq!(begin(&t, HASH).await, Begin::Fresh);
        assert_eq!(row(&t).await, None);
    }
}

#[tokio::test]
async fn a_request_for_a_fresh_page_is_not_started_even_if_its_worker_crashed() {
    for t in Test::on_each_table() {
        let _crashed = started(&t).await;
        t.advance(LEASE);
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "a", History::Latest).await, Published::Done);
        assert_eq!(begin(&t, HASH).await, Begin::Fresh);
        assert_eq!(begin(&t, OTHER_HASH).await, Begin::OtherRequest);
        t.advance(Duration::from_secs(60));
        assert!(matches!(begin(&t, HASH).await, Begin::InProgress { .. }), "stale again");
    }
}

#[tokio::test]
async fn a_failed_request_may_be_retried() {
    for t in Test::on_each_table() {
        let (lease, claim) = started(&t).await;
        t.store.fail_request(&lease, &claim).await.expect("no error");
        assert_eq!(row(&t).await.expect("a row").status, RequestStatus::Failed);
        let (again, _) = started(&t).await;
        assert_ne!(again.token(), lease.token());
        // The first worker can no longer complete or fail it.
        t.store.fail_request(&lease, &claim).await.expect("no error");
        assert_eq!(row(&t).await.expect("a row").status, RequestStatus::Started);
    }
}

#[tokio::test]
async fn a_crashed_worker_is_replaced_and_can_no_longer_complete_its_request() {
    for t in Test::on_each_table() {
        let (crashed, its_claim) = started(&t).await;
        t.advance(LEASE);
        // The lease is free, but the request is in progress for longer.
        assert!(matches!(begin(&t, HASH).await, Begin::InProgress { .. }));
        t.advance(Duration::from_secs(300));
        let (lease, claim) = started(&t).await;
        let page = |body: &str| facetheory::protocol::Generation::new(body, NOW, 0);
        let late = t.store.publish(&crashed, &page("late"), None, History::Latest, Some(&its_claim)).await;
        assert_eq!(late.expect("no error"), Published::Lost);
        let done = t.store.publish(&lease, &page("good"), None, History::Latest, Some(&claim)).await;
        assert_eq!(done.expect("no error"), Published::Done);
        assert_eq!(begin(&t, HASH).await, Begin::Replayed { s3_key: Some("good".into()) });
    }
}

#[tokio::test]
async fn a_request_of_another_language_is_in_progress_while_the_lease_is_held() {
    for t in Test::on_each_table() {
        put_foreign(&t, "STARTED").await;
        let lease = t.acquire().await;
        assert_eq!(begin(&t, HASH).await, Begin::InProgress { until: Some(NOW + 8) });
        t.store.release(&lease).await.expect("no error");
        started(&t).await;
    }
}

#[tokio::test]
async fn a_completed_request_of_another_language_is_replayed() {
    for t in Test::on_each_table() {
        for result in [None, Some("pages/abc.html")] {
            let mut row = Item::from([("request_hash", Value::from(HASH)), ("status", "COMPLETED".into())]);
            if let Some(s3_key) = result {
                row.set("result_s3_key", s3_key);
            }
            let put = Write::put(t.page.request(KEY).expect("a key"), row);
            assert!(t.table.commit(&Txn::from(put)).await.expect("a put").is_done());
            assert_eq!(begin(&t, HASH).await, Begin::Replayed { s3_key: result.map(str::to_owned) });
            assert_eq!(begin(&t, OTHER_HASH).await, Begin::OtherRequest);
        }
    }
}

#[tokio::test]
async fn a_request_and_its_lease_are_acquired_together_or_not_at_all() {
    for t in Test::on_each_table() {
        let other = t.acquire().await;
        assert_eq!(begin(&t, HASH).await, Begin::Held { until: NOW + 8 });
        assert_eq!(row(&t).await, None, "no request without its lease");
        t.store.release(&other).await.expect("no error");
        started(&t).await;
    }
}

#[tokio::test]
async fn a_request_with_lost_responses_is_started_and_completed_once() {
    for t in Test::on_each_table() {
        t.table.script(&[Fate::LoseResponse, Fate::LoseResponse, Fate::Pass]);
        let (lease, claim) = started(&t).await;
        t.table.script(&[Fate::LoseResponse, Fate::Pass]);
        let page = facetheory::protocol::Generation::new("a", NOW, 0);
        let done = t.store.publish(&lease, &page, None, History::Versions, Some(&claim)).await;
        assert_eq!(done.expect("no error"), Published::Done);
        assert_eq!(t.meta().await.expect("a page").version, Some(1));
        assert_eq!(begin(&t, HASH).await, Begin::Replayed { s3_key: Some("a".into()) });
    }
}

#[tokio::test]
async fn hostile_keys_are_limited_and_cannot_name_another_row() {
    for t in Test::on_each_table() {
        for key in ["META", "../META", "LOCK", "REQ#x", "VER#1", "a b", "\u{0}"] {
            let begun = t.store.begin_request(&t.page, key, HASH).await.expect("no error");
            assert!(matches!(begun, Begin::Started { .. }), "{key:?}: {begun:?}");
            let Begin::Started { lease, claim } = begun else { continue };
            t.store.fail_request(&lease, &claim).await.expect("no error");
        }
        assert!(t.rows().await.iter().all(|sk| sk.starts_with("REQ#")), "{:?}", t.rows().await);
        for key in ["", &"x".repeat(1_000_000)] {
            let error = t.store.begin_request(&t.page, key, HASH).await.expect_err("refused");
            assert_eq!(error.kind(), Kind::Invalid);
        }
    }
}

#[tokio::test]
async fn a_late_takeover_does_not_replace_an_earlier_one() {
    for t in Test::on_each_table() {
        let _crashed = started(&t).await;
        t.advance(Duration::from_secs(301));
        t.table.script(&[Fate::Delay; 3]);
        let error = t.store.begin_request(&t.page, KEY, HASH).await.expect_err("no response");
        assert_eq!(error.kind(), Kind::Unknown);
        let (quicker, _) = started(&t).await;
        // Even if the lease is free.
        t.store.invalidate(&t.page, facetheory::InvalidationMode::Soft).await.expect("no error");
        t.table.come_late().await;
        assert_eq!(row(&t).await.expect("a row").owner.as_deref(), Some(quicker.token()));
    }
}

#[tokio::test]
async fn an_idempotency_key_stands_for_one_request_of_any_page() {
    for t in Test::on_each_table() {
        let bind = async |key: &str, hash: &str| t.store.bind_request(key, hash).await.expect("no error");
        assert!(bind(KEY, HASH).await && bind(KEY, HASH).await);
        assert!(!bind(KEY, OTHER_HASH).await);
        assert!(bind("order-8", OTHER_HASH).await, "another key is another request");
        assert!(bind("../META", HASH).await, "no key names another row");
        assert!(t.meta().await.is_none());
        let error = t.store.bind_request(&"x".repeat(5000), HASH).await.expect_err("too long");
        assert_eq!(error.kind(), Kind::Invalid);
    }
}
