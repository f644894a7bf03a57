//! Slow renders and slow stores with the default timeouts, by a simulated clock. Tests with real servers have longer ones,
//! because a busy machine pauses.

use std::time::Duration;

use facetheory::{Rendered, State};
use futures_util::future::join_all;

use crate::fixture::{INTERVAL, SECOND, Site, served, slow_bodies, state_and_body};

const CLIENTS: usize = 300;
/// A little less than the default wait of ten seconds, and longer than the default lease.
const ALMOST_WAIT: Duration = Duration::from_millis(9_500);
/// The longest time of a read. A lookup has two, of the page and of its epochs, in the default timeout of two seconds.
const ALMOST_TABLE_TIMEOUT: Duration = Duration::from_millis(950);
/// A little less, and a little more, than the default timeout of a body, ten seconds.
const BODY_TIMEOUT: [Duration; 2] = [Duration::from_millis(9_900), Duration::from_millis(10_100)];

#[tokio::test(start_paused = true)]
async fn all_clients_of_three_processes_get_one_render_that_takes_almost_the_default_wait() {
    let site = Site::new();
    let processes = [site.clone(), site.another(), site.another()];
    let clients =
        processes.iter().cycle().take(CLIENTS).map(async |process| {
            state_and_body(process.get_slow(ALMOST_WAIT, Ok(Rendered::html("one"))).await)
        });
    let responses = join_all(clients).await;
    let waited = responses.iter().filter(|response| **response == served(State::WaitHit, "one")).count();
    let missed = responses.iter().filter(|response| **response == served(State::Miss, "one")).count();
    assert_eq!((missed, waited, site.renders()), (1, CLIENTS - 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_takes_almost_its_default_timeout_is_waited_for_and_a_slower_one_is_unreachable() {
    let site = Site::new();
    site.table.slow_down(ALMOST_TABLE_TIMEOUT);
    assert_eq!(site.get("one").await, served(State::Miss, "one"));
    site.settle().await;
    for _ in 0..10 {
        // Each process reads the table.
        assert_eq!(site.another().get("other").await, served(State::Hit, "one"));
    }
    tokio::time::sleep(INTERVAL).await;
    assert_eq!(site.another().get("two").await, served(State::Stale, "one"));
    tokio::time::sleep(INTERVAL / 2).await;
    assert_eq!(site.another().get("other").await, served(State::Hit, "two"));
    site.table.slow_down(1000 * SECOND);
    assert_eq!(site.another().get("three").await, served(State::Bypass, "three"));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_almost_its_default_timeout_is_waited_for_and_a_slower_one_is_unreachable() {
    let [in_time, late] = BODY_TIMEOUT.map(|read_time| Site::on(|builder| builder, slow_bodies(read_time)));
    for (site, expected) in [(in_time, served(State::Hit, "one")), (late, served(State::Bypass, "two"))] {
        assert_eq!(site.get("one").await, served(State::Miss, "one"));
        assert_eq!(site.another().get("two").await, expected);
    }
}
