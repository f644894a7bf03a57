//! Ten thousand requests at the same time: one render, whatever the state of the page.

use std::time::Duration;

use facetheory::{Rendered, State};

use crate::fixture::{INTERVAL, SECOND, Site, state_and_body};

const REQUESTS: usize = 10_000;

/// Sends all requests at the same time, and returns the number of responses by state.
async fn stampede(sites: &[Site], body: &'static str, render_time: Duration) -> Vec<(State, usize)> {
    let mut requests = tokio::task::JoinSet::new();
    for request in 0..REQUESTS {
        let site = sites[request % sites.len()].clone();
        requests
            .spawn(async move { state_and_body(site.get_slow(render_time, Ok(Rendered::html(body))).await) });
    }
    let mut states: Vec<(State, usize)> = Vec::new();
    while let Some(response) = requests.join_next().await {
        let (state, _) = response.expect("no panic");
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
    assert_eq!(states, [(State::Miss, 1), (State::WaitHit, REQUESTS - 1)]);
    assert_eq!(site.renders(), 1);
    let (reads, commits) = site.table.take();
    assert!(reads <= 3 && commits == 2, "as many as for one request: {reads} reads, {commits} commits");
}

#[tokio::test(start_paused = true)]
async fn a_missing_page_is_rendered_once_by_three_processes() {
    let site = Site::new();
    let sites = [site.clone(), site.another(), site.another()];
    let states = stampede(&sites, "one", SECOND).await;
    assert_eq!(states, [(State::Miss, 1), (State::WaitHit, REQUESTS - 1)]);
    assert_eq!(site.renders(), 1);
    let (reads, _) = site.table.take();
    // The pauses grow with the time that a poller has waited, since this table responds at once.
    assert!(reads < 120, "{reads} reads: one poller per process, with growing pauses");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_does_not_respond_at_once_is_read_rarely_while_another_process_renders() {
    let site = Site::new();
    site.table.slow_down(Duration::from_millis(5));
    let sites = [site.clone(), site.another(), site.another()];
    let states = stampede(&sites, "one", SECOND).await;
    assert_eq!(states, [(State::Miss, 1), (State::WaitHit, REQUESTS - 1)]);
    let (reads, _) = site.table.take();
    assert!(reads < 50, "{reads} reads: each one is billed");
}

#[tokio::test(start_paused = true)]
async fn a_stale_page_is_rendered_once_and_no_request_waits_for_it() {
    let site = Site::with_page().await;
    tokio::time::advance(INTERVAL).await;
    let began = site.isr.now();
    let states = stampede(std::slice::from_ref(&site), "two", 10 * SECOND).await;
    assert_eq!(states, [(State::Stale, REQUESTS)]);
    let waited = site.isr.now().millis() - began.millis();
    assert!(waited < 100, "no request waited for the render: {waited} ms");
    tokio::time::sleep(11 * SECOND).await;
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_in_memory_is_read_once() {
    let site = Site::with_page().await;
    let cold = site.another();
    site.table.take();
    let states = stampede(std::slice::from_ref(&cold), "two", SECOND).await;
    assert_eq!(states, [(State::Hit, REQUESTS)]);
    let (reads, commits) = site.table.take();
    assert!(reads <= 2 && commits == 0, "{reads} reads, {commits} commits");
}
