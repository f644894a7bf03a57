//! Outages: memory goes on serving, marked; what is not in memory is passed through.

use std::time::Duration;

use facetheory::{State, Strength};

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
