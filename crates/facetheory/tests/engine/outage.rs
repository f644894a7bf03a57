//! Outages: memory goes on serving, marked; what is not in memory is passed through.

use std::sync::Arc;
use std::time::Duration;

use facetheory::{Bodies, InvalidationMode, PageKey, Rendered, State};
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

use tabletheory::{Table as _, Txn, Write};

use crate::fixture::{INTERVAL, SECOND, Site, seen, sees, slow_bodies};

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
    assert_eq!(site.another().visit("two").await, sees(State::Bypass, "a store is unreachable"));
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
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("an answer");
    tokio::time::advance(SECOND).await;
    // This visitor finds out, and cannot render.
    assert!(site.visit_failing().await.is_err());
    site.table.break_down();
    tokio::time::advance(SECOND).await;
    assert_eq!(site.visit("two").await, sees(State::Bypass, "a store is unreachable"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_was_forbidden_through_this_process_is_not_served_although_nobody_came_before_the_outage()
{
    let site = Site::new();
    site.visit("one").await;
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("an answer");
    site.table.break_down();
    assert_eq!(site.visit("two").await, sees(State::Bypass, "a store is unreachable"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_was_forbidden_while_it_was_read_does_not_come_back_to_memory() {
    let site = Site::on(|builder| builder, slow_bodies(5 * SECOND));
    site.visit("one").await;
    let other = site.another();
    let (slow, ()) = tokio::join!(other.visit("two"), async {
        tokio::time::sleep(SECOND).await;
        other.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("an answer");
    });
    assert_eq!(slow, sees(State::Hit, "one"), "this visitor came before it");
    site.table.break_down();
    assert_eq!(other.visit("two").await, sees(State::Bypass, "a store is unreachable"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_went_stale_while_it_was_read_is_there_in_an_outage() {
    let site = Site::on(|builder| builder, slow_bodies(5 * SECOND));
    site.visit("one").await;
    let other = site.another();
    let (slow, ()) = tokio::join!(other.visit("two"), async {
        tokio::time::sleep(SECOND).await;
        other.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("an answer");
    });
    assert_eq!(slow, sees(State::Hit, "one"), "this visitor came before it");
    site.table.break_down();
    assert_eq!(other.visit("two").await, sees(State::StaleMetadataError, "one"));
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
    assert_eq!(site.visit("two").await, sees(State::Bypass, "a store is unreachable"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_cannot_be_published_is_for_its_visitor_alone() {
    let site = Site::new();
    let table = site.table.clone();
    let render = move |_| async move {
        table.break_down();
        Ok(Rendered::html("one"))
    };
    let answer = site.isr.get(&site.page, &site.policy, render).await;
    assert_eq!(seen(answer), sees(State::Bypass, "one"));
    site.table.come_back();
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.visit("two").await, sees(State::Miss, "two"));
}

/// Bodies in memory that can be made to never answer.
fn bodies() -> (Arc<ThrottledStore<InMemory>>, ThrottleConfig) {
    let silent = ThrottleConfig {
        wait_get_per_call: 1000 * SECOND,
        wait_put_per_call: 1000 * SECOND,
        ..ThrottleConfig::default()
    };
    (Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default())), silent)
}

/// The same site, at another page.
fn at(site: &Site, page: &str) -> Site {
    Site { page: PageKey::new(page).expect("a page"), ..site.clone() }
}

#[tokio::test(start_paused = true)]
async fn while_the_bodies_never_answer_memory_serves_and_the_rest_is_passed_through_without_waiting() {
    let (bodies, silent) = bodies();
    let site = Site::on(|builder| builder, Bodies::over(bodies.clone()));
    site.visit("one").await;
    let elsewhere = at(&site, "/elsewhere");
    at(&site.another(), "/elsewhere").visit("one").await;
    bodies.config_mut(|config| *config = silent);
    tokio::time::advance(INTERVAL).await;
    // It takes ten seconds to find out.
    let unreachable = sees(State::Bypass, "a store is unreachable");
    assert_eq!(elsewhere.visit("two").await, unreachable);
    let mut waits = 0;
    for _ in 0..600 {
        let before = site.isr.now();
        assert_eq!(site.visit("two").await, sees(State::Stale, "one"), "the table is there, and says so");
        assert_eq!(elsewhere.visit("two").await, unreachable);
        let missing = at(&site, "/missing").visit("two").await;
        assert!([sees(State::Bypass, "two"), unreachable.clone()].contains(&missing), "{missing:?}");
        let waited = site.isr.now().millis() - before.millis();
        waits += u32::from(waited > 0);
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    assert!(waits < 100, "now and then one finds out whether it is over: {waits} waited");
    bodies.config_mut(|config| *config = ThrottleConfig::default());
    // What was under way has to find out, too.
    tokio::time::sleep(20 * SECOND).await;
    site.visit("three").await;
    site.settle().await;
    assert_eq!(site.visit("four").await.0, State::Hit);
    assert_eq!(elsewhere.visit("three").await, sees(State::Stale, "one"));
    assert_eq!(at(&site, "/missing").visit("three").await, sees(State::Miss, "three"));
}

#[tokio::test(start_paused = true)]
async fn while_nothing_can_be_published_pages_are_not_rendered_in_vain() {
    const PAGES: u32 = 50;
    const SECONDS: u32 = 60;
    let (bodies, silent) = bodies();
    let site = Site::on(|builder| builder, Bodies::over(bodies.clone()));
    let pages: Vec<Site> = (0..PAGES).map(|page| at(&site, &format!("/{page}"))).collect();
    for page in &pages {
        page.visit("one").await;
    }
    bodies.config_mut(|config| *config = silent);
    tokio::time::advance(INTERVAL).await;
    site.renders();
    for _ in 0..SECONDS {
        for page in &pages {
            assert_eq!(page.visit("two").await, sees(State::Stale, "one"));
        }
        tokio::time::sleep(SECOND).await;
    }
    let renders = site.renders();
    let most = PAGES + SECONDS;
    assert!(renders <= most, "{renders} renders: each page once until it is known, then one each second");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_can_never_be_published_does_not_count_as_an_outage() {
    const TOO_LONG_FOR_A_ROW: usize = 500_000;
    let site = Site::new();
    let mut page = Rendered::html("one");
    page.etag = Some("x".repeat(TOO_LONG_FOR_A_ROW));
    assert_eq!(seen(site.visit_slow(Duration::ZERO, Ok(page)).await), sees(State::Bypass, "one"));
    assert_eq!(at(&site, "/other").visit("two").await, sees(State::Miss, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_row_seemed_to_be_gone_before_an_outage_is_still_in_memory() {
    let site = Site::new();
    site.visit("one").await;
    let gone = Txn::from(Write::delete(site.page.meta()));
    assert!(site.table.commit(&gone).await.expect("an answer").is_done());
    tokio::time::advance(2 * SECOND).await;
    assert!(site.visit_failing().await.is_err(), "without a row there is nothing to be served");
    site.table.break_down();
    assert_eq!(site.visit("two").await, sees(State::StaleMetadataError, "one"));
}
