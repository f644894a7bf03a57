//! What goes on in the background: it survives its visitor, is bounded, and ends with the process.

use std::time::Duration;

use facetheory::{PageKey, Rendered, State};

use crate::fixture::{INTERVAL, SECOND, Site, sees};

#[tokio::test(start_paused = true)]
async fn a_render_survives_the_visitor_who_started_it() {
    let site = Site::new();
    let visit = site.visit_slow(3 * SECOND, Ok(Rendered::html("one")));
    assert!(tokio::time::timeout(SECOND, visit).await.is_err(), "the visitor goes away");
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(site.visit("two").await, sees(State::Hit, "one"));
}

#[tokio::test(start_paused = true)]
async fn only_so_many_pages_are_renewed_at_once_and_wait_for_their_turn() {
    let site = Site::built(|builder| builder.background(2, 3));
    let pages: Vec<Site> = (0..10)
        .map(|page| Site { page: PageKey::new(format!("/{page}")).expect("a page"), ..site.clone() })
        .collect();
    for page in &pages {
        page.visit("one").await;
    }
    tokio::time::advance(INTERVAL).await;
    site.renders();
    for page in &pages {
        let visit = page.visit_slow(SECOND, Ok(Rendered::html("two"))).await;
        assert_eq!(crate::fixture::seen(visit), sees(State::Stale, "one"));
    }
    site.settle().await;
    assert_eq!(site.renders(), 2, "two at once");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(site.renders(), 3, "three waited for their turn; the rest is left to the next visitors");
}

#[tokio::test(start_paused = true)]
async fn what_goes_on_is_waited_for_when_the_process_ends() {
    let site = Site::new();
    site.visit("one").await;
    tokio::time::advance(INTERVAL).await;
    let visit = site.visit_slow(3 * SECOND, Ok(Rendered::html("two"))).await;
    assert_eq!(crate::fixture::seen(visit), sees(State::Stale, "one"));
    assert!(site.isr.shut_down(10 * SECOND).await);
    assert_eq!(site.another().visit("three").await, sees(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_given_up_and_its_lease_given_back() {
    let site = Site::new();
    site.visit("one").await;
    tokio::time::advance(INTERVAL).await;
    let visit = site.visit_slow(Duration::from_secs(25), Ok(Rendered::html("two"))).await;
    assert_eq!(crate::fixture::seen(visit), sees(State::Stale, "one"));
    assert!(!site.isr.shut_down(SECOND).await);
    let view = site.isr.lookup(&site.page).await.expect("an answer");
    assert_eq!(view.lock, None, "nobody has to wait for it to expire");
    assert_eq!(site.visit("two").await, sees(State::Stale, "one"), "visitors are served to the end");
    site.settle().await;
    assert_eq!(site.visit("two").await, sees(State::Stale, "one"), "but nothing more is begun for them");
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_on_after_the_end_although_the_table_does_not_answer() {
    const LONG: Duration = Duration::from_secs(10_000);
    let site = Site::new();
    let visit = site.visit_slow(SECOND, Ok(Rendered::html("one")));
    assert!(tokio::time::timeout(SECOND / 2, visit).await.is_err(), "the visitor goes away");
    site.table.slow_down(LONG);
    assert!(!site.isr.shut_down(SECOND).await);
    site.table.take();
    tokio::time::sleep(2 * LONG).await;
    assert_eq!(site.table.take(), (0, 0));
    site.table.come_back();
    let view = site.isr.lookup(&site.page).await.expect("an answer");
    assert_eq!(view.meta, None, "what was on its way to the table was given up");
}

#[tokio::test(start_paused = true)]
async fn a_renderer_that_panics_has_failed_and_keeps_nobody_waiting() {
    let site = Site::new();
    let render = |_| async {
        let pages: Vec<Rendered> = Vec::new();
        Ok(pages.into_iter().next().expect("a page"))
    };
    let error = site.isr.get(&site.page, &site.policy, render).await.expect_err("it panics");
    let shared = std::error::Error::source(&error).expect("the error that all who waited share");
    let cause = std::error::Error::source(shared).expect("its cause").to_string();
    assert_eq!(cause, "the render panicked: a page");
    assert_eq!(site.visit("one").await, sees(State::Miss, "one"), "its lease was given back");
}
