//! Invalidation while pages are served and rendered: no page from before it is served as fresh after it.

use std::time::Duration;

use facetheory::{History, InvalidationMode, Rendered, State, Tag};

use crate::fixture::{INTERVAL, SECOND, Site, served, slow_bodies, state_and_body};

#[tokio::test(start_paused = true)]
async fn an_invalidation_through_this_process_applies_at_once_and_in_others_within_a_second() {
    let (site, other) = Site::in_two_processes();
    site.get("one").await;
    other.get("one").await;
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    assert_eq!(
        other.get("two").await,
        served(State::Hit, "one"),
        "the other process reads its metadata again after a second"
    );
    assert_eq!(site.get("two").await, served(State::Miss, "two"));
    tokio::time::advance(SECOND).await;
    assert_eq!(other.get("three").await, served(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_invalidated_during_its_render_is_served_only_to_the_client_that_started_it() {
    let site = Site::new();
    // It ends before the first refresh of the lease would notice the loss and cancel it.
    let slow = site.get_slow(SECOND * 5 / 2, Ok(Rendered::html("before")));
    let invalidate = async {
        tokio::time::sleep(SECOND).await;
        site.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("a result");
    };
    let follower = site.get_after(2 * SECOND, "after");
    let (slow, (), follower) = tokio::join!(slow, invalidate, follower);
    assert_eq!(
        state_and_body(slow),
        served(State::Bypass, "before"),
        "its client gets the page all the same"
    );
    assert_eq!(
        follower,
        served(State::Miss, "after"),
        "a request after the invalidation does not get the page from before it"
    );
    assert_eq!(site.get("later").await, served(State::Hit, "after"));
}

#[tokio::test(start_paused = true)]
async fn a_soft_invalidated_page_is_served_stale_and_regenerated() {
    let site = Site::with_page().await;
    tokio::time::advance(SECOND).await;
    site.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("a result");
    assert_eq!(site.get("two").await, served(State::Stale, "one"));
    site.settle().await;
    assert_eq!(site.get("three").await, served(State::Hit, "two"));
    tokio::time::advance(INTERVAL - SECOND).await;
    assert_eq!(site.get("three").await, served(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_tag_was_hard_invalidated_is_rendered_again_before_it_is_served() {
    for fresh in [true, false] {
        let (site, other) = Site::in_two_processes();
        site.get("one").await;
        other.get("one").await;
        if !fresh {
            tokio::time::advance(2 * INTERVAL).await;
        }
        let (tag, mode) = (Tag::everything(), InvalidationMode::Hard);
        site.isr.invalidate_tag_with(&tag, None, mode).await.expect("a result");
        tokio::time::advance(SECOND).await;
        assert!(other.get_failing().await.is_err(), "the page from before is not served if the render fails");
        tokio::time::advance(10 * SECOND).await;
        assert_eq!(other.get("two").await, served(State::Miss, "two"));
        assert_eq!(site.get("three").await, served(State::Hit, "two"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_after_an_invalidation_does_not_join_a_read_that_started_before_it() {
    let site = Site::on(|builder| builder, slow_bodies(5 * SECOND));
    site.get("before").await;
    let other = site.another();
    let follower = async {
        tokio::time::sleep(SECOND).await;
        other.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
        other.get("after").await
    };
    let (reader, follower) = tokio::join!(other.get("never"), follower);
    assert_eq!(reader, served(State::Hit, "before"), "the request was before the invalidation");
    assert_eq!(follower, served(State::Miss, "after"));
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_tag_was_invalidated_during_its_render_is_not_served_as_fresh() {
    let (site, other) = Site::in_two_processes();
    let slow = site.get_slow(5 * SECOND, Ok(Rendered::html("before")));
    let follower = async {
        tokio::time::sleep(SECOND).await;
        other.isr.invalidate_tag(&Tag::everything(), None).await.expect("a result");
        tokio::time::sleep(2 * SECOND).await;
        site.get("after").await
    };
    let (slow, follower) = tokio::join!(slow, follower);
    assert_eq!(
        state_and_body(slow),
        served(State::Miss, "before"),
        "the request was before the invalidation"
    );
    assert_eq!(follower, served(State::Stale, "before"), "it may be served, but not as fresh");
    site.settle().await;
    assert_eq!(site.get("later").await, served(State::Hit, "after"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_takes_longer_to_render_than_it_is_fresh_is_served_to_all_waiting_requests() {
    let site = Site::new().with(|policy| {
        *policy = policy.blocking();
        policy.revalidate = 2 * SECOND;
    });
    let slow = site.get_slow(5 * SECOND, Ok(Rendered::html("one")));
    let follower = site.get_after(SECOND, "two");
    let (slow, follower) = tokio::join!(slow, follower);
    assert_eq!((state_and_body(slow), follower), (served(State::Miss, "one"), served(State::WaitHit, "one")));
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_policy_sets_the_duration_of_the_lease() {
    let site = Site::new().with(|policy| policy.lease = Some(7 * SECOND));
    let render = site.get_slow(SECOND, Ok(Rendered::html("one")));
    let look = async {
        tokio::time::sleep(SECOND / 2).await;
        site.isr.lookup(&site.page).await.expect("a result").lock.expect("a lease")
    };
    let now = site.isr.now().seconds();
    let (_, lock) = tokio::join!(render, look);
    assert_eq!(lock.lease_expires_at, now + 7);
}

#[tokio::test(start_paused = true)]
async fn publishing_a_version_deletes_old_ones() {
    let site = Site::new().with(|policy| {
        policy.history = History::Versions;
        policy.versions = Some(2);
    });
    for content in ["one", "two", "three", "four", "five"] {
        site.get(content).await;
        site.settle().await;
        tokio::time::advance(INTERVAL).await;
        site.get(content).await;
        site.settle().await;
    }
    let versions = site.isr.versions(&site.page, 100).await.expect("a result");
    assert_eq!(versions.len(), 3, "the current version, and two before it");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_started_before_a_hard_invalidation_was_noticed_does_not_restore_the_page() {
    let site = Site::on(|builder| builder, slow_bodies(5 * SECOND));
    site.get("before").await;
    let other = site.another_built(|builder| builder.metadata_max_age(Duration::ZERO));
    let follower = async {
        tokio::time::sleep(SECOND).await;
        site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
        other.get_failing().await.expect_err("no page may be served");
    };
    let (reader, ()) = tokio::join!(other.get("never"), follower);
    assert_eq!(reader, served(State::Hit, "before"), "the request was before the invalidation");
    site.table.break_down();
    assert_eq!(
        other.get("never").await.0,
        State::Bypass,
        "the page must not be served, and the table is unreachable"
    );
}
