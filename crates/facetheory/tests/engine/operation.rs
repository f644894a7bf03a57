//! Invalidation while pages are visited and rendered: nothing from before is ever fresh after it.

use std::time::Duration;

use facetheory::{History, InvalidationMode, Rendered, State, Tag};

use crate::fixture::{INTERVAL, SECOND, Site, seen, sees, slow_bodies};

#[tokio::test(start_paused = true)]
async fn an_invalidation_through_this_process_applies_at_once_and_in_others_within_a_second() {
    let site = Site::new();
    let other = site.another();
    site.visit("one").await;
    other.visit("one").await;
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("an answer");
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
        site.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("an answer");
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
    site.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("an answer");
    assert_eq!(site.visit("two").await, sees(State::Stale, "one"));
    site.settle().await;
    assert_eq!(site.visit("three").await, sees(State::Hit, "two"));
    tokio::time::advance(INTERVAL - SECOND).await;
    assert_eq!(site.visit("three").await, sees(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_after_an_invalidation_is_not_given_what_another_was_reading_before_it() {
    let site = Site::on(|builder| builder, slow_bodies(5 * SECOND));
    site.visit("before").await;
    let other = site.another();
    let follower = async {
        tokio::time::sleep(SECOND).await;
        other.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("an answer");
        other.visit("after").await
    };
    let (reader, follower) = tokio::join!(other.visit("never"), follower);
    assert_eq!(reader, sees(State::Hit, "before"), "it came before");
    assert_eq!(follower, sees(State::Miss, "after"));
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_tag_was_invalidated_while_it_was_rendered_is_never_shown_as_new() {
    let site = Site::new();
    let other = site.another();
    let slow = site.visit_slow(5 * SECOND, Ok(Rendered::html("before")));
    let follower = async {
        tokio::time::sleep(SECOND).await;
        other.isr.invalidate_tag(&Tag::everything(), None).await.expect("an answer");
        tokio::time::sleep(2 * SECOND).await;
        site.visit("after").await
    };
    let (slow, follower) = tokio::join!(slow, follower);
    assert_eq!(seen(slow), sees(State::Miss, "before"), "it came before");
    assert_eq!(follower, sees(State::Stale, "before"), "it may have that, but not as new");
    site.settle().await;
    assert_eq!(site.visit("later").await, sees(State::Hit, "after"));
}

#[tokio::test(start_paused = true)]
async fn what_was_rendered_for_longer_than_it_is_fresh_is_given_to_all_who_waited_for_it() {
    let site = Site::new().with(|policy| {
        *policy = policy.blocking();
        policy.revalidate = 2 * SECOND;
    });
    let slow = site.visit_slow(5 * SECOND, Ok(Rendered::html("one")));
    let follower = async {
        tokio::time::sleep(SECOND).await;
        site.visit("two").await
    };
    let (slow, follower) = tokio::join!(slow, follower);
    assert_eq!((seen(slow), follower), (sees(State::Miss, "one"), sees(State::WaitHit, "one")));
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_as_long_as_the_policy_says() {
    let site = Site::new().with(|policy| policy.lease = Some(7 * SECOND));
    let render = site.visit_slow(SECOND, Ok(Rendered::html("one")));
    let look = async {
        tokio::time::sleep(SECOND / 2).await;
        site.isr.lookup(&site.page).await.expect("an answer").lock.expect("it is rendered")
    };
    let now = site.isr.now().seconds();
    let (_, lock) = tokio::join!(render, look);
    assert_eq!(lock.lease_expires_at, now + 7);
}

#[tokio::test(start_paused = true)]
async fn old_versions_go_when_a_new_one_is_published() {
    let site = Site::new().with(|policy| {
        policy.history = History::Versions;
        policy.versions = Some(2);
    });
    for content in ["one", "two", "three", "four", "five"] {
        site.visit(content).await;
        site.settle().await;
        tokio::time::advance(INTERVAL).await;
        site.visit(content).await;
        site.settle().await;
    }
    let versions = site.isr.versions(&site.page, 100).await.expect("an answer");
    assert_eq!(versions.len(), 3, "the one that is served, and two before it");
}

#[tokio::test(start_paused = true)]
async fn what_was_read_before_a_page_was_seen_to_be_forbidden_does_not_come_back() {
    let site = Site::on(|builder| builder, slow_bodies(5 * SECOND));
    site.visit("before").await;
    let other = site.another_built(|builder| builder.metadata_max_age(Duration::ZERO));
    let follower = async {
        tokio::time::sleep(SECOND).await;
        site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("an answer");
        other.visit_failing().await.expect_err("there is nothing to be served");
    };
    let (reader, ()) = tokio::join!(other.visit("never"), follower);
    assert_eq!(reader, sees(State::Hit, "before"), "it came before");
    site.table.break_down();
    assert_eq!(
        other.visit("never").await.0,
        State::Bypass,
        "it must not be served, and the table is not there"
    );
}
