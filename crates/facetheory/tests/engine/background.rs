//! Background work: it continues without its client, is limited, and ends at shutdown.

use std::time::Duration;

use facetheory::{PageKey, Rendered, State};

use crate::fixture::{INTERVAL, SECOND, Site, served, state_and_body};

/// A process with a stale page "one" that it replaces by "two", in the background and in so much time.
async fn rendering_in_the_background(render_time: Duration) -> Site {
    let site = Site::with_page().await;
    tokio::time::advance(INTERVAL).await;
    let response = site.get_slow(render_time, Ok(Rendered::html("two"))).await;
    assert_eq!(state_and_body(response), served(State::Stale, "one"));
    site
}

#[tokio::test(start_paused = true)]
async fn a_render_continues_after_its_client_disconnected() {
    let site = Site::new();
    let response = site.get_slow(3 * SECOND, Ok(Rendered::html("one")));
    assert!(tokio::time::timeout(SECOND, response).await.is_err(), "the client disconnects");
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(site.get("two").await, served(State::Hit, "one"));
}

#[tokio::test(start_paused = true)]
async fn background_renders_and_their_queue_are_limited() {
    let site = Site::built(|builder| builder.background(2, 3));
    let pages: Vec<Site> = (0..10)
        .map(|page| Site { page: PageKey::new(format!("/{page}")).expect("a page"), ..site.clone() })
        .collect();
    for page in &pages {
        page.get("one").await;
    }
    tokio::time::advance(INTERVAL).await;
    site.renders();
    for page in &pages {
        let response = page.get_slow(SECOND, Ok(Rendered::html("two"))).await;
        assert_eq!(state_and_body(response), served(State::Stale, "one"));
    }
    site.settle().await;
    assert_eq!(site.renders(), 2, "two at the same time");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(site.renders(), 3, "three were queued; the rest is left to later requests");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_background_renders() {
    let site = rendering_in_the_background(3 * SECOND).await;
    assert!(site.isr.shut_down(10 * SECOND).await);
    assert_eq!(site.another().get("three").await, served(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn shutdown_cancels_a_slow_render_and_releases_its_lease() {
    let site = rendering_in_the_background(25 * SECOND).await;
    assert!(!site.isr.shut_down(SECOND).await);
    let view = site.isr.lookup(&site.page).await.expect("a result");
    assert_eq!(view.lock, None, "other processes need not wait until it expires");
    assert_eq!(site.get("two").await, served(State::Stale, "one"), "requests are served after shutdown");
    site.settle().await;
    assert_eq!(site.get("two").await, served(State::Stale, "one"), "but no background work is started");
}

#[tokio::test(start_paused = true)]
async fn no_work_continues_after_shutdown_even_if_the_table_does_not_respond() {
    const LONG: Duration = Duration::from_secs(10_000);
    let site = Site::new();
    let response = site.get_slow(SECOND, Ok(Rendered::html("one")));
    assert!(tokio::time::timeout(SECOND / 2, response).await.is_err(), "the client disconnects");
    site.table.slow_down(LONG);
    assert!(!site.isr.shut_down(SECOND).await);
    site.table.take();
    tokio::time::sleep(2 * LONG).await;
    assert_eq!(site.table.take(), (0, 0));
    site.table.come_back();
    let view = site.isr.lookup(&site.page).await.expect("a result");
    assert_eq!(view.meta, None, "the pending write was cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_renderer_is_a_failed_render_and_releases_the_lease() {
    let site = Site::new();
    let render = |_| async {
        let pages: Vec<Rendered> = Vec::new();
        Ok(pages.into_iter().next().expect("a page"))
    };
    let error = site.isr.get(&site.page, &site.policy, render).await.expect_err("the renderer panics");
    let shared = std::error::Error::source(&error).expect("the error that all waiting requests share");
    let cause = std::error::Error::source(shared).expect("its cause").to_string();
    assert_eq!(cause, "the render panicked: a page");
    assert_eq!(site.get("one").await, served(State::Miss, "one"), "the lease was released");
}

#[tokio::test(start_paused = true)]
async fn settling_waits_for_background_renders_and_the_engine_works_on() {
    let site = Site::with_page().await;
    for body in ["two", "three"] {
        tokio::time::advance(INTERVAL).await;
        let response = site.get_slow(3 * SECOND, Ok(Rendered::html(body))).await;
        assert_eq!(state_and_body(response).0, State::Stale);
        assert!(site.isr.settle(10 * SECOND).await);
        assert_eq!(site.get("other").await, served(State::Hit, body));
        assert_eq!(site.isr.lookup(&site.page).await.expect("a result").lock, None);
    }
}

#[tokio::test(start_paused = true)]
async fn settling_cancels_a_slow_render_and_later_renders_are_not_cancelled() {
    let site = rendering_in_the_background(25 * SECOND).await;
    assert!(!site.isr.settle(SECOND).await);
    assert_eq!(site.isr.lookup(&site.page).await.expect("a result").lock, None, "the lease is released");
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.get("three").await, served(State::Stale, "one"));
    assert!(site.isr.settle(SECOND).await);
    assert_eq!(site.get("four").await, served(State::Hit, "three"));
}

#[tokio::test(start_paused = true)]
async fn settling_ends_even_if_the_table_does_not_respond_and_the_engine_recovers() {
    let site = Site::new();
    let response = site.get_slow(SECOND, Ok(Rendered::html("one")));
    assert!(tokio::time::timeout(SECOND / 2, response).await.is_err(), "the client disconnects");
    site.table.slow_down(Duration::from_secs(10_000));
    assert!(!site.isr.settle(SECOND).await);
    site.table.come_back();
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.get("two").await, served(State::Miss, "two"));
    assert!(site.isr.settle(SECOND).await);
}
