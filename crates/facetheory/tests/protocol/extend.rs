//! A render that does not change the page extends it by one conditional update of `META`.

use std::time::Duration;

use facetheory::protocol::{Meta, Published};
use facetheory::{History, InvalidationMode, Kind, RolledBack};
use tabletheory::{Attr, Table as _, Txn, Update, Write};

use crate::fixture::{NOW, Test};
use crate::scripted::Fate;

/// Everything that changes a page while a writer renders it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    LeaseLost,
    Published,
    PublishedUnchanged,
    Invalidated,
    HardInvalidated,
    RolledBack,
    Deleted,
    /// Another service moves the pointer, and leaves our other attributes.
    PointerMoved,
    /// Another service puts a row with its own attributes only.
    Replaced,
}

impl Change {
    const ALL: [Change; 10] = [
        Change::Nothing,
        Change::LeaseLost,
        Change::Published,
        Change::PublishedUnchanged,
        Change::Invalidated,
        Change::HardInvalidated,
        Change::RolledBack,
        Change::Deleted,
        Change::PointerMoved,
        Change::Replaced,
    ];

    async fn apply(self, t: &Test) {
        let write = |write: Write| async {
            let txn = Txn::new([write, Write::delete(t.page.lock())]);
            assert!(t.table.commit(&txn).await.expect("a write").is_done());
        };
        match self {
            Change::Nothing => {}
            Change::LeaseLost => {
                t.advance(Duration::from_secs(60));
                let _other = t.acquire().await;
            }
            Change::Published | Change::PublishedUnchanged => {
                t.advance(Duration::from_secs(60));
                let body = if self == Change::Published { "c" } else { "b" };
                assert_eq!(t.publish(&t.acquire().await, body, History::Versions).await, Published::Done);
            }
            Change::Invalidated | Change::HardInvalidated => {
                let hard = self == Change::HardInvalidated;
                let mode = if hard { InvalidationMode::Hard } else { InvalidationMode::Soft };
                t.store.invalidate(&t.page, mode).await.expect("no error");
            }
            Change::RolledBack => {
                let (oldest, _) =
                    t.store.versions(&t.page, 9).await.expect("versions").pop().expect("a version");
                let done = t.store.roll_back(&t.page, &oldest, Duration::from_secs(60)).await;
                assert_eq!(done.expect("no error"), RolledBack::Done);
            }
            Change::Deleted => write(Write::delete(t.page.meta())).await,
            Change::PointerMoved => {
                let (oldest, _) =
                    t.store.versions(&t.page, 9).await.expect("versions").pop().expect("a version");
                let pointer = Update::new([Attr::<String>::new("current_sk").set(oldest)]);
                write(Write::update(t.page.meta(), pointer)).await;
            }
            Change::Replaced => {
                write(Write::put(t.page.meta(), Meta::of(t.rendered("b")).to_item())).await;
            }
        }
    }
}

/// A page with two versions, of which `b` is the current one, and which is stale.
async fn stale_page(t: &Test) {
    for body in ["a", "b"] {
        assert_eq!(t.publish(&t.acquire().await, body, History::Versions).await, Published::Done);
        t.advance(Duration::from_secs(60));
    }
}

#[tokio::test]
async fn a_page_is_extended_only_if_nobody_has_changed_it_since_it_was_read() {
    for change in Change::ALL {
        for t in Test::on_each_table() {
            stale_page(&t).await;
            let (lease, seen) = (t.acquire().await, t.meta().await);
            let rendered = t.rendered("b");
            change.apply(&t).await;
            let before = t.row("META").await;
            let published = t.store.publish(&lease, &rendered, seen.as_ref(), History::Versions, None).await;
            let extended = matches!(change, Change::Nothing | Change::LeaseLost);
            assert_eq!(published.expect("no error") == Published::Done, extended, "{change:?}");
            if extended {
                let meta = t.meta().await.expect("a page");
                assert_eq!(meta.generation.generated_at, rendered.generated_at, "{change:?}");
                assert_eq!(meta.mark.as_deref(), Some(lease.token()), "{change:?}");
            } else {
                assert_eq!(t.row("META").await, before, "{change:?}");
            }
            let is_locked = t.rows().await.iter().any(|sk| sk == "LOCK");
            assert_eq!(
                is_locked,
                change == Change::LeaseLost,
                "{change:?}: the lock of another worker stays"
            );
        }
    }
}

#[tokio::test]
async fn a_page_that_was_invalidated_is_published_by_a_transaction_that_verifies_the_lease() {
    for t in Test::on_each_table() {
        stale_page(&t).await;
        t.store.invalidate(&t.page, InvalidationMode::Soft).await.expect("no error");
        let (lease, seen) = (t.acquire().await, t.meta().await);
        // In the same second, so that `META` does not change.
        t.store.invalidate(&t.page, InvalidationMode::Soft).await.expect("no error");
        assert_eq!(t.meta().await, seen);
        let published =
            t.store.publish(&lease, &t.rendered("b"), seen.as_ref(), History::Versions, None).await;
        assert_eq!(published.expect("no error"), Published::Lost);
        assert_eq!(t.meta().await, seen);
    }
}

#[tokio::test]
async fn an_extension_with_a_lost_response_is_recognized_by_its_mark() {
    use Fate::{ComeLate, Delay, Deny, LoseRequest, LoseResponse, Pass};
    // The fate of the attempts, and of the release after them; the result, or `None` if it is unknown.
    let done = Some(Published::Done);
    for (fates, expected) in [
        ([Pass, Pass, Pass, Pass], done),
        ([LoseResponse, Pass, Pass, Pass], done),
        ([LoseRequest, Pass, Pass, Pass], done),
        ([LoseResponse, LoseResponse, LoseResponse, Pass], done),
        ([LoseResponse, Deny, Pass, Pass], done),
        ([Delay, ComeLate, Pass, Pass], done),
        ([LoseRequest, LoseRequest, LoseRequest, Pass], None),
        ([LoseRequest, Deny, Pass, Pass], None),
    ] {
        for t in Test::on_each_table() {
            stale_page(&t).await;
            let (lease, seen) = (t.acquire().await, t.meta().await);
            t.table.script(&fates);
            let rendered = t.rendered("b");
            let result = t.store.publish(&lease, &rendered, seen.as_ref(), History::Versions, None).await;
            match (result, expected) {
                (Ok(published), Some(expected)) => assert_eq!(published, expected, "{fates:?}"),
                (Err(error), None) => assert_eq!(error.kind(), Kind::Unknown, "{fates:?}"),
                (result, _) => panic!("{fates:?}: {result:?}"),
            }
            let moved = t.meta().await.expect("a page").generation == rendered;
            assert_eq!(moved, expected.is_some(), "{fates:?}");
            assert!(!t.rows().await.contains(&"LOCK".to_owned()), "{fates:?}: the lease was released");
        }
    }
}

#[tokio::test]
async fn an_extension_that_may_have_been_replaced_is_reported_as_superseded() {
    for t in Test::on_each_table() {
        stale_page(&t).await;
        let (lease, seen) = (t.acquire().await, t.meta().await);
        let rendered = t.rendered("b");
        Change::Published.apply(&t).await;
        t.table.script(&[Fate::LoseRequest]);
        let published = t.store.publish(&lease, &rendered, seen.as_ref(), History::Versions, None).await;
        assert_eq!(published.expect("no error"), Published::Superseded);
    }
}

#[tokio::test]
async fn a_rejected_extension_is_an_error_and_changes_nothing() {
    for t in Test::on_each_table() {
        stale_page(&t).await;
        let (lease, seen) = (t.acquire().await, t.meta().await);
        t.table.script(&[Fate::Deny]);
        let error = t.store.publish(&lease, &t.rendered("b"), seen.as_ref(), History::Versions, None).await;
        assert_eq!(error.expect_err("rejected").kind(), Kind::Unavailable);
        assert_eq!(t.meta().await, seen);
        assert!(t.meta().await.is_some_and(|meta| meta.generation.generated_at < NOW + 120));
    }
}
