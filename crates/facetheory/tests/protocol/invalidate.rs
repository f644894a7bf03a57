//! Invalidation: a page that was rendered before it is never fresh after it.

use std::time::Duration;

use facetheory::protocol::{Epoch, Freshness, Published};
use facetheory::{History, Invalidated, InvalidationMode, Tag, Tenant};
use tabletheory::{Consistency, Item, Table, Txn, Value, Write};

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

/// The only epoch in a list of one tag.
async fn epoch_of(t: &Test, tag: &Tag) -> Epoch {
    let mut epochs = t.store.epochs(std::slice::from_ref(tag), None).await.expect("no error");
    epochs.remove(0).1.expect("an epoch")
}

#[tokio::test]
async fn every_invalidation_is_counted_and_the_time_never_falls() {
    for t in Test::on_each_table() {
        let tag = Tag::new("news").expect("a tag");
        t.store.invalidate_tag(&tag, None).await.expect("no error");
        let first = epoch_of(&t, &tag).await;
        assert_eq!((first.invalidated_at, first.seq, first.seq_at), (NOW, Some(1), Some(NOW)));
        t.clock.set(t.store.now() - Duration::from_secs(3600));
        t.store.invalidate_tag(&tag, None).await.expect("no error");
        let second = epoch_of(&t, &tag).await;
        assert_eq!((second.invalidated_at, second.seq, second.seq_at), (NOW, Some(2), Some(NOW)));
        t.clock.set(tabletheory::Timestamp::from_seconds(NOW));
        t.store.invalidate_tag(&tag, None).await.expect("no error");
        assert_eq!(epoch_of(&t, &tag).await.seq, Some(3), "in the same second as another one");
        t.clock.set(tabletheory::Timestamp::from_seconds(NOW) + SECOND);
        t.store.invalidate_tag(&tag, None).await.expect("no error");
        let last = epoch_of(&t, &tag).await;
        assert_eq!((last.invalidated_at, last.seq, last.seq_at), (NOW + 1, Some(4), Some(NOW + 1)));
        assert_eq!((first.seq_base, last.count()), (last.seq_base, first.count() + 3));
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_counted_up_begins_to_count_again_and_other_attributes_stay() {
    let ahead = Value::from(NOW + 3600);
    let rows: [&[(&str, Value)]; 7] = [
        &[("invalidated_at", NOW.into())],
        &[("invalidated_at", "soon".into()), ("seq", "one".into())],
        &[("invalidated_at", NOW.into()), ("seq", (-1).into()), ("seq_base", 9.into())],
        &[("invalidated_at", NOW.into()), ("seq", i64::MAX.into()), ("seq_base", 9.into())],
        &[("invalidated_at", ahead.clone()), ("seq", 1.into()), ("seq_base", "nine".into())],
        &[("invalidated_at", ahead.clone()), ("seq", Value::Null)],
        &[("invalidated_at", ahead), ("seq", Value::N("4503599627370496.5".parse().expect("a number")))],
    ];
    for row in rows {
        for t in Test::on_each_table() {
            let tag = Tag::new("news").expect("a tag");
            let item = row.iter().cloned().chain([("expired_at", 7.into()), ("theirs", "x".into())]);
            let put = Write::put(tag.key(None), Item::from_iter(item));
            assert!(t.table.commit(&Txn::from(put)).await.expect("a put").is_done());
            let counts = async || {
                t.store.invalidate_tag(&tag, None).await.unwrap_or_else(|error| panic!("{row:?}: {error}"));
                epoch_of(&t, &tag).await.count()
            };
            let first = counts().await;
            assert!(first > 10, "{row:?}: {first} is a count that the row has had");
            assert_eq!(counts().await, first + 1, "{row:?}");
            let after =
                t.table.get(&tag.key(None), Consistency::Strong).await.expect("a read").expect("a row");
            assert_eq!(after.get("expired_at"), Some(&7.into()), "{row:?}");
            assert_eq!(after.get("theirs"), Some(&"x".into()), "{row:?}");
        }
    }
}

#[tokio::test]
async fn a_hard_invalidation_names_its_count_and_its_time_never_falls() {
    for t in Test::on_each_table() {
        let tag = Tag::new("news").expect("a tag");
        let hard = async || {
            t.store.invalidate_tag_with(&tag, None, InvalidationMode::Hard).await.expect("no error");
            epoch_of(&t, &tag).await
        };
        let first = hard().await;
        assert_eq!((first.seq, first.expired_seq, first.expired_at), (Some(1), Some(1), Some(NOW)));
        t.store.invalidate_tag(&tag, None).await.expect("no error");
        let soft = epoch_of(&t, &tag).await;
        assert_eq!((soft.seq, soft.expired_seq), (Some(2), Some(1)), "a soft one does not change it");
        t.clock.set(t.store.now() - Duration::from_secs(3600));
        let behind = hard().await;
        assert_eq!((behind.seq, behind.expired_seq, behind.expired_at), (Some(3), Some(3), Some(NOW)));
        assert_eq!(behind.expired_seq_at, Some(NOW));
    }
}

#[tokio::test]
async fn a_time_to_come_that_another_service_wrote_is_replaced_by_a_hard_invalidation() {
    for t in Test::on_each_table() {
        let tag = Tag::new("news").expect("a tag");
        let item = [("invalidated_at", NOW.into()), ("expired_at", (NOW + 3600).into())];
        let put = Write::put(tag.key(None), Item::from_iter(item));
        assert!(t.table.commit(&Txn::from(put)).await.expect("a put").is_done());
        t.store.invalidate_tag_with(&tag, None, InvalidationMode::Hard).await.expect("no error");
        let epoch = epoch_of(&t, &tag).await;
        assert_eq!((epoch.expired_at, epoch.expired_seq), (Some(NOW), Some(1)));
    }
}

#[tokio::test]
async fn concurrent_hard_invalidations_of_a_tag_all_succeed() {
    for t in Test::on_each_table() {
        let tag = Tag::new("news").expect("a tag");
        let hard = || t.store.invalidate_tag_with(&tag, None, InvalidationMode::Hard);
        let outcomes = futures_util::future::join_all((0..50).map(|_| hard())).await;
        outcomes.into_iter().for_each(|outcome| outcome.expect("no error"));
        let epoch = epoch_of(&t, &tag).await;
        assert_eq!(epoch.expired_seq, epoch.seq);
    }
}
