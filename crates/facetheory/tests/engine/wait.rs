//! Waiting for another process: as long as the policy says, with few reads.

use std::time::Duration;

use facetheory::protocol::{Acquire, LeaseTerms};
use facetheory::{GetResult, Isr, PageStore, Pages, Rendered, State};

use crate::fixture::{SECOND, Site, served, state_and_body};

#[tokio::test(start_paused = true)]
async fn a_request_waits_no_longer_than_the_policy_says_even_if_the_table_is_slow() {
    let site = Site::new().with(|policy| policy.wait = 5 * SECOND);
    let other = site.another();
    let waiting = async {
        tokio::time::sleep(SECOND).await;
        let began = tokio::time::Instant::now();
        (other.get("two").await, began.elapsed())
    };
    let outage = async {
        tokio::time::sleep(2 * SECOND).await;
        site.table.slow_down(Duration::from_secs(1000));
        tokio::time::sleep(8 * SECOND).await;
        site.table.come_back();
    };
    let slow = site.get_slow(20 * SECOND, Ok(Rendered::html("one")));
    let (_, (result, took), ()) = tokio::join!(slow, waiting, outage);
    assert_eq!(result, served(State::Bypass, "waited-too-long"));
    assert!(took < 6 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_gets_the_page_that_another_process_renders_soon_after_if_the_table_responds_at_once() {
    let (site, other) = Site::in_two_processes();
    let waiting = async {
        // The other process has the lease by now.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let began = tokio::time::Instant::now();
        (other.get("two").await, began.elapsed())
    };
    let render = Duration::from_millis(400);
    let (_, (result, took)) = tokio::join!(site.get_slow(render, Ok(Rendered::html("one"))), waiting);
    assert_eq!(result, served(State::WaitHit, "one"));
    assert!(took <= render + render / 20, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_lease_is_acquired_only_after_the_clock_skew_has_passed() {
    let site = Site::new();
    let mut terms = LeaseTerms::lasting(3 * SECOND);
    terms.skew = 2 * SECOND;
    let store = PageStore::new(site.table.clone()).with_lease_terms(terms);
    let Ok(Acquire::Granted(_)) = store.try_acquire(&site.page).await else { panic!("the lease is held") };
    let isr = Isr::new(Pages::new(store, site.bodies.clone()));
    let site = site.with_isr(isr);
    site.table.take();
    assert_eq!(site.get("one").await, served(State::Miss, "one"), "the holder does not return");
    let (_, commits) = site.table.take();
    assert!(commits <= 3, "one attempt, a publish and a release: {commits}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_read_the_lock_of_another_process_does_not_try_to_acquire_it() {
    let site = Site::new();
    let store = PageStore::new(site.table.clone());
    let Ok(Acquire::Granted(lease)) = store.try_acquire(&site.page).await else { panic!("it is free") };
    site.table.take();
    let holder = async {
        tokio::time::sleep(2 * SECOND).await;
        let (reads, commits) = site.table.take();
        assert!(reads > 1, "the lookup, and the reads while it waits: {reads}");
        assert_eq!(commits, 0);
        store.release(&lease).await.expect("no error");
    };
    let (result, ()) = tokio::join!(site.get("one"), holder);
    assert_eq!(result, served(State::Miss, "one"));
}

#[tokio::test(start_paused = true)]
async fn the_request_that_renders_waits_at_most_for_render_timeout_plus_wait() {
    let site = Site::new();
    let (policy, began) = (site.policy, tokio::time::Instant::now());
    let slow = async {
        tokio::time::sleep(SECOND).await;
        site.table.slow_down(1000 * SECOND);
    };
    let (result, ()) = tokio::join!(site.get_slow(2 * SECOND, Ok(Rendered::html("late"))), slow);
    assert!(began.elapsed() <= policy.render_timeout + policy.wait, "{:?}", began.elapsed());
    assert!(matches!(result, Ok(GetResult::Bypass(_) | GetResult::Page(_))), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn after_the_holder_of_a_lease_died_the_requests_that_wait_get_the_page_from_one_render() {
    const HERD: usize = 300;
    let site = Site::new();
    let store = PageStore::new(site.table.clone());
    // The holder never refreshes its lease.
    let Ok(Acquire::Granted(_)) = store.try_acquire(&site.page).await else { panic!("the lease is held") };
    let began = tokio::time::Instant::now();
    let get = |_| async { state_and_body(site.get_slow(5 * SECOND, Ok(Rendered::html("one"))).await) };
    let responses = futures_util::future::join_all((0..HERD).map(get)).await;
    let misses = responses.iter().filter(|response| **response == served(State::Miss, "one")).count();
    let waited = responses.iter().filter(|response| **response == served(State::WaitHit, "one")).count();
    assert_eq!((misses, waited), (1, HERD - 1));
    assert_eq!(site.renders(), 1);
    assert!(began.elapsed() < site.policy.wait + 5 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn requests_that_give_up_waiting_for_another_process_share_one_render() {
    const HERD: usize = 300;
    let site = Site::new();
    let terms = LeaseTerms::lasting(60 * SECOND);
    let store = PageStore::new(site.table.clone()).with_lease_terms(terms);
    let Ok(Acquire::Granted(_)) = store.try_acquire(&site.page).await else { panic!("the lease is held") };
    let get = |_| async { state_and_body(site.get_slow(5 * SECOND, Ok(Rendered::html("one"))).await) };
    let responses = futures_util::future::join_all((0..HERD).map(get)).await;
    assert_eq!(responses, vec![served(State::Bypass, "one"); HERD]);
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_render_in_their_own_process_longer_than_for_another_process() {
    const HERD: usize = 300;
    let site = Site::new();
    let get = |_| async { state_and_body(site.get_slow(25 * SECOND, Ok(Rendered::html("one"))).await) };
    let responses = futures_util::future::join_all((0..HERD).map(get)).await;
    let waited = responses.iter().filter(|response| **response == served(State::WaitHit, "one")).count();
    assert_eq!((waited, site.renders()), (HERD - 1, 1));
}
