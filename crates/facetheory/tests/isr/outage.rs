//! Outages: memory goes on serving, marked; what is not in memory is passed through.

use std::sync::Arc;
use std::time::Duration;

use facetheory::{Bodies, PageKey, State, Strength};
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

use crate::fixture::{INTERVAL, SECOND, Site, seen, sees};

#[tokio::test(start_paused = true)]
async fn while_the_table_is_down_memory_serves_and_marks_it() {
    let site = Site::new();
    site.visit("one").await;
    site.table.break_down();
    assert_eq!(site.visit("two").await, sees(State::Hit, "one"), "it is believed for a second anyway");
    for _ in 0..60 {
        tokio::time::advance(SECOND).await;
        assert_eq!(site.visit("two").await, sees(State::StaleMetadataError, "one"));
    }
    assert_eq!(site.another().visit("two").await, sees(State::Bypass, "the store cannot be reached"));
    site.table.come_back();
    tokio::time::advance(SECOND).await;
    assert_eq!(site.visit("two").await, sees(State::Stale, "one"), "its interval has passed meanwhile");
    site.settle().await;
    assert_eq!(site.visit("three").await, sees(State::Hit, "two"));
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_down_is_asked_now_and_then_and_not_by_everyone() {
    let site = Site::new();
    site.visit("one").await;
    site.table.break_down();
    tokio::time::advance(SECOND).await;
    site.table.take();
    for _ in 0..1000 {
        assert_eq!(site.visit("two").await.0, State::StaleMetadataError);
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let (reads, _) = site.table.take();
    assert!((5..40).contains(&reads), "{reads} reads in ten seconds");
    site.table.come_back();
    tokio::time::advance(SECOND).await;
    let visits = (0..100).map(|_| site.visit("two"));
    let mut visits: Vec<_> = visits.map(Box::pin).collect();
    for visit in &mut visits {
        assert_eq!(visit.as_mut().await.0, State::Hit);
    }
    let (reads, _) = site.table.take();
    assert!(reads <= 2, "no thundering after it came back: {reads}");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_must_not_be_served_is_not_even_while_the_table_is_down() {
    let site = Site::new();
    site.visit("one").await;
    site.isr.invalidate(&site.page, Strength::Hard).await.expect("an answer");
    tokio::time::advance(SECOND).await;
    // This visitor finds out, and cannot render.
    assert!(site.visit_failing().await.is_err());
    site.table.break_down();
    tokio::time::advance(SECOND).await;
    assert_eq!(site.visit("two").await, sees(State::Bypass, "the store cannot be reached"));
}

#[tokio::test(start_paused = true)]
async fn a_page_too_old_to_be_served_on_errors_is_not_served_on_this_one() {
    let site = Site::new().with(|policy| {
        policy.stale_while_revalidate = Some(SECOND);
        policy.stale_if_error = Some(10 * SECOND);
    });
    site.visit("one").await;
    site.table.break_down();
    tokio::time::advance(INTERVAL + 10 * SECOND).await;
    assert_eq!(site.visit("two").await, sees(State::StaleMetadataError, "one"));
    tokio::time::advance(SECOND).await;
    assert_eq!(site.visit("two").await, sees(State::Bypass, "the store cannot be reached"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_cannot_be_published_is_for_its_visitor_alone() {
    let site = Site::new();
    let table = site.table.clone();
    let render = move |_| async move {
        table.break_down();
        Ok(facetheory::Rendered::html("one"))
    };
    let answer = site.isr.get(&site.page, &site.policy, render).await;
    assert_eq!(seen(answer), sees(State::Bypass, "one"));
    site.table.come_back();
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.visit("two").await, sees(State::Miss, "two"));
}

#[tokio::test(start_paused = true)]
async fn while_the_bodies_never_answer_memory_serves_and_the_rest_is_passed_through_without_waiting() {
    let silent = ThrottleConfig {
        wait_get_per_call: 1000 * SECOND,
        wait_put_per_call: 1000 * SECOND,
        ..ThrottleConfig::default()
    };
    let bodies = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
    let site = Site::on(|builder| builder, Bodies::over(bodies.clone()));
    let at = |site: &Site, page: &str| Site { page: PageKey::new(page).expect("a page"), ..site.clone() };
    site.visit("one").await;
    let elsewhere = at(&site, "/elsewhere");
    at(&site.another(), "/elsewhere").visit("one").await;
    bodies.config_mut(|config| *config = silent);
    tokio::time::advance(INTERVAL).await;
    site.renders();
    let began = site.isr.pages().store().now();
    // It takes ten seconds to find out.
    let unreachable = sees(State::Bypass, "the store cannot be reached");
    assert_eq!(elsewhere.visit("two").await, unreachable);
    let mut waits = 0;
    for _ in 0..600 {
        let before = site.isr.pages().store().now();
        assert_eq!(site.visit("two").await, sees(State::Stale, "one"), "the table is there, and says so");
        assert_eq!(elsewhere.visit("two").await, unreachable);
        let missing = at(&site, "/missing").visit("two").await;
        assert!([sees(State::Bypass, "two"), unreachable.clone()].contains(&missing), "{missing:?}");
        let waited = site.isr.pages().store().now().millis() - before.millis();
        waits += u32::from(waited > 0);
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    let seconds =
        u32::try_from((site.isr.pages().store().now().millis() - began.millis()) / 1000).expect("some");
    let renders = site.renders();
    assert!(waits < 100, "now and then one finds out whether it is over: {waits} waited");
    assert!(renders <= seconds, "{renders} renders in {seconds} s, of which none could be kept");
    bodies.config_mut(|config| *config = ThrottleConfig::default());
    // What was under way has to find out, too.
    tokio::time::sleep(20 * SECOND).await;
    site.visit("three").await;
    site.settle().await;
    assert_eq!(site.visit("four").await.0, State::Hit);
    assert_eq!(elsewhere.visit("three").await, sees(State::Stale, "one"));
    assert_eq!(at(&site, "/missing").visit("three").await, sees(State::Miss, "three"));
}
