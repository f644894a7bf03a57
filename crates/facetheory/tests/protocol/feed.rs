//! The change feed: every change is announced, after it was made and before it is acknowledged.

use facetheory::protocol::{FeedEntry, Published};
use facetheory::{History, InvalidationMode, RolledBack, Tag};
use tabletheory::{Query, Table as _};

use crate::fixture::{SECOND, Test};

/// The sort keys and subjects in the feed, oldest first. Each entry has one subject.
async fn entries(t: &Test) -> Vec<(String, String)> {
    let rows = t.table.query(&Query::of("FEED#0")).await.expect("a query").items;
    let entry = |row| FeedEntry::read(row).expect("an entry");
    let subject = |row| entry(row).changed.into_iter().collect::<String>();
    rows.iter().map(|row| (row.key().expect("a key").sk, subject(row))).collect()
}

#[tokio::test]
async fn every_change_is_announced_before_it_is_acknowledged() {
    for t in Test::on_each_table() {
        let t = t.with(|store| store.with_announcements(true));
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "one", History::Versions).await, Published::Done);
        assert_eq!(entries(&t).await, [], "a publish is not announced");
        let (sk, _) = &t.store.versions(&t.page, 1).await.expect("versions")[0];

        t.store.invalidate(&t.page, InvalidationMode::Soft).await.expect("a result");
        assert_eq!(entries(&t).await.len(), 1);
        assert_eq!(t.store.roll_back(&t.page, sk, 60 * SECOND).await.expect("a result"), RolledBack::Done);
        assert!(t.store.unpin(&t.page).await.expect("a result"));
        assert!(!t.store.unpin(&t.page).await.expect("a result"), "repeated, in case nobody was told");
        let entries_of_page = entries(&t).await;
        assert_eq!(entries_of_page.len(), 4);
        assert!(entries_of_page.iter().all(|(_, changed)| *changed == entries_of_page[0].1));

        t.store.invalidate_tag(&Tag::new("news").expect("a tag"), None).await.expect("no error");
        let all = entries(&t).await;
        assert_eq!(all[4].1, "e7e1de57b207df523a068372", "the subject of TAG#news in the golden rows");
        assert!(all.iter().is_sorted(), "each position is higher than those before");
    }
}

#[tokio::test]
async fn the_clock_of_a_writer_does_not_decide_the_order_of_entries() {
    for t in Test::on_each_table() {
        let t = t.with(|store| store.with_announcements(true));
        let [first, second] = ["first", "second"].map(|tag| Tag::new(tag).expect("a tag"));
        t.store.invalidate_tag(&first, None).await.expect("no error");
        let before = entries(&t).await;
        t.clock.set(tabletheory::Timestamp::from_seconds(1));
        t.store.invalidate_tag(&second, None).await.expect("no error");
        assert_eq!(
            entries(&t).await[..1],
            before,
            "the later entry is the last, although the clock was set back"
        );
    }
}

#[tokio::test]
async fn without_announcements_the_feed_is_not_written() {
    for t in Test::on_each_table() {
        t.store.invalidate(&t.page, InvalidationMode::Hard).await.expect("a result");
        assert_eq!(entries(&t).await, []);
    }
}
