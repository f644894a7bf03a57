//! Pages whose bodies were evicted from memory: a request reads only the body while the metadata, which stays, is current.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use facetheory::{
    Feed, GetResult, Incident, InvalidationMode, IsrBuilder, Outcome, PageKey, PageStore, Pages,
    RegenerateReason, Rendered, State, Tag,
};

use crate::fixture::{INTERVAL, SECOND, Site};

/// Room for the bodies of some pages, and for the metadata of all.
const MEMORY: u64 = 128 * 1024;
const PAGES: usize = 20;

fn small(builder: IsrBuilder) -> IsrBuilder {
    builder.memory(MEMORY)
}

fn exclusive(builder: IsrBuilder) -> IsrBuilder {
    small(builder).feed(Feed::Exclusive)
}

async fn get(page: &Site) -> State {
    let body = Rendered::html("x".repeat(8 * 1024));
    match page.get_slow(Duration::ZERO, Ok(body)).await.expect("no error") {
        GetResult::Page(served) => served.state,
        GetResult::Bypass(_) => State::Bypass,
    }
}

/// The pages of a process, all of which were requested.
async fn pages(process: &Site) -> Vec<Site> {
    let page = |number| PageKey::new(format!("/{number}")).expect("a page").at_path(format!("/{number}"));
    let pages: Vec<Site> = (0..PAGES).map(|number| Site { page: page(number), ..process.clone() }).collect();
    for page in &pages {
        get(page).await;
    }
    process.table.take();
    pages
}

/// The pages of a process that relies on the feed.
async fn watched_pages() -> Vec<Site> {
    let process = Site::built(exclusive).with(|policy| policy.revalidate = 60 * INTERVAL);
    // The feed has been read.
    tokio::time::sleep(SECOND).await;
    pages(&process).await
}

fn is_evicted(page: &Site) -> bool {
    page.isr.get_fresh(&page.page, &page.policy).is_none()
}

fn evicted(pages: &[Site]) -> &Site {
    pages.iter().find(|page| is_evicted(page)).expect("memory does not hold all bodies")
}

#[tokio::test(start_paused = true)]
async fn while_metadata_is_current_only_the_body_is_read() {
    let pages = pages(&Site::built(small)).await;
    for _ in 0..3 {
        for page in &pages {
            assert_eq!(get(page).await, State::Hit);
        }
    }
    let (held, bytes) = pages[0].isr.in_memory();
    assert!(held < PAGES && bytes <= MEMORY, "{held} pages of {bytes} bytes");
    assert_eq!(pages[0].table.take(), (0, 0));
    tokio::time::sleep(SECOND).await;
    assert_eq!(get(evicted(&pages)).await, State::Hit);
    assert!(pages[0].table.take().0 > 0, "the metadata is too old");
}

#[tokio::test(start_paused = true)]
async fn metadata_stays_current_for_as_long_as_the_feed_does_not_name_the_page() {
    let pages = watched_pages().await;
    for _ in 0..10 {
        tokio::time::sleep(60 * SECOND).await;
        pages[0].table.take();
        for page in &pages {
            assert_eq!(get(page).await, State::Hit);
        }
        assert_eq!(pages[0].table.take(), (0, 0));
    }
    tokio::time::sleep(60 * INTERVAL).await;
    assert_eq!(get(evicted(&pages)).await, State::Stale, "the interval has ended");
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_through_this_process_is_seen_at_once() {
    let pages = watched_pages().await;
    let page = evicted(&pages);
    page.isr.invalidate(&page.page, InvalidationMode::Soft).await.expect("a result");
    assert_eq!(get(page).await, State::Stale);
    page.settle().await;

    let page = evicted(&pages);
    page.isr.invalidate(&page.page, InvalidationMode::Hard).await.expect("a result");
    assert_eq!(get(page).await, State::Miss);

    let page = evicted(&pages);
    page.isr.invalidate_tag(&Tag::path("/").expect("a tag"), None).await.expect("no error");
    assert_eq!(get(page).await, State::Stale);
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_by_another_process_is_seen_through_the_feed() {
    let pages = watched_pages().await;
    let other = pages[0].another_built(|builder| builder.feed(Feed::Exclusive));
    let page = evicted(&pages);
    other.isr.invalidate(&page.page, InvalidationMode::Soft).await.expect("a result");
    tokio::time::sleep(SECOND).await;
    assert_eq!(get(page).await, State::Stale);
    page.settle().await;

    let page = evicted(&pages);
    other.isr.invalidate(&page.page, InvalidationMode::Hard).await.expect("a result");
    tokio::time::sleep(SECOND).await;
    assert_eq!(get(page).await, State::Miss);

    let page = evicted(&pages);
    other.isr.invalidate_tag(&Tag::path("/").expect("a tag"), None).await.expect("no error");
    tokio::time::sleep(SECOND).await;
    assert_eq!(get(page).await, State::Stale);
}

/// Pages whose incidents are counted: reads of bodies that are missing.
async fn counted_pages() -> (Vec<Site>, Arc<AtomicU32>) {
    let incidents = Arc::new(AtomicU32::new(0));
    let counter = incidents.clone();
    let count = move |_: &Incident<'_>| {
        counter.fetch_add(1, Ordering::SeqCst);
    };
    let process = Site::built(|builder| small(builder).on_incident(count));
    (pages(&process).await, incidents)
}

async fn delete_body(page: &Site) {
    let meta = page.isr.lookup(&page.page).await.expect("a lookup").meta.expect("a page");
    page.bodies.delete(&meta.generation.s3_key).await.expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_body_is_missing_is_looked_up_and_rendered_again() {
    let (pages, incidents) = counted_pages().await;
    let page = evicted(&pages);
    delete_body(page).await;
    page.table.take();
    assert!(page.get_failing().await.is_err());
    assert!(page.table.take().0 > 0, "the table was read");
    let before = incidents.load(Ordering::SeqCst);
    assert!(page.get_failing().await.is_err());
    // One incident for the body that `META` names, and one for the render.
    assert_eq!(incidents.load(Ordering::SeqCst), before + 2, "the metadata was forgotten");
    assert_eq!(get(page).await, State::Miss);
}

#[tokio::test(start_paused = true)]
async fn the_body_of_outdated_metadata_is_not_read() {
    let (pages, incidents) = counted_pages().await;
    let (page, other) = (evicted(&pages), pages[0].another());
    delete_body(page).await;
    tokio::time::sleep(SECOND).await;
    let newer = Site { page: page.page.clone(), ..other };
    assert_eq!(get(&newer).await, State::Miss);
    assert_eq!(get(page).await, State::Hit);
    assert_eq!(incidents.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_missing_because_it_was_replaced_is_no_incident() {
    let (pages, incidents) = counted_pages().await;
    let page = evicted(&pages);
    let old = page.isr.lookup(&page.page).await.expect("a lookup").meta.expect("a page").generation;
    let other = Pages::new(PageStore::new(page.table.clone()), page.bodies.clone());
    let reason = RegenerateReason::EarlyRefresh(old.generated_at);
    let render = |_| async { Ok(Rendered::html("newer")) };
    let published = other.regenerate_for(&page.page, &page.policy, &reason, render).await;
    assert!(matches!(published, Ok(Outcome::Published(_))), "{published:?}");
    page.bodies.delete(&old.s3_key).await.expect("deleted");
    // The metadata in memory is less than a second old, and names the body that is gone.
    assert_eq!(page.get("not rendered").await, (State::Hit, "newer".to_owned()));
    assert_eq!(incidents.load(Ordering::SeqCst), 0);
}
