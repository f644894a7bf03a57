//! Outages: pages in memory are served and marked; other requests share renders that are not published.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use facetheory::{
    Bodies, BypassReason, FailedStore, GetResult, InvalidationMode, PageKey, Render, Rendered, State, Tag,
};
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

use tabletheory::{Table as _, Txn, Write};

use crate::fixture::{INTERVAL, SECOND, Site, served, slow_bodies, state_and_body};
use crate::read_only::ReadOnly;

#[tokio::test(start_paused = true)]
async fn while_the_table_is_down_pages_in_memory_are_served_and_marked() {
    let site = Site::with_page().await;
    site.table.break_down();
    assert_eq!(site.get("two").await, served(State::Hit, "one"), "its metadata is used for a second");
    for _ in 0..60 {
        tokio::time::advance(SECOND).await;
        assert_eq!(site.get("two").await, served(State::StaleMetadataError, "one"));
    }
    assert_eq!(site.another().get("two").await, served(State::Bypass, "two"));
    site.table.come_back();
    tokio::time::advance(SECOND).await;
    assert_eq!(site.get("two").await, served(State::Stale, "one"), "its interval is over");
    site.settle().await;
    assert_eq!(site.get("three").await, served(State::Hit, "two"));
    assert_eq!(site.renders(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_down_is_tried_from_time_to_time_and_not_by_every_request() {
    let site = Site::with_page().await;
    site.table.break_down();
    tokio::time::advance(SECOND).await;
    site.table.take();
    for _ in 0..1000 {
        assert_eq!(site.get("two").await.0, State::StaleMetadataError);
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let (reads, _) = site.table.take();
    assert!((5..40).contains(&reads), "{reads} reads in ten seconds");
    site.table.come_back();
    tokio::time::advance(SECOND).await;
    let requests = (0..100).map(|_| site.get("two"));
    let mut requests: Vec<_> = requests.map(Box::pin).collect();
    for request in &mut requests {
        assert_eq!(request.as_mut().await.0, State::Hit);
    }
    let (reads, _) = site.table.take();
    assert!(reads <= 2, "no thundering herd after the outage: {reads}");
}

#[tokio::test(start_paused = true)]
async fn a_hard_invalidated_page_is_not_served_while_the_table_is_down() {
    let site = Site::with_page().await;
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    tokio::time::advance(SECOND).await;
    // This request reads the invalidation, and its render fails.
    assert!(site.get_failing().await.is_err());
    site.table.break_down();
    tokio::time::advance(SECOND).await;
    assert_eq!(site.get("two").await, served(State::Bypass, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_this_process_hard_invalidated_is_not_served_even_without_a_request_before_the_outage() {
    let site = Site::with_page().await;
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    site.table.break_down();
    assert_eq!(site.get("two").await, served(State::Bypass, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_tag_this_process_hard_invalidated_is_not_served_while_the_table_is_down() {
    for later in [None, Some(InvalidationMode::Soft)] {
        let site = Site::new();
        site.get("one").await;
        for mode in [Some(InvalidationMode::Hard), later].into_iter().flatten() {
            site.isr.invalidate_tag_with(&Tag::everything(), None, mode).await.expect("a result");
        }
        site.table.break_down();
        assert_eq!(site.get("two").await, served(State::Bypass, "two"), "{later:?}");
    }
    let site = Site::new();
    site.get("one").await;
    site.isr.invalidate_tag(&Tag::everything(), None).await.expect("a result");
    site.table.break_down();
    assert_eq!(site.get("two").await, served(State::StaleMetadataError, "one"), "a soft one allows it");
}

/// Invalidates a page while a process reads its body, then makes the table unreachable. Returns the next response of that
/// process.
async fn get_after_invalidation_during_a_read(mode: InvalidationMode) -> (State, String) {
    let site = Site::on(|builder| builder, slow_bodies(5 * SECOND));
    site.get("one").await;
    let other = site.another();
    let (slow, ()) = tokio::join!(other.get("two"), async {
        tokio::time::sleep(SECOND).await;
        other.isr.invalidate(&site.page, mode).await.expect("a result");
    });
    assert_eq!(slow, served(State::Hit, "one"), "the request was before the invalidation");
    site.table.break_down();
    other.get("two").await
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_hard_invalidated_while_it_is_read_is_not_stored_in_memory() {
    let response = get_after_invalidation_during_a_read(InvalidationMode::Hard).await;
    assert_eq!(response, served(State::Bypass, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_becomes_stale_while_it_is_read_is_served_during_an_outage() {
    let response = get_after_invalidation_during_a_read(InvalidationMode::Soft).await;
    assert_eq!(response, served(State::StaleMetadataError, "one"));
}

#[tokio::test(start_paused = true)]
async fn stale_if_error_also_limits_pages_from_memory_during_an_outage() {
    let site = Site::new().with(|policy| {
        policy.stale_while_revalidate = Some(SECOND);
        policy.stale_if_error = Some(10 * SECOND);
    });
    site.get("one").await;
    site.table.break_down();
    tokio::time::advance(INTERVAL + 10 * SECOND).await;
    assert_eq!(site.get("two").await, served(State::StaleMetadataError, "one"));
    tokio::time::advance(SECOND).await;
    assert_eq!(site.get("two").await, served(State::Bypass, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_cannot_be_published_is_served_only_to_the_client_that_started_its_render() {
    let site = Site::new();
    let table = site.table.clone();
    let render = move |_| async move {
        table.break_down();
        Ok(Rendered::html("one"))
    };
    let result = site.isr.get(&site.page, &site.policy, render).await;
    assert_eq!(state_and_body(result), served(State::Bypass, "one"));
    site.table.come_back();
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.get("two").await, served(State::Miss, "two"));
}

/// A site, its bodies in memory, and a configuration with which those do not respond.
fn on_bodies() -> (Site, Arc<ThrottledStore<InMemory>>, ThrottleConfig) {
    let silent = ThrottleConfig {
        wait_get_per_call: 1000 * SECOND,
        wait_put_per_call: 1000 * SECOND,
        ..ThrottleConfig::default()
    };
    let bodies = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
    (Site::on(|builder| builder, Bodies::over(bodies.clone())), bodies, silent)
}

/// The site with another page.
fn at(site: &Site, page: &str) -> Site {
    Site { page: PageKey::new(page).expect("a page"), ..site.clone() }
}

#[tokio::test(start_paused = true)]
async fn while_the_bodies_do_not_respond_memory_is_served_and_other_requests_bypass_without_waiting() {
    let (site, bodies, silent) = on_bodies();
    site.get("one").await;
    let elsewhere = at(&site, "/elsewhere");
    at(&site.another(), "/elsewhere").get("one").await;
    bodies.config_mut(|config| *config = silent);
    tokio::time::advance(INTERVAL).await;
    // A request that tries to publish gets the page before that fails, after ten seconds.
    let is_new = |(state, body): (State, String)| {
        assert_eq!(body, "two");
        assert!(matches!(state, State::Bypass | State::Miss | State::Hit), "{state}");
    };
    is_new(elsewhere.get("two").await);
    let mut waits = 0;
    for _ in 0..600 {
        let before = site.isr.now();
        assert_eq!(site.get("two").await, served(State::Stale, "one"), "the table is reachable");
        is_new(elsewhere.get("two").await);
        is_new(at(&site, "/missing").get("two").await);
        let waited = site.isr.now().millis() - before.millis();
        waits += u32::from(waited > 0);
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    assert!(waits < 100, "few requests try the bodies: {waits} waited");
    bodies.config_mut(|config| *config = ThrottleConfig::default());
    // Renders that are running have to time out.
    tokio::time::sleep(20 * SECOND).await;
    site.get("three").await;
    site.settle().await;
    assert_eq!(site.get("four").await.0, State::Hit);
    // This request may try the bodies again without waiting for them; otherwise it starts a regeneration.
    elsewhere.get("three").await;
    site.settle().await;
    let last = elsewhere.get("three").await;
    assert!([served(State::Stale, "one"), served(State::Hit, "three")].contains(&last), "{last:?}");
    assert_eq!(at(&site, "/missing").get("three").await, served(State::Miss, "three"));
}

#[tokio::test(start_paused = true)]
async fn while_bodies_cannot_be_read_the_table_is_read_once_a_second_for_each_page() {
    let (site, bodies, silent) = on_bodies();
    site.another().get("one").await;
    bodies.config_mut(|config| *config = silent);
    assert_eq!(site.get("two").await, served(State::Bypass, "two"));
    for _ in 0..10 {
        let _ = site.table.take();
        for _ in 0..100 {
            assert_eq!(site.get("two").await.0, State::Bypass);
            tokio::time::advance(SECOND / 100).await;
        }
        assert!(site.table.take().0 <= 2, "one at the beginning and one at the end of a second");
    }
    bodies.config_mut(|config| *config = ThrottleConfig::default());
    tokio::time::sleep(10 * SECOND).await;
    site.get("three").await;
    site.settle().await;
    tokio::time::advance(SECOND).await;
    assert_eq!(site.get("three").await, served(State::Hit, "one"));
}

#[tokio::test(start_paused = true)]
async fn while_no_page_can_be_published_renders_are_limited() {
    const PAGES: u32 = 50;
    const SECONDS: u32 = 60;
    let (site, bodies, silent) = on_bodies();
    let pages: Vec<Site> = (0..PAGES).map(|page| at(&site, &format!("/{page}"))).collect();
    for page in &pages {
        page.get("one").await;
    }
    bodies.config_mut(|config| *config = silent);
    tokio::time::advance(INTERVAL).await;
    site.renders();
    for _ in 0..SECONDS {
        for page in &pages {
            assert_eq!(page.get("two").await, served(State::Stale, "one"));
        }
        tokio::time::sleep(SECOND).await;
    }
    let renders = site.renders();
    let most = PAGES + SECONDS;
    assert!(
        renders <= most,
        "{renders} renders: each page once until the outage is noticed, then one per second"
    );
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_for_a_row_is_not_an_outage() {
    const TOO_LONG_FOR_A_ROW: usize = 500_000;
    let site = Site::new();
    let mut page = Rendered::html("one");
    page.etag = Some("x".repeat(TOO_LONG_FOR_A_ROW));
    assert_eq!(state_and_body(site.get_slow(Duration::ZERO, Ok(page)).await), served(State::Bypass, "one"));
    assert_eq!(at(&site, "/other").get("two").await, served(State::Miss, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_row_was_missing_before_an_outage_is_served_from_memory_during_it() {
    let site = Site::with_page().await;
    let gone = Txn::from(Write::delete(site.page.meta()));
    assert!(site.table.commit(&gone).await.expect("a result").is_done());
    tokio::time::advance(2 * SECOND).await;
    assert!(site.get_failing().await.is_err(), "without a row no page is served");
    site.table.break_down();
    assert_eq!(site.get("two").await, served(State::StaleMetadataError, "one"));
}

/// Sends this many requests at once, whose renders take so long. Returns the responses.
async fn herd(site: &Site, requests: usize, render_time: Duration) -> Vec<(State, String)> {
    let get = |_| {
        let site = site.clone();
        async move { state_and_body(site.get_slow(render_time, Ok(Rendered::html("one"))).await) }
    };
    futures_util::future::join_all((0..requests).map(get)).await
}

#[tokio::test(start_paused = true)]
async fn while_bodies_cannot_be_stored_a_herd_costs_one_render_at_a_time() {
    const HERD: usize = 56;
    let site = Site::on(|builder| builder, Bodies::over(Arc::new(ReadOnly::default())));
    for round in 0..10 {
        let render_time = SECOND * (round % 2);
        assert_eq!(herd(&site, HERD, render_time).await, vec![served(State::Bypass, "one"); HERD]);
        // After the first round, once a second, a request tries to publish again, and renders on its own.
        let most = if round == 0 { 1 } else { 2 };
        assert!((1..=most).contains(&site.renders()));
        tokio::time::advance(SECOND).await;
    }
    let result = site.get_slow(Duration::ZERO, Ok(Rendered::html("one"))).await.expect("a page");
    let GetResult::Page(page) = result else { panic!("{result:?}") };
    assert_eq!(page.reason, Some(BypassReason::Unreachable(FailedStore::Bodies)));
}

#[tokio::test(start_paused = true)]
async fn while_the_table_is_down_a_herd_costs_one_render_at_a_time() {
    const HERD: usize = 300;
    let site = Site::new();
    site.table.break_down();
    for round in 0..10 {
        let render_time = SECOND * (round % 2);
        assert_eq!(herd(&site, HERD, render_time).await, vec![served(State::Bypass, "one"); HERD]);
        // A request that tries the table again may render on its own.
        assert!((1..=2).contains(&site.renders()));
        tokio::time::advance(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unpublished_page_is_shared_for_a_second_however_long_metadata_is_used() {
    let site = Site::built(|builder| builder.metadata_max_age(3600 * SECOND));
    site.table.break_down();
    for text in ["one", "two", "three"] {
        assert_eq!(site.get(text).await, served(State::Bypass, text));
        tokio::time::advance(2 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_after_an_invalidation_does_not_share_a_render_that_started_before_it() {
    let site = Site::new();
    site.table.break_down();
    let follower = async {
        tokio::time::sleep(SECOND / 10).await;
        let _ = site.isr.invalidate(&site.page, InvalidationMode::Soft).await;
        site.get("after").await
    };
    let first = site.get_slow(5 * SECOND, Ok(Rendered::html("before")));
    let (first, follower) = tokio::join!(first, follower);
    assert_eq!(state_and_body(first), served(State::Bypass, "before"));
    assert_eq!(follower, served(State::Bypass, "after"));
}

#[tokio::test(start_paused = true)]
async fn an_uncacheable_response_is_never_shared_during_an_outage() {
    const HERD: usize = 20;
    let site = Site::new();
    site.table.break_down();
    let get = |_| {
        let (site, renders) = (site.clone(), site.renders.clone());
        async move {
            let render = move |_| async move {
                renders.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                tokio::time::sleep(SECOND).await;
                Ok(Render::Declined)
            };
            state_and_body(site.isr.get(&site.page, &site.policy, render).await)
        }
    };
    let responses = futures_util::future::join_all((0..HERD).map(get)).await;
    assert_eq!(responses, vec![served(State::Bypass, "not-cacheable"); HERD], "each client calls the origin");
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_render_is_shared_during_an_outage() {
    let site = Site::new();
    site.table.break_down();
    let herd = (0..20).map(|_| site.get_slow(SECOND, Err("the origin is down")));
    assert!(futures_util::future::join_all(herd).await.iter().all(Result::is_err));
    assert_eq!(site.renders(), 1);
}

/// A process that has an older copy of the page in memory while the bodies do not respond, and another process that has
/// published a newer one.
async fn superseded(mode: impl Fn(&mut facetheory::Policy)) -> (Site, Arc<ThrottledStore<InMemory>>) {
    let (site, bodies, silent) = on_bodies();
    let site = site.with(&mode);
    site.get("one").await;
    tokio::time::advance(INTERVAL).await;
    let other = site.another().with(|policy| policy.mode = facetheory::Mode::Blocking);
    assert_eq!(other.get("two").await, served(State::Miss, "two"));
    bodies.config_mut(|config| *config = silent);
    site.table.take();
    site.renders();
    (site, bodies)
}

#[tokio::test(start_paused = true)]
async fn while_a_newer_body_does_not_arrive_the_older_copy_is_served_at_once() {
    let (site, bodies) = superseded(|_| {}).await;
    let began = tokio::time::Instant::now();
    let mut slowest = Duration::ZERO;
    for _ in 0..300 {
        let sent = tokio::time::Instant::now();
        let result = site.get_slow(SECOND, Ok(Rendered::html("three"))).await.expect("a page");
        slowest = slowest.max(sent.elapsed());
        let GetResult::Page(page) = &result else { panic!("{result:?}") };
        assert_eq!(page.reason, Some(BypassReason::Unreachable(FailedStore::Bodies)));
        assert_eq!(state_and_body(Ok(result)), served(State::StaleMetadataError, "one"));
        tokio::time::advance(SECOND / 10).await;
    }
    assert!(slowest <= SECOND / 5, "a lookup waits 200 ms for a newer body, not {slowest:?}");
    assert!(began.elapsed() > 30 * SECOND, "longer than the timeout of the bodies");
    assert_eq!(site.renders(), 0, "the page is fresh");
    let (reads, _) = site.table.take();
    assert!(reads < 80, "{reads} reads in 30 seconds: one lookup a second, of two reads");
    bodies.config_mut(|config| *config = ThrottleConfig::default());
    tokio::time::sleep(20 * SECOND).await;
    site.get("three").await;
    site.settle().await;
    assert_eq!(site.get("three").await, served(State::Hit, "two"), "the newer body was read behind it");
}

#[tokio::test(start_paused = true)]
async fn an_older_copy_is_not_served_past_its_stale_limits_while_a_newer_body_does_not_arrive() {
    let limit = |policy: &mut facetheory::Policy| {
        policy.stale_while_revalidate = Some(5 * SECOND);
        policy.stale_if_error = Some(5 * SECOND);
    };
    let (site, _) = superseded(limit).await;
    assert_eq!(site.get("three").await, served(State::StaleMetadataError, "one"));
    tokio::time::advance(6 * SECOND).await;
    assert_eq!(site.get("three").await, served(State::Bypass, "three"));
}

#[tokio::test(start_paused = true)]
async fn an_older_copy_is_stale_since_the_newer_page_was_generated() {
    let (site, bodies, silent) = on_bodies();
    let site = site.with(|policy| {
        policy.stale_while_revalidate = Some(5 * SECOND);
        policy.stale_if_error = Some(5 * SECOND);
    });
    site.get("one").await;
    tokio::time::advance(3 * SECOND).await;
    let other = site.another().with(|policy| policy.mode = facetheory::Mode::Blocking);
    other.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("a result");
    assert_eq!(other.get("two").await, served(State::Miss, "two"));
    bodies.config_mut(|config| *config = silent);
    tokio::time::advance(SECOND).await;
    assert_eq!(site.get("three").await, served(State::StaleMetadataError, "one"));
    tokio::time::advance(6 * SECOND).await;
    assert_eq!(site.get("three").await, served(State::Bypass, "three"));
}

#[tokio::test(start_paused = true)]
async fn an_older_copy_is_not_served_after_a_hard_invalidation_while_a_newer_body_does_not_arrive() {
    let (site, _) = superseded(|_| {}).await;
    assert_eq!(site.get("three").await, served(State::StaleMetadataError, "one"));
    site.another().isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    tokio::time::advance(SECOND).await;
    assert_eq!(site.get("three").await, served(State::Miss, "three"));
}

/// A process that has a copy of the page in memory for three seconds, another process, and what makes the bodies fall silent.
async fn with_older_copy() -> (Site, Site, impl FnOnce()) {
    let (site, bodies, silent) = on_bodies();
    site.get("one").await;
    tokio::time::advance(3 * SECOND).await;
    let other = site.another();
    (site, other, move || bodies.config_mut(|config| *config = silent))
}

#[tokio::test(start_paused = true)]
async fn an_older_copy_is_not_served_if_it_was_hard_invalidated_before_the_newer_one_was_published() {
    let (site, other, fall_silent) = with_older_copy().await;
    other.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    assert_eq!(other.get("two").await, served(State::Miss, "two"));
    tokio::time::advance(INTERVAL).await;
    let later = site.another().with(|policy| policy.mode = facetheory::Mode::Blocking);
    assert_eq!(later.get("three").await, served(State::Miss, "three"), "a second publish after it");
    fall_silent();
    assert_eq!(site.get("four").await, served(State::Bypass, "four"));
}

#[tokio::test(start_paused = true)]
async fn an_older_copy_is_not_served_if_its_tag_was_hard_invalidated_before_the_newer_one_was_published() {
    let (site, other, fall_silent) = with_older_copy().await;
    let (tag, mode) = (Tag::everything(), InvalidationMode::Hard);
    other.isr.invalidate_tag_with(&tag, None, mode).await.expect("a result");
    assert_eq!(other.get("two").await, served(State::Miss, "two"));
    fall_silent();
    tokio::time::advance(3 * SECOND).await;
    assert_eq!(site.get("three").await, served(State::Bypass, "three"));
}

#[tokio::test(start_paused = true)]
async fn writes_are_checked_apart_from_reads() {
    let objects = Arc::new(ReadOnly::default());
    let site = Site::on(|builder| builder, Bodies::over(objects.clone()));
    for checks in 1..=2 {
        assert!(site.isr.check_table_write().await.is_ok());
        assert!(site.isr.check_bodies().await.is_ok() && site.isr.check_bodies_write().await.is_err());
        assert_eq!(objects.gets.load(Ordering::SeqCst), checks, "one GET for each check");
    }
    site.table.break_down();
    assert!(site.isr.check_table_write().await.is_err());
}
