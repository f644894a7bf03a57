//! Invalidation: a page that was rendered before it is never fresh after it.

use std::time::Duration;

use facetheory::protocol::{Freshness, Published};
use facetheory::{History, Invalidated, InvalidationMode, Tag, Tenant};
use tabletheory::{Item, Table, Txn, Value, Write};

use crate::fixture::{NOW, SECOND, Test};

#[tokio::test]
async fn an_invalidated_page_is_stale_and_a_render_under_way_cannot_publish() {
    for (strength, state) in
        [(InvalidationMode::Soft, Freshness::Stale), (InvalidationMode::Hard, Freshness::MustNotServe)]
    {
        for t in Test::on_each_table() {
            let lease = t.acquire().await;
            assert_eq!(t.publish(&lease, "a", History::Latest).await, Published::Done);
            let before = t.acquire().await;
            let done = t.store.invalidate(&t.page, strength).await.expect("no error");
            assert_eq!(done, Invalidated::Stale);
            assert_eq!(t.publish(&before, "rendered before", History::Latest).await, Published::Lost);
            let meta = t.meta().await.expect("a page");
            assert_eq!(meta.freshness(t.store.now()), state);
            assert_eq!(meta.stale_since, Some(NOW));
            let after = t.acquire().await;
            assert_eq!(t.publish(&after, "rendered after", History::Latest).await, Published::Done);
            let meta = t.meta().await.expect("a page");
            assert_eq!(meta.freshness(t.store.now()), Freshness::Fresh);
            assert_eq!(meta.stale_since, None);
        }
    }
}

#[tokio::test]
async fn the_first_render_of_a_page_cannot_publish_after_an_invalidation() {
    for t in Test::on_each_table() {
        let first = t.acquire().await;
        let done = t.store.invalidate(&t.page, InvalidationMode::Soft).await.expect("no error");
        assert_eq!(done, Invalidated::Absent);
        assert_eq!(t.publish(&first, "rendered before", History::Versions).await, Published::Lost);
        assert_eq!(t.meta().await, None);
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_can_be_invalidated() {
    for t in Test::on_each_table() {
        let broken = Write::put(t.page.meta(), Item::from([("s3_key", Value::from(7))]));
        assert!(t.table.commit(&Txn::from(broken)).await.expect("a put").is_done());
        let done = t.store.invalidate(&t.page, InvalidationMode::Hard).await.expect("no error");
        assert_eq!(done, Invalidated::Stale);
    }
}

#[tokio::test]
async fn a_tag_makes_its_pages_stale_with_one_row_and_tenants_do_not_share_it() {
    for t in Test::on_each_table() {
        let (news, sport) = (Tag::new("news").expect("a tag"), Tag::new("sport").expect("a tag"));
        let acme = Tenant::new("acme").expect("a tenant");
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "a", History::Latest).await, Published::Done);
        let meta = t.meta().await.expect("a page");
        let skew = Duration::from_secs(2);
        t.advance(Duration::from_secs(10));
        t.store.invalidate_tag(&sport, None).await.expect("no error");
        t.store.invalidate_tag(&news, Some(&acme)).await.expect("no error");
        let epochs = t.store.epochs(std::slice::from_ref(&news), None).await.expect("no error");
        assert_eq!(meta.freshness_with(&epochs, t.store.now(), skew), Freshness::Fresh);
        let epochs = t.store.epochs(&[news, sport], None).await.expect("no error");
        assert_eq!(meta.freshness_with(&epochs, t.store.now(), skew), Freshness::Stale);
    }
}

#[tokio::test]
async fn a_clock_that_is_behind_does_not_undo_an_invalidation() {
    for t in Test::on_each_table() {
        let tag = Tag::new("news").expect("a tag");
        t.store.invalidate_tag(&tag, None).await.expect("no error");
        t.clock.set(t.store.now() - Duration::from_secs(3600));
        t.store.invalidate_tag(&tag, None).await.expect("no error");
        let epochs = t.store.epochs(std::slice::from_ref(&tag), None).await.expect("no error");
        assert_eq!(epochs[0].invalidated_at, NOW);
        t.clock.set(tabletheory::Timestamp::from_seconds(NOW) + SECOND);
        t.store.invalidate_tag(&tag, None).await.expect("no error");
        let epochs = t.store.epochs(&[tag], None).await.expect("no error");
        assert_eq!(epochs[0].invalidated_at, NOW + 1);
    }
}
