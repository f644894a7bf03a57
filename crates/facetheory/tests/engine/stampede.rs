//! Ten thousand visitors at once: one render, whatever the state of the page.

use std::time::Duration;

use facetheory::{Rendered, State};

use crate::fixture::{INTERVAL, SECOND, Site, seen};

const VISITORS: usize = 10_000;

/// All visit at once. Answers with how many there were of each state.
async fn stampede(sites: &[Site], body: &'static str, takes: Duration) -> Vec<(State, usize)> {
    let mut visits = tokio::task::JoinSet::new();
    for visitor in 0..VISITORS {
        let site = sites[visitor % sites.len()].clone();
        visits.spawn(async move { seen(site.visit_slow(takes, Ok(Rendered::html(body))).await) });
    }
    let mut states: Vec<(State, usize)> = Vec::new();
    while let Some(visit) = visits.join_next().await {
        let (state, _) = visit.expect("no panic");
        match states.iter_mut().find(|(other, _)| *other == state) {
            Some((_, count)) => *count += 1,
            None => states.push((state, 1)),
        }
    }
    states.sort_by_key(|(_, count)| *count);
    states
}

#[tokio::test(start_paused = true)]
async fn a_missing_page_is_rendered_once() {
    let site = Site::new();
    let states = stampede(std::slice::from_ref(&site), "one", SECOND).await;
    assert_eq!(states, [(State::Miss, 1), (State::WaitHit, VISITORS - 1)]);
    assert_eq!(site.renders(), 1);
    let (reads, commits) = site.table.take();
    assert!(reads <= 3 && commits == 2, "not more for many than for one: {reads} reads, {commits} commits");
}

#[tokio::test(start_paused = true)]
async fn a_missing_page_is_rendered_once_by_three_processes() {
    let site = Site::new();
    let sites = [site.clone(), site.another(), site.another()];
    let states = stampede(&sites, "one", SECOND).await;
    assert_eq!(states, [(State::Miss, 1), (State::WaitHit, VISITORS - 1)]);
    assert_eq!(site.renders(), 1);
    let (reads, _) = site.table.take();
    assert!(reads < 50, "{reads} reads: one poller a process, with growing pauses");
}

#[tokio::test(start_paused = true)]
async fn a_stale_page_is_rendered_once_and_nobody_waits_for_it() {
    let site = Site::new();
    site.visit("one").await;
    tokio::time::advance(INTERVAL).await;
    let began = site.isr.now();
    let states = stampede(std::slice::from_ref(&site), "two", 10 * SECOND).await;
    assert_eq!(states, [(State::Stale, VISITORS)]);
    let waited = site.isr.now().millis() - began.millis();
    assert!(waited < 100, "nobody waited for the ten seconds of the render: {waited} ms");
    tokio::time::sleep(11 * SECOND).await;
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_in_the_table_but_not_in_memory_is_read_once() {
    let site = Site::new();
    site.visit("one").await;
    let cold = site.another();
    site.table.take();
    let states = stampede(std::slice::from_ref(&cold), "two", SECOND).await;
    assert_eq!(states, [(State::Hit, VISITORS)]);
    let (reads, commits) = site.table.take();
    assert!(reads <= 2 && commits == 0, "{reads} reads, {commits} commits");
}
