//! Invalidations by unsafe requests that the table could not receive in time are written in the background.

use std::collections::BTreeSet;
use std::time::Duration;

use facetheory::Routes;
use facetheory::protocol::FeedEntry;
use futures_util::future::join_all;
use tabletheory::{Query, Scan, Table as _};

use crate::fixture::{SECOND, Site};

/// The longest that the response to an unsafe request waits for the table.
const RESPONSE_DELAY: Duration = Duration::from_millis(250);
/// Longer than the pauses between two attempts to write what is pending.
const RETRIED: Duration = Duration::from_secs(30);

/// A process that announces its changes and follows the origin's headers, with the pages `/0`, `/1`, and so on.
async fn site(pages: usize) -> Site {
    let routes = Routes::new([]).expect("no routes").otherwise_follow_origin();
    let site = Site::over_store(routes, |store| store.with_announcements(true));
    site.responds(200, &[("cache-control", "max-age=3600")], "a page");
    for number in 0..pages {
        assert_eq!(site.get(&format!("/{number}")).await.state(), "miss");
    }
    site
}

async fn change(site: &Site, number: usize) {
    assert_eq!(site.send("POST", &format!("/{number}"), &[]).await.status, 200);
}

/// The partition keys of the epoch rows, which invalidate pages.
async fn invalidations(site: &Site) -> BTreeSet<String> {
    let rows = site.table.scan(&Scan::new()).await.expect("rows").items;
    let keys = rows.iter().map(|row| row.key().expect("a key"));
    keys.filter(|key| key.sk == "TAG").map(|key| key.pk).collect()
}

/// The changes that each entry of the feed names.
async fn entries(site: &Site) -> Vec<BTreeSet<String>> {
    let rows = site.table.query(&Query::of("FEED#0")).await.expect("a query").items;
    rows.iter().map(|row| FeedEntry::read(row).expect("an entry").changed).collect()
}

async fn announced(site: &Site) -> usize {
    entries(site).await.into_iter().flatten().collect::<BTreeSet<_>>().len()
}

#[tokio::test(start_paused = true)]
async fn invalidations_that_a_slow_table_did_not_receive_in_time_are_written_concurrently() {
    const PAGES: usize = 400;
    let site = site(PAGES).await;
    // A call takes 100 ms on average, and an invalidation at least four of them.
    site.table.slow_down(SECOND / 5);
    let began = tokio::time::Instant::now();
    join_all((0..PAGES).map(|number| change(&site, number))).await;
    assert!(began.elapsed() <= RESPONSE_DELAY, "{:?}", began.elapsed());
    // One after the other, they would take 160 s.
    assert!(site.isr.settle(20 * SECOND).await, "they are not written within 20 s");
    println!("{PAGES} invalidations: {:?}, {} entries", began.elapsed(), entries(&site).await.len());
    assert_eq!(invalidations(&site).await.len(), PAGES);
    assert_eq!(announced(&site).await, PAGES);
    assert!(entries(&site).await.len() <= PAGES / 4, "they share entries of the feed");
}

#[tokio::test(start_paused = true)]
async fn invalidations_are_written_although_they_cannot_be_announced() {
    const PAGES: usize = 10;
    let site = site(PAGES).await;
    site.table.break_down();
    join_all((0..PAGES).map(|number| change(&site, number))).await;
    site.table.come_back();
    site.table.reject_writes_to("FEED#");
    tokio::time::sleep(RETRIED).await;
    assert_eq!(invalidations(&site).await.len(), PAGES);
    assert_eq!(announced(&site).await, 0);

    site.table.come_back();
    tokio::time::sleep(RETRIED).await;
    assert_eq!(announced(&site).await, PAGES);
    assert!(site.isr.shut_down(SECOND).await, "nothing is left to be done");
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_that_cannot_be_written_does_not_delay_others() {
    const PAGES: usize = 10;
    let model = site(PAGES).await;
    join_all((0..PAGES).map(|number| change(&model, number))).await;
    let mut expected = invalidations(&model).await;
    assert_eq!(expected.len(), PAGES);
    let first = expected.pop_first().expect("a row");

    let site = site(PAGES).await;
    site.table.break_down();
    join_all((0..PAGES).map(|number| change(&site, number))).await;
    site.table.come_back();
    site.table.reject_writes_to(first.leak());
    tokio::time::sleep(RETRIED).await;
    assert_eq!(invalidations(&site).await, expected);
    assert_eq!(announced(&site).await, PAGES - 1);
}

#[tokio::test(start_paused = true)]
async fn changes_of_unstored_pages_write_no_rows_also_if_the_table_was_slow_or_unreachable() {
    for is_slow in [true, false] {
        let site = site(1).await;
        if is_slow {
            site.table.slow_down(10_000 * SECOND);
        } else {
            site.table.break_down();
        }
        // The first page is stored, the others are not.
        join_all((0..20).map(|number| change(&site, number))).await;
        site.table.come_back();
        assert_eq!(invalidations(&site).await.len(), 0);
        tokio::time::sleep(RETRIED).await;
        assert_eq!(invalidations(&site).await.len(), 1, "slow: {is_slow}");
        assert_eq!(announced(&site).await, 1, "slow: {is_slow}");
        assert!(site.isr.shut_down(SECOND).await, "nothing is left to be done");
    }
}
