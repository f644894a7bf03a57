//! Every state, and every policy that leads to it.

use std::time::Duration;

use facetheory::{
    Contention, GetResult, History, InvalidationMode, Kind, OtherDeployment, Render, RenderContext, Rendered,
    RolledBack, State, Tag,
};

use crate::fixture::{INTERVAL, SECOND, Site, served, state_and_body};

#[tokio::test(start_paused = true)]
async fn a_page_is_rendered_then_served_from_memory_then_regenerated_in_the_background() {
    let site = Site::new();
    assert_eq!(site.get("one").await, served(State::Miss, "one"));
    assert_eq!(site.get("two").await, served(State::Hit, "one"));
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.get("two").await, served(State::Stale, "one"));
    site.settle().await;
    assert_eq!(site.get("three").await, served(State::Hit, "two"));
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn hits_read_the_table_only_after_metadata_max_age() {
    let site = Site::with_page().await;
    site.table.take();
    for _ in 0..100 {
        assert_eq!(site.get("two").await.0, State::Hit);
    }
    assert_eq!(site.table.take(), (0, 0));
    tokio::time::advance(SECOND).await;
    for _ in 0..100 {
        assert_eq!(site.get("two").await.0, State::Hit);
    }
    let (reads, commits) = site.table.take();
    assert!(reads <= 2 && commits == 0, "META, and the epochs of its tags: {reads}");
}

#[tokio::test(start_paused = true)]
async fn with_a_metadata_max_age_of_zero_every_request_reads_the_table() {
    let site = Site::built(|builder| builder.metadata_max_age(Duration::ZERO));
    let other = site.another();
    site.get("one").await;
    site.table.take();
    for _ in 0..10 {
        assert_eq!(site.get("two").await, served(State::Hit, "one"));
    }
    let (reads, _) = site.table.take();
    assert!(reads >= 10, "{reads}");
    other.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    assert_eq!(
        site.get("two").await,
        served(State::Miss, "two"),
        "an invalidation by another process applies at once"
    );
}

#[tokio::test(start_paused = true)]
async fn with_a_metadata_max_age_of_zero_an_invalidation_of_a_tag_by_another_process_applies_at_once() {
    let site = Site::built(|builder| builder.metadata_max_age(Duration::ZERO));
    let get = async |body| {
        let mut rendered = Rendered::html(body);
        rendered.content.tags = vec!["news".to_owned()];
        state_and_body(site.get_slow(Duration::ZERO, Ok(rendered)).await)
    };
    get("one").await;
    assert_eq!(get("two").await, served(State::Hit, "one"), "the tag was read and not invalidated");
    let news = Tag::new("news").expect("a tag");
    site.another().isr.invalidate_tag(&news, None).await.expect("a result");
    assert_eq!(get("two").await, served(State::Stale, "one"));
}

#[tokio::test(start_paused = true)]
async fn another_process_serves_the_published_page() {
    let site = Site::with_page().await;
    assert_eq!(site.another().get("two").await, served(State::Hit, "one"));
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn with_a_blocking_policy_a_request_for_a_stale_page_waits_for_the_new_one() {
    let site = Site::new().with(|policy| *policy = policy.blocking());
    site.get("one").await;
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.get("two").await, served(State::Miss, "two"));
}

#[tokio::test(start_paused = true)]
async fn stale_while_revalidate_limits_how_long_a_stale_page_is_served() {
    let site = Site::new().with(|policy| policy.stale_while_revalidate = Some(10 * SECOND));
    site.get("one").await;
    tokio::time::advance(INTERVAL + 10 * SECOND).await;
    assert_eq!(site.get("two").await, served(State::Stale, "one"));
    site.settle().await;
    tokio::time::advance(INTERVAL + 11 * SECOND).await;
    assert_eq!(site.get("three").await, served(State::Miss, "three"));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_render_of_another_process() {
    let (site, other) = Site::in_two_processes();
    let slow = site.get_slow(3 * SECOND, Ok(Rendered::html("one")));
    let waiting = other.get_after(SECOND, "two");
    let (slow, waiting) = tokio::join!(slow, waiting);
    assert_eq!(state_and_body(slow), served(State::Miss, "one"));
    assert_eq!(waiting, served(State::WaitHit, "one"));
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_the_wait_limit_a_request_gets_the_stale_page_or_bypasses() {
    let site = Site::new().with(|policy| policy.wait = 2 * SECOND);
    let other = site.another();
    let slow = site.get_slow(20 * SECOND, Ok(Rendered::html("one")));
    let (_, waiting) = tokio::join!(slow, other.get_after(SECOND, "two"));
    assert_eq!(waiting, served(State::Bypass, "waited-too-long"));
    let (site, other) =
        (site.with(|policy| *policy = policy.blocking()), other.with(|policy| *policy = policy.blocking()));
    tokio::time::advance(INTERVAL).await;
    let slow = site.get_slow(20 * SECOND, Ok(Rendered::html("two")));
    let (_, waiting) = tokio::join!(slow, other.get_after(SECOND, "three"));
    assert_eq!(waiting, served(State::Stale, "one"), "the stale page is served");
}

#[tokio::test(start_paused = true)]
async fn a_policy_can_prefer_the_stale_page_to_waiting_for_another_process() {
    let site = Site::new().with(|policy| {
        *policy = policy.blocking();
        policy.contention = Contention::ServeStale;
    });
    let other = site.another();
    site.get("one").await;
    tokio::time::advance(INTERVAL).await;
    let slow = site.get_slow(3 * SECOND, Ok(Rendered::html("two")));
    let (slow, contending) = tokio::join!(slow, other.get_after(SECOND, "three"));
    assert_eq!(state_and_body(slow), served(State::Miss, "two"));
    assert_eq!(contending, served(State::Stale, "one"));
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_render_the_stale_page_is_served_and_the_next_render_backs_off() {
    let site = Site::new().with(|policy| {
        *policy = policy.blocking();
        policy.stale_if_error = Some(100 * SECOND);
        policy.backoff = 10 * SECOND;
    });
    site.get("one").await;
    tokio::time::advance(INTERVAL).await;
    assert_eq!(state_and_body(site.get_failing().await), served(State::StaleError, "one"));
    assert_eq!(state_and_body(site.get_failing().await), served(State::StaleError, "one"));
    assert_eq!(site.renders(), 2, "the first render, and the failed one");
    tokio::time::advance(10 * SECOND).await;
    assert_eq!(state_and_body(site.get_failing().await), served(State::StaleError, "one"));
    assert_eq!(site.renders(), 1, "the render is tried again after the backoff");
    tokio::time::advance(100 * SECOND).await;
    let error = site.get_failing().await.expect_err("the page is too old");
    assert_eq!(error.kind(), Kind::Render);
    assert_eq!(site.get("two").await, served(State::Miss, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_render_in_the_background_backs_off_and_clients_do_not_notice() {
    let site = Site::with_page().await;
    tokio::time::advance(INTERVAL).await;
    for _ in 0..10 {
        assert_eq!(state_and_body(site.get_failing().await), served(State::Stale, "one"));
        site.settle().await;
    }
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_render_fails_after_its_timeout() {
    let site = Site::new().with(|policy| policy.render_timeout = 5 * SECOND);
    let error = site.get_slow(6 * SECOND, Ok(Rendered::html("late"))).await.expect_err("a timeout");
    let shared = std::error::Error::source(&error).expect("the error that all waiting requests share");
    let cause = std::error::Error::source(shared).expect("its cause").to_string();
    assert_eq!(cause, "the render took longer than 5s");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_render_lost_its_lease_gets_the_page_of_the_new_holder() {
    let site = Site::new();
    let slow = tokio::spawn({
        let site = site.clone();
        async move { state_and_body(site.get_slow(25 * SECOND, Ok(Rendered::html("one"))).await) }
    });
    tokio::time::sleep(SECOND).await;
    // An invalidation deletes the lease, as if the process had been frozen until its lease expired.
    let other = site.another();
    other.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("a result");
    assert_eq!(other.get("two").await, served(State::Miss, "two"));
    assert_eq!(slow.await.expect("no panic"), served(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_render_lost_its_lease_waits_for_the_new_holder() {
    let site = Site::new();
    let get = |site: &Site, body: &'static str| {
        let site = site.clone();
        tokio::spawn(async move { state_and_body(site.get_slow(8 * SECOND, Ok(Rendered::html(body))).await) })
    };
    let first = get(&site, "one");
    tokio::time::sleep(SECOND).await;
    let other = site.another();
    other.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("a result");
    let second = get(&other, "two");
    assert_eq!(first.await.expect("no panic"), served(State::WaitHit, "two"));
    assert_eq!(second.await.expect("no panic"), served(State::Miss, "two"));
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_render_longer_than_its_lease_is_published() {
    let site = Site::new().with(|policy| policy.render_timeout = 200 * SECOND);
    let slow = site.get_slow(100 * SECOND, Ok(Rendered::html("slow"))).await;
    assert_eq!(state_and_body(slow), served(State::Miss, "slow"));
    let other = site.another().get("other").await;
    assert_eq!(other, served(State::Stale, "slow"), "its age counts from the start of the render");
}

#[tokio::test(start_paused = true)]
async fn requests_for_an_uncacheable_page_bypass_without_waiting_for_each_other() {
    let site = Site::new();
    let get = async || {
        let renders = site.renders.clone();
        let render = move |_| async move {
            renders.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(Render::Declined)
        };
        state_and_body(site.isr.get(&site.page, &site.policy, render).await)
    };
    for _ in 0..3 {
        assert_eq!(get().await, served(State::Bypass, "not-cacheable"));
    }
    assert_eq!(site.renders(), 1, "the other requests bypass");
    tokio::time::advance(5 * SECOND).await;
    assert_eq!(site.get("one").await, served(State::Miss, "one"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_its_renderer_refuses_repeatedly_is_served_by_no_process() {
    let (site, other) = Site::in_two_processes();
    let get = async |site: &Site| {
        let result = site.isr.get(&site.page, &site.policy, |_| async { Ok(Render::Invalidate) }).await;
        site.settle().await;
        state_and_body(result)
    };
    assert_eq!(site.get("one").await, served(State::Miss, "one"));
    assert_eq!(other.get("one").await, served(State::Hit, "one"));
    tokio::time::advance(INTERVAL).await;
    assert_eq!(get(&site).await, served(State::Stale, "one"));
    tokio::time::advance(SECOND).await;
    assert_eq!(other.get("two").await, served(State::Stale, "one"), "another process regenerates it");
    other.settle().await;
    tokio::time::advance(INTERVAL).await;
    for pause in [2 * SECOND, 10 * SECOND, 2 * SECOND] {
        assert_eq!(
            get(&site).await,
            served(State::Stale, "two"),
            "the page was rendered in between, or was declined again too soon"
        );
        tokio::time::advance(pause).await;
    }
    for process in [&site, &other] {
        let declined = get(process).await;
        assert_eq!(declined, served(State::Bypass, "not-cacheable"));
    }
    tokio::time::advance(5 * SECOND).await;
    assert_eq!(site.get("three").await, served(State::Miss, "three"));
}

#[tokio::test(start_paused = true)]
async fn a_404_replaces_a_good_page_when_a_second_render_confirms_it_and_for_negative_ttl() {
    let site = Site::new().with(|policy| policy.negative_ttl = 5 * SECOND);
    let get_gone = async || {
        let mut gone = Rendered::html("gone");
        gone.content.status = Some(404);
        state_and_body(site.get_slow(Duration::ZERO, Ok(gone)).await)
    };
    assert_eq!(site.get("one").await, served(State::Miss, "one"));
    tokio::time::advance(INTERVAL).await;
    assert_eq!(get_gone().await, served(State::Stale, "one"));
    site.settle().await;
    assert_eq!(get_gone().await, served(State::Stale, "one"), "a single 404 may be a mistake");
    tokio::time::advance(SECOND).await;
    assert_eq!(get_gone().await, served(State::Stale, "one"));
    site.settle().await;
    assert_eq!(get_gone().await, served(State::Hit, "gone"));
    tokio::time::advance(5 * SECOND).await;
    assert_eq!(site.get("two").await, served(State::Stale, "gone"));
    site.settle().await;
    assert_eq!(site.get("three").await, served(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_410_for_a_page_that_never_existed_is_cached_at_once_for_negative_ttl() {
    let site = Site::new().with(|policy| policy.negative_ttl = 5 * SECOND);
    let mut gone = Rendered::html("gone");
    gone.content.status = Some(410);
    assert_eq!(state_and_body(site.get_slow(Duration::ZERO, Ok(gone)).await), served(State::Miss, "gone"));
    tokio::time::advance(4 * SECOND).await;
    assert_eq!(site.get("here").await, served(State::Hit, "gone"));
    tokio::time::advance(SECOND).await;
    assert_eq!(site.get("here").await, served(State::Stale, "gone"));
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_page_belongs_to_the_deployment_that_rendered_it_last() {
    let old = Site::built(|builder| builder.deployment("old"));
    assert_eq!(old.get("one").await, served(State::Miss, "one"));
    let new = old.another_built(|builder| builder.deployment("new"));
    let unchanged = |context: RenderContext| async move {
        Ok(Rendered::unchanged(&context.served.expect("a page is served")))
    };
    let first = new.isr.get(&new.page, &new.policy, unchanged).await;
    assert_eq!(state_and_body(first), served(State::Stale, "one"));
    new.settle().await;
    assert_eq!(new.get("two").await, served(State::Hit, "one"));
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_deployment_is_stale_or_missing_as_the_policy_says() {
    for (choice, expected) in [
        (OtherDeployment::Stale, served(State::Stale, "old")),
        (OtherDeployment::Missing, served(State::Miss, "new")),
    ] {
        let old =
            Site::built(|builder| builder.deployment("old")).with(|policy| policy.other_deployment = choice);
        assert_eq!(old.get("old").await, served(State::Miss, "old"));
        let new = old.another_built(|builder| builder.deployment("new"));
        assert_eq!(new.get("new").await, expected);
        new.settle().await;
        assert_eq!(new.get("newer").await, served(State::Hit, "new"));
        assert_eq!(new.renders(), 2);
    }
}

async fn delete_body(site: &Site, bodies: &facetheory::Bodies) {
    let meta = site.isr.lookup(&site.page).await.expect("a lookup").meta.expect("a page");
    bodies.delete(&meta.generation.s3_key).await.expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_body_is_missing_is_rendered_again() {
    let bodies = facetheory::Bodies::memory();
    let site = Site::on(|builder| builder, bodies.clone());
    site.get("one").await;
    delete_body(&site, &bodies).await;
    assert_eq!(site.get("two").await, served(State::Hit, "one"), "this process has the body in memory");
    assert_eq!(site.another().get("two").await, served(State::Miss, "two"), "another process does not");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_page_is_served_even_if_its_stored_body_is_missing() {
    let bodies = facetheory::Bodies::memory();
    let site = Site::on(|builder| builder, bodies.clone());
    site.get("one").await;
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    delete_body(&site, &bodies).await;
    assert_eq!(site.get("one").await, served(State::Miss, "one"), "the page was rendered for this request");
    let other = site.another().get("one").await;
    assert_eq!(other, served(State::Miss, "one"), "a process without the body renders it");
}

#[tokio::test(start_paused = true)]
async fn early_refresh_regenerates_a_popular_page_before_it_goes_stale() {
    // With some seeds the page goes stale before a request regenerates it.
    let random = std::sync::Arc::new(tabletheory::SeededRandom::new(1));
    let site = Site::built(|builder| builder.random(random)).with(|policy| policy.early_refresh = Some(1.0));
    let get =
        async |body: &'static str| state_and_body(site.get_slow(SECOND, Ok(Rendered::html(body))).await);
    get("one").await;
    let get_fresh = |policy: &facetheory::Policy| site.isr.get_fresh(&site.page, policy).is_some();
    // The metadata was read just now.
    get("one").await;
    assert!(get_fresh(&site.policy), "the page is fresh for a long time");
    let mut body = "one".to_owned();
    let mut waited = 0;
    while body == "one" {
        tokio::time::sleep(Duration::from_millis(100)).await;
        waited += 1;
        assert!(waited < 600, "the page went stale before it was regenerated");
        let (state, now) = get("two").await;
        assert_eq!(state, State::Hit);
        body = now;
    }
    assert!(waited > 300, "not much too early: after {waited} tenths of a second");
    assert_eq!(site.renders(), 2);
    tokio::time::sleep(Duration::from_secs(45)).await;
    get("two").await;
    let mut never_early = site.policy;
    never_early.early_refresh = None;
    assert!(get_fresh(&never_early));
    assert!(!get_fresh(&site.policy), "the page might be refreshed early, which only `get` decides");
}

#[tokio::test(start_paused = true)]
async fn rollbacks_pins_and_tag_invalidations_take_effect_at_once() {
    let site = Site::new().with(|policy| *policy = policy.with_history(History::Versions));
    site.get("good").await;
    tokio::time::advance(INTERVAL).await;
    site.get("bad").await;
    site.settle().await;
    assert_eq!(site.get("worse").await, served(State::Hit, "bad"));
    let versions = site.isr.versions(&site.page, 5).await.expect("a result");
    let back = site.isr.roll_back(&site.page, &versions[1].0, 10 * INTERVAL).await.expect("a result");
    assert_eq!(back, RolledBack::Done);
    assert_eq!(site.get("worse").await, served(State::Hit, "good"), "immediately");
    site.isr.invalidate_tag(&Tag::everything(), None).await.expect("a result");
    assert_eq!(site.get("worse").await, served(State::Hit, "good"), "the page is pinned");
    assert!(site.isr.unpin(&site.page).await.expect("a result"));
    assert_eq!(site.get("best").await, served(State::Stale, "good"));
    site.settle().await;
    let Ok(GetResult::Page(served)) = site.get_failing().await else { panic!("a bypass") };
    assert_eq!(served.page.bytes(), "best");
}
