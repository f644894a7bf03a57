//! Invalidation while pages are visited and rendered: nothing from before is ever fresh after it.

use facetheory::{Rendered, State, Strength};

use crate::fixture::{INTERVAL, SECOND, Site, seen, sees};

#[tokio::test(start_paused = true)]
async fn an_invalidation_through_this_process_applies_at_once_and_in_others_within_a_second() {
    let site = Site::new();
    let other = site.another();
    site.visit("one").await;
    other.visit("one").await;
    site.isr.invalidate(&site.page, Strength::Hard).await.expect("an answer");
    assert_eq!(other.visit("two").await, sees(State::Hit, "one"), "it is believed for a second");
    assert_eq!(site.visit("two").await, sees(State::Miss, "two"));
    tokio::time::advance(SECOND).await;
    assert_eq!(other.visit("three").await, sees(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_render_that_is_invalidated_meanwhile_is_for_its_visitor_alone() {
    let site = Site::new();
    let slow = site.visit_slow(3 * SECOND, Ok(Rendered::html("before")));
    let invalidate = async {
        tokio::time::sleep(SECOND).await;
        site.isr.invalidate(&site.page, Strength::Soft).await.expect("an answer");
    };
    let follower = async {
        tokio::time::sleep(2 * SECOND).await;
        site.visit("after").await
    };
    let (slow, (), follower) = tokio::join!(slow, invalidate, follower);
    assert_eq!(seen(slow), sees(State::Bypass, "before"), "it gets an answer all the same");
    assert_eq!(
        follower,
        sees(State::Miss, "after"),
        "whoever came after it does not get what is from before"
    );
    assert_eq!(site.visit("later").await, sees(State::Hit, "after"));
}

#[tokio::test(start_paused = true)]
async fn a_soft_invalidation_is_served_stale_once_and_renewed() {
    let site = Site::new();
    site.visit("one").await;
    tokio::time::advance(SECOND).await;
    site.isr.invalidate(&site.page, Strength::Soft).await.expect("an answer");
    assert_eq!(site.visit("two").await, sees(State::Stale, "one"));
    site.settle().await;
    assert_eq!(site.visit("three").await, sees(State::Hit, "two"));
    tokio::time::advance(INTERVAL - SECOND).await;
    assert_eq!(site.visit("three").await, sees(State::Hit, "two"));
}
