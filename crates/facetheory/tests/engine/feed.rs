//! The change feed: processes learn within a second what others changed, and read no page again to find out.

use std::time::Duration;

use facetheory::{GetResult, History, InvalidationMode, PageKey, Policy, Rendered, State, Tag, testing};

use crate::fixture::{INTERVAL, SECOND, Site, exclusive, served};

/// Longer than a process needs to read the feed for the first time.
const WARM_UP: Duration = Duration::from_secs(1);
/// Reads of the feed per second and process.
const READS_PER_SECOND: u32 = 2;

/// Two processes that rely on the feed, with a page in the memory of both that is fresh for an hour.
async fn two_processes() -> (Site, Site) {
    let site = Site::built(exclusive).with(|policy| policy.revalidate = 60 * INTERVAL);
    let other = site.another_built(exclusive);
    tokio::time::sleep(WARM_UP).await;
    for process in [&site, &other] {
        process.get("one").await;
    }
    (site, other)
}

#[tokio::test(start_paused = true)]
async fn a_page_in_memory_is_not_read_again_while_the_feed_is_read() {
    let (site, other) = two_processes().await;
    site.table.take();
    for _ in 0..100 {
        tokio::time::sleep(SECOND).await;
        assert_eq!(site.get("two").await, served(State::Hit, "one"));
        assert_eq!(other.get("two").await, served(State::Hit, "one"));
    }
    let (reads, commits) = site.table.take();
    let expected = 100 * 2 * READS_PER_SECOND;
    assert!(reads.abs_diff(expected) <= 4 && commits == 0, "{reads} reads, {commits} commits");
}

#[tokio::test(start_paused = true)]
async fn changes_through_one_process_are_known_to_the_other_within_a_second() {
    let (site, other) = two_processes().await;
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    tokio::time::sleep(SECOND).await;
    assert_eq!(other.get("two").await, served(State::Miss, "two"), "a page");

    site.isr.invalidate_tag(&Tag::everything(), None).await.expect("no error");
    tokio::time::sleep(SECOND).await;
    assert_eq!(other.get("three").await, served(State::Stale, "two"), "a tag");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_and_the_end_of_its_pin_are_known_to_the_other_process_within_a_second() {
    let site = Site::built(exclusive).with(|policy| policy.revalidate = 60 * INTERVAL);
    let site = site.with(|policy| policy.history = History::Versions);
    let other = site.another_built(exclusive);
    tokio::time::sleep(WARM_UP).await;
    site.get("one").await;
    let versions = site.isr.versions(&site.page, 1).await.expect("versions");
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    site.get("two").await;
    assert_eq!(other.get("three").await, served(State::Hit, "two"));
    let (sk, _) = &versions[0];
    let _done = site.isr.roll_back(&site.page, sk, 60 * INTERVAL).await.expect("a result");
    tokio::time::sleep(SECOND).await;
    assert_eq!(other.get("three").await, served(State::Hit, "one"));
    assert!(site.isr.unpin(&site.page).await.expect("a result"));
    tokio::time::sleep(SECOND).await;
    assert_eq!(other.get("three").await, served(State::Stale, "one"));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_in_the_feed_is_unknown_until_the_interval_ends() {
    let (site, other) = two_processes().await;
    let silent = site.another();
    silent.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(other.get("two").await, served(State::Hit, "one"), "nothing else informs the process");
    tokio::time::sleep(60 * INTERVAL).await;
    assert_eq!(other.get("two").await, served(State::Miss, "two"));
}

#[tokio::test(start_paused = true)]
async fn while_the_feed_cannot_be_read_pages_are_read_again_as_without_it() {
    let (site, other) = two_processes().await;
    site.table.break_down();
    tokio::time::sleep(SECOND).await;
    assert_eq!(other.get("two").await, served(State::StaleMetadataError, "one"));
    site.table.come_back();
    tokio::time::sleep(2 * SECOND).await;
    site.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("a result");
    tokio::time::sleep(SECOND).await;
    assert_eq!(other.get("two").await, served(State::Stale, "one"));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_cannot_be_announced_fails_and_says_so() {
    let (site, _) = two_processes().await;
    site.table.hold_writes_to("FEED#");
    let store_error = site.isr.invalidate_tag(&Tag::everything(), None).await.expect_err("not announced");
    assert_eq!(
        store_error.to_string(),
        "the change was stored, but not announced to other processes, which may notice it late; try again"
    );
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_announced_although_its_client_has_disconnected() {
    let (site, other) = two_processes().await;
    // Each call takes up to 200 ms, so that the client disconnects before the operation is done.
    site.table.slow_down(SECOND / 5);
    let operation = site.isr.invalidate(&site.page, InvalidationMode::Soft);
    assert!(tokio::time::timeout(Duration::from_millis(1), operation).await.is_err());
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(other.get("two").await, served(State::Stale, "one"));
}

#[tokio::test(start_paused = true)]
async fn without_memory_the_feed_is_not_read_and_a_shutdown_ends_its_reads() {
    let site = Site::built(|builder| exclusive(builder).memory(0));
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(site.table.take(), (0, 0));

    let other = site.another_built(exclusive);
    tokio::time::sleep(10 * SECOND).await;
    assert!(site.table.take().0 >= 10 * READS_PER_SECOND);
    assert!(other.isr.shut_down(SECOND).await);
    site.table.take();
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(site.table.take(), (0, 0));
}

/// Three processes with this many pages in memory each.
struct Fleet {
    processes: Vec<testing::Site>,
    pages: Vec<PageKey>,
    policy: Policy,
}

impl Fleet {
    async fn start(pages: usize) -> Fleet {
        let first = testing::Site::new(facetheory::Bodies::memory(), exclusive);
        let processes = vec![first.another(exclusive), first.another(exclusive), first];
        let page = |number| PageKey::new(format!("/{number}")).expect("a page").at_path(format!("/{number}"));
        let pages = (0..pages).map(page).collect();
        let mut fleet = Fleet { processes, pages, policy: Policy::every(60 * INTERVAL) };
        fleet.policy.early_refresh = None;
        tokio::time::sleep(WARM_UP).await;
        for process in &fleet.processes {
            for page in &fleet.pages {
                let render = |_| async { Ok(Rendered::html("a page")) };
                let result = process.isr.get(page, &fleet.policy, render).await;
                assert!(matches!(result, Ok(GetResult::Page(_))), "{result:?}");
            }
        }
        fleet.take_reads();
        fleet
    }

    /// The reads of the table by all processes since the last call.
    fn take_reads(&self) -> u32 {
        self.processes[0].table.take().0
    }

    /// The number of pages that each process serves from memory without reading the table.
    fn served_from_memory(&self) -> Vec<usize> {
        let is_served = |process: &testing::Site, page| process.isr.get_fresh(page, &self.policy).is_some();
        let count = |process| self.pages.iter().filter(|page| is_served(process, page)).count();
        self.processes.iter().map(count).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_reads_of_three_processes_do_not_depend_on_the_number_of_pages() {
    const SECONDS: u32 = 20;
    for number in [100, 10_000] {
        let fleet = Fleet::start(number).await;
        for _ in 0..2 {
            tokio::time::sleep(SECONDS / 2 * SECOND).await;
            assert_eq!(fleet.served_from_memory(), [number; 3]);
        }
        let reads = fleet.take_reads();
        println!(
            "{number} pages in memory of 3 processes: {:.1} reads per second",
            f64::from(reads) / f64::from(SECONDS)
        );
        assert!(reads.abs_diff(SECONDS * 3 * READS_PER_SECOND) <= 6, "{number} pages: {reads} reads");

        fleet.processes[0].isr.invalidate(&fleet.pages[7], InvalidationMode::Hard).await.expect("a result");
        tokio::time::sleep(SECOND).await;
        let [here, others @ ..] = &fleet.served_from_memory()[..] else { panic!("three processes") };
        assert_eq!(others, [number - 1; 2], "the page is known to have changed everywhere");
        // The process that made the change counts it for pages with the same hash too.
        assert!((number - 1 - number / 100..number).contains(here), "{here} of {number}");
        let reads = fleet.take_reads();
        assert!(reads <= 3 * READS_PER_SECOND + 8, "{reads} reads");

        let tag = Tag::path("/8").expect("a tag");
        fleet.processes[1].isr.invalidate_tag(&tag, None).await.expect("no error");
        tokio::time::sleep(SECOND).await;
        let others = &fleet.served_from_memory()[1..];
        assert_eq!(others, [number - 2; 2], "only the page with the tag is read again");
    }
}
