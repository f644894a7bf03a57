//! Announcements in the change feed: concurrent changes share entries, and no change stays unannounced.

use std::collections::BTreeSet;
use std::time::Duration;

use facetheory::protocol::FeedEntry;
use facetheory::{History, InvalidationMode, PageStore, Render, State, Tag};
use futures_util::future::join_all;
use tabletheory::{Faults, Key, Query, Table as _, Txn, Write};

use crate::fixture::{INTERVAL, SECOND, Site, exclusive, served};

/// The changes that one entry names at most.
const MAX_CHANGED: usize = 40;
/// Longer than the pause between two attempts to write what is pending.
const RETRIED: Duration = Duration::from_secs(11);

fn tag(number: usize) -> Tag {
    Tag::new(format!("tag-{number}")).expect("a tag")
}

/// The changes that each entry of the feed names, oldest first.
async fn entries(site: &Site) -> Vec<BTreeSet<String>> {
    let rows = site.table.query(&Query::of("FEED#0")).await.expect("a query").items;
    rows.iter().map(|row| FeedEntry::read(row).expect("an entry").changed).collect()
}

fn changes(entries: &[BTreeSet<String>]) -> usize {
    entries.iter().flatten().collect::<BTreeSet<_>>().len()
}

/// The text by which entries name the change of a tag.
async fn digest(tag: &Tag) -> String {
    let site = Site::built(exclusive);
    site.isr.invalidate_tag(tag, None).await.expect("no error");
    entries(&site).await.into_iter().flatten().next().expect("a change")
}

#[tokio::test(start_paused = true)]
async fn concurrent_changes_of_a_process_share_few_entries() {
    for number in [1, 10, 400] {
        let site = Site::built(exclusive);
        // Each call takes up to 10 ms.
        site.table.slow_down(SECOND / 100);
        let tags: Vec<Tag> = (0..number).map(tag).collect();
        let outcomes = join_all(tags.iter().map(|tag| site.isr.invalidate_tag(tag, None))).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        let entries = entries(&site).await;
        println!("{number} concurrent invalidations: {} entries", entries.len());
        assert_eq!(changes(&entries), number, "every change that was acknowledged is named");
        assert!(entries.iter().all(|changed| changed.len() <= MAX_CHANGED), "{entries:?}");
        // One entry before the others wait, and one that is not full because they arrive at different times.
        assert!(entries.len() <= 2 + number.div_ceil(MAX_CHANGED), "{} entries", entries.len());
    }
}

#[tokio::test(start_paused = true)]
async fn with_more_concurrent_changes_only_the_number_of_full_entries_grows() {
    const SECONDS: u32 = 5;
    // Changes that have to wait and do not fill an entry are announced every 50 ms, and a change that need not wait may come
    // before each of these.
    const MOST_PER_SECOND: usize = 40;
    for (clients, least_changes_per_second) in [(2, 20), (20, 200), (200, 2_000)] {
        let site = Site::built(exclusive);
        site.table.slow_down(SECOND / 100);
        let invalidate_repeatedly = |client: usize| {
            let isr = site.isr.clone();
            async move {
                for number in 0.. {
                    isr.invalidate_tag(&tag(1000 * client + number), None).await.expect("no error");
                }
            }
        };
        let clients_running = join_all((0..clients).map(invalidate_repeatedly));
        assert!(tokio::time::timeout(SECONDS * SECOND, clients_running).await.is_err());
        let entries = entries(&site).await;
        println!("{clients} clients: {} entries about {} changes", entries.len(), changes(&entries));
        let full = entries.iter().filter(|changed| changed.len() == MAX_CHANGED).count();
        assert!(entries.len() - full <= MOST_PER_SECOND * SECONDS as usize, "{} entries", entries.len());
        assert!(
            changes(&entries) >= least_changes_per_second * SECONDS as usize,
            "{} changes",
            changes(&entries)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_change_is_announced_without_a_pause() {
    let site = Site::built(exclusive);
    for number in 0..10 {
        let began = tokio::time::Instant::now();
        site.isr.invalidate_tag(&tag(number), None).await.expect("no error");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
    assert_eq!(entries(&site).await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn if_an_entry_cannot_be_stored_each_of_its_changes_fails() {
    let site = Site::built(exclusive);
    site.table.slow_down(SECOND / 100);
    site.table.reject_writes_to("FEED#");
    let tags: Vec<Tag> = (0..10).map(tag).collect();
    let outcomes = join_all(tags.iter().map(|tag| site.isr.invalidate_tag(tag, None))).await;
    for outcome in outcomes {
        let error = outcome.expect_err("not announced").to_string();
        assert!(error.starts_with("the change was stored, but not announced to other processes"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_could_not_be_announced_is_announced_although_its_caller_does_not_repeat_it() {
    type Operation = fn(Site, String) -> futures_util::future::BoxFuture<'static, bool>;
    let operations: [(&str, Operation); 4] = [
        ("invalidate", |site, _| {
            Box::pin(async move { site.isr.invalidate(&site.page, InvalidationMode::Soft).await.is_err() })
        }),
        ("invalidate a tag", |site, _| {
            Box::pin(async move { site.isr.invalidate_tag(&Tag::everything(), None).await.is_err() })
        }),
        ("roll back", |site, sk| {
            Box::pin(async move { site.isr.roll_back(&site.page, &sk, INTERVAL).await.is_err() })
        }),
        ("unpin", |site, _| Box::pin(async move { site.isr.unpin(&site.page).await.is_err() })),
    ];
    for (name, operation) in operations {
        let site = Site::built(exclusive).with(|policy| {
            (policy.revalidate, policy.history) = (60 * INTERVAL, History::Versions);
        });
        let other = site.another_built(exclusive);
        tokio::time::sleep(SECOND).await;
        site.get("one").await;
        let versions = site.isr.versions(&site.page, 1).await.expect("versions");
        other.get("two").await;
        let is_current = || other.isr.get_fresh(&other.page, &other.policy).is_some();
        tokio::time::sleep(SECOND).await;
        assert!(is_current());

        site.table.reject_writes_to("FEED#");
        assert!(operation(site.clone(), versions[0].0.clone()).await, "{name}: the caller is told");
        tokio::time::sleep(RETRIED).await;
        assert!(is_current(), "{name}: the other process cannot know");
        site.table.come_back();
        tokio::time::sleep(RETRIED + SECOND).await;
        assert!(!is_current(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_outcome_is_unknown_is_announced_as_soon_as_the_feed_can_be_written() {
    let site = Site::built(exclusive);
    // The table applies writes, but no response arrives.
    site.table.set_faults(Faults { lose_response: 1.0, ..Faults::default() });
    site.isr.invalidate_tag(&tag(1), None).await.expect_err("the outcome is unknown");
    site.table.come_back();
    let before = entries(&site).await.len();
    tokio::time::sleep(RETRIED).await;
    assert!(entries(&site).await.len() > before, "announced by the process itself");
}

#[tokio::test(start_paused = true)]
async fn announcements_that_wait_for_a_feed_that_does_not_respond_fail_together() {
    // An append is tried three times, for five seconds each.
    const LONGEST: Duration = Duration::from_secs(16);
    let site = Site::built(exclusive);
    let store = PageStore::new(site.table.clone()).with_announcements(true);
    site.table.slow_down(Duration::from_secs(1_000_000));
    let tags: Vec<Tag> = (0..400).map(tag).collect();
    let began = tokio::time::Instant::now();
    let outcomes = join_all(tags.iter().map(|tag| store.announce_tag(tag, None))).await;
    assert!(outcomes.iter().all(Result::is_err));
    assert!(began.elapsed() <= LONGEST, "{:?}", began.elapsed());

    site.table.come_back();
    store.announce_tag(&tags[0], None).await.expect("an earlier failure does not matter");
    let named: BTreeSet<String> = entries(&site).await.into_iter().flatten().collect();
    assert!(named.contains(&digest(&tags[0]).await));
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_no_entries_do_not_hide_the_newest_position_from_a_writer() {
    let site = Site::built(exclusive);
    // The clock of another writer was far ahead.
    let ahead = format!("{:015}-{:016x}", 100_000_000_000_000_u64, 0);
    let foreign = (0..10).flat_map(|number| [format!("META{number}"), format!("#{number}")]);
    for sk in foreign.chain([ahead.clone()]) {
        let put = Write::put(Key::new("FEED#0", sk), FeedEntry::default().to_item());
        assert!(site.table.commit(&Txn::from(put)).await.expect("no error").is_done());
    }
    site.isr.invalidate_tag(&tag(1), None).await.expect("no error");
    let entries = Query::of("FEED#0").sk_between("0", "9");
    let rows = site.table.query(&entries).await.expect("a query").items;
    let positions: Vec<String> = rows.iter().map(|row| row.key().expect("a key").sk).collect();
    assert_eq!(positions.len(), 2, "{positions:?}");
    assert!(positions[0] == ahead && positions[1] > ahead, "{positions:?}");
}

#[tokio::test(start_paused = true)]
async fn changes_are_announced_although_the_task_that_appends_their_entry_is_cancelled() {
    const TASKS: usize = 4;
    let mut digests = Vec::new();
    for number in 0..TASKS {
        digests.push(digest(&tag(number)).await);
    }
    for cancelled in 0..TASKS {
        for millis in (0..400).step_by(20) {
            let site = Site::built(exclusive);
            site.table.slow_down(SECOND / 10);
            let store = PageStore::new(site.table.clone()).with_announcements(true);
            let announce = |number| {
                let store = store.clone();
                tokio::spawn(async move { store.invalidate_tag(&tag(number), None).await })
            };
            let mut tasks: Vec<_> = (0..TASKS).map(announce).collect();
            tokio::time::sleep(Duration::from_millis(millis)).await;
            tasks.remove(cancelled).abort();
            for outcome in join_all(tasks).await {
                outcome.expect("not cancelled").expect("announced");
            }
            let named: BTreeSet<String> = entries(&site).await.into_iter().flatten().collect();
            let survivors = (0..TASKS).filter(|number| *number != cancelled);
            for survivor in survivors {
                assert!(
                    named.contains(&digests[survivor]),
                    "task {cancelled} cancelled after {millis} ms: the change of task {survivor} is not named"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_its_origin_invalidated_is_announced_as_soon_as_the_feed_can_be_written() {
    // Only the new deployment renders the page, which is fresh for the old one.
    let old = Site::built(|builder| exclusive(builder).deployment("old"));
    let old = old.with(|policy| policy.revalidate = 60 * INTERVAL);
    let new = old.another_built(|builder| exclusive(builder).deployment("new"));
    tokio::time::sleep(SECOND).await;
    assert_eq!(old.get("one").await, served(State::Miss, "one"));

    new.table.reject_writes_to("FEED#");
    let store = PageStore::new(new.table.clone());
    let must_not_serve =
        || async { store.lookup(&new.page).await.expect("rows").meta.expect("META").must_not_serve };
    // `Render::Invalidate` counts once it is confirmed.
    for _ in 0..10 {
        let invalidate = |_| async { Ok(Render::Invalidate) };
        let _bypass = new.isr.get(&new.page, &new.policy, invalidate).await.expect("a result");
        tokio::time::sleep(RETRIED).await;
    }
    assert!(must_not_serve().await);
    assert_eq!(old.get("two").await, served(State::Hit, "one"), "the other process cannot know");
    assert_eq!(entries(&new).await.len(), 0);

    new.table.come_back();
    tokio::time::sleep(RETRIED + SECOND).await;
    assert_eq!(entries(&new).await.len(), 1);
    assert_eq!(old.get("two").await, served(State::Miss, "two"));
}
