//! A page whose publish takes long is served once it is rendered, and published behind its responses.

use std::sync::Arc;
use std::time::Duration;

use facetheory::{Bodies, Invalidated, InvalidationMode, Outcome, PageKey, Rendered, State};
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use tokio::time::Instant;

use crate::fixture::{INTERVAL, SECOND, Site, exclusive, served, state_and_body};

/// How long a body takes to be stored.
const STORED_AFTER: Duration = Duration::from_secs(5);
/// How long a response waits for the publish of its page.
const WAIT: Duration = Duration::from_millis(100);

fn bodies_stored_after(time: Duration) -> Bodies {
    let slow = ThrottleConfig { wait_put_per_call: time, ..ThrottleConfig::default() };
    Bodies::over(Arc::new(ThrottledStore::new(InMemory::new(), slow)))
}

fn slow_site() -> Site {
    Site::on(|builder| builder, bodies_stored_after(STORED_AFTER))
}

/// Whether the page is published, and whether its lease is held.
async fn rows(site: &Site) -> (bool, bool) {
    let rows = site.isr.lookup(&site.page).await.expect("no error");
    (rows.meta.is_some(), rows.lock.is_some())
}

/// Requests the page, and returns the response with the time that it took.
async fn timed(site: &Site, body: &'static str) -> ((State, String), Duration) {
    let began = Instant::now();
    (site.get(body).await, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_page_is_served_although_its_publish_takes_long_and_is_published_later() {
    const HERD: usize = 300;
    let site = slow_site();
    let began = Instant::now();
    let get = |_| async { state_and_body(site.get_slow(SECOND / 2, Ok(Rendered::html("one"))).await) };
    let responses = futures_util::future::join_all((0..HERD).map(get)).await;
    let misses = responses.iter().filter(|response| **response == served(State::Miss, "one")).count();
    let waited = responses.iter().filter(|response| **response == served(State::WaitHit, "one")).count();
    assert_eq!((misses, waited), (1, HERD - 1));
    assert!(began.elapsed() <= SECOND / 2 + WAIT + WAIT / 10, "{:?}", began.elapsed());
    assert_eq!(rows(&site).await, (false, true));
    assert_eq!(site.isr.get_fresh(&site.page, &site.policy).expect("in memory").state, State::Hit);
    tokio::time::sleep(STORED_AFTER).await;
    assert_eq!(rows(&site).await, (true, false));
    assert_eq!(site.get("two").await, served(State::Hit, "one"));
    assert_eq!(site.another().get("two").await, served(State::Hit, "one"));
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_takes_no_longer_than_responses_wait_is_complete_before_the_response() {
    for (publish_wait, stored_after) in [(WAIT, WAIT / 2), (Duration::MAX, STORED_AFTER)] {
        let site = Site::on(|builder| builder.publish_wait(publish_wait), bodies_stored_after(stored_after));
        let (response, took) = timed(&site, "one").await;
        assert_eq!(response, served(State::Miss, "one"));
        assert!((stored_after..stored_after + WAIT / 10).contains(&took), "{took:?}");
        assert_eq!(rows(&site).await, (true, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_must_not_use_the_unpublished_page_waits_for_the_publish_and_renders_nothing() {
    let site = slow_site();
    site.get("one").await;
    // Metadata of the time before the render is too old by now, and another process has none.
    tokio::time::sleep(2 * SECOND).await;
    let other = site.another();
    let (response, other_response) = tokio::join!(timed(&site, "two"), timed(&other, "three"));
    for (response, took) in [response, other_response] {
        assert_eq!(response, served(State::WaitHit, "one"));
        assert!((2 * SECOND..STORED_AFTER).contains(&took), "{took:?}");
    }
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_could_not_be_published_is_forgotten() {
    for build in [|builder| builder, exclusive] {
        let site = Site::on(build, bodies_stored_after(1000 * SECOND));
        tokio::time::sleep(SECOND).await;
        assert_eq!(site.get("one").await, served(State::Miss, "one"));
        assert_eq!(site.isr.in_memory().0, 1);
        tokio::time::sleep(11 * SECOND).await;
        assert_eq!(rows(&site).await, (false, false), "the bodies did not respond within ten seconds");
        assert_eq!(site.isr.in_memory().0, 0);
        assert_eq!(site.get("two").await.1, "two");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_invalidated_during_its_publish_is_neither_published_nor_served_again() {
    for build in [|builder| builder, exclusive] {
        for mode in [InvalidationMode::Soft, InvalidationMode::Hard] {
            for by_other in [false, true] {
                let site = Site::on(build, bodies_stored_after(STORED_AFTER));
                let other = site.another_built(build);
                tokio::time::sleep(SECOND).await;
                assert_eq!(site.get("one").await, served(State::Miss, "one"));
                let engine = if by_other { &other.isr } else { &site.isr };
                assert_eq!(engine.invalidate(&site.page, mode).await.expect("no error"), Invalidated::Absent);
                if by_other {
                    // Another process is noticed only after `metadata_max_age`.
                    tokio::time::sleep(SECOND + SECOND / 10).await;
                }
                assert_eq!(site.get("two").await.1, "two", "{mode:?}, by the other process: {by_other}");
                tokio::time::sleep(2 * STORED_AFTER).await;
                assert_eq!(site.get("three").await, served(State::Hit, "two"));
                assert_eq!(other.get("three").await, served(State::Hit, "two"));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unpublished_page_does_not_replace_an_older_one_in_memory() {
    let bodies = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
    let site = Site::on(|builder| builder, Bodies::over(bodies.clone()));
    site.get("one").await;
    bodies.config_mut(|config| config.wait_put_per_call = 1000 * SECOND);
    tokio::time::sleep(INTERVAL).await;
    let blocking = site.with(|policy| policy.mode = facetheory::Mode::Blocking);
    assert_eq!(blocking.get("two").await, served(State::Miss, "two"));
    site.table.break_down();
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(site.get("three").await, served(State::StaleMetadataError, "one"));
}

#[tokio::test(start_paused = true)]
async fn few_pages_are_published_behind_their_responses_at_the_same_time() {
    /// The limit of the engine.
    const MAX_PUBLISHES: usize = 256;
    let site = slow_site();
    let pages = (0..=MAX_PUBLISHES).map(|number| {
        let page = PageKey::new(format!("/{number}")).expect("a page");
        let site = Site { page, ..site.clone() };
        async move { timed(&site, "one").await.1 }
    });
    let times = futures_util::future::join_all(pages).await;
    let behind = times.iter().filter(|took| **took < SECOND).count();
    assert_eq!(behind, MAX_PUBLISHES);
    assert!(times.iter().all(|took| *took <= STORED_AFTER + WAIT), "the last one waits for its publish");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_pages_that_are_published_behind_their_responses() {
    let site = slow_site();
    assert_eq!(site.get("one").await, served(State::Miss, "one"));
    assert!(site.isr.shut_down(2 * STORED_AFTER).await);
    assert_eq!(rows(&site).await, (true, false));
}

#[tokio::test(start_paused = true)]
async fn a_regeneration_on_demand_ends_with_the_publish() {
    let site = slow_site();
    let began = Instant::now();
    let outcome =
        site.isr.regenerate(&site.page, &site.policy, None, |_| async { Ok(Rendered::html("one")) }).await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))), "{outcome:?}");
    assert!(began.elapsed() >= STORED_AFTER);
    assert_eq!(rows(&site).await, (true, false));
}
