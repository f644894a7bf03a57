//! A gateway is killed during a render.

use std::sync::{Arc, Mutex};

use tabletheory::{Clock as _, SystemClock};

use crate::burst::{Burst, assert_all_served};
use crate::pair::Pair;
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::{print, wait_for};

/// The lease is long enough for a gateway on a busy machine to refresh it, and short enough for a test to wait for its
/// end.
const RULES: &str =
    "[routes]\n\"/**\" = { isr = \"1h\", lease = \"8s\", wait_timeout = \"5m\", render_timeout = \"5m\" }\n";
/// The number of clients of the other gateway.
const CLIENTS: usize = 100;

#[test]
fn another_gateway_takes_over_a_render_after_the_lease_of_a_killed_one() {
    let pair = Pair::start(RULES);
    let (never, requested_at) = (Gate::default(), Arc::new(Mutex::new(Vec::new())));
    let (gate, times) = (never.clone(), requested_at.clone());
    // The first render never ends; the second is fast.
    pair.origin.script("/page", move |_| {
        let mut times = times.lock().expect("times");
        times.push(SystemClock.now().seconds());
        match times.len() {
            1 => ScriptedResponse::page(&[], "<p>of the dead</p>").after(&gate),
            _ => ScriptedResponse::page(&[], "<p>of the living</p>"),
        }
    });
    let mut of_the_dead = Burst::new();
    of_the_dead.add_clients(&pair.one, "/page", 1);
    wait_for("the render starts", || (!requested_at.lock().expect("times").is_empty()).then_some(()));
    let mut burst = Burst::new();
    burst.add_clients(&pair.other, "/page", CLIENTS);
    let locks = pair.store.locks();
    assert_eq!(locks.len(), 1, "one gateway holds the lease: {locks:?}");
    assert_eq!(pair.origin.requests().len(), 1, "the other gateway waits");
    let held_until = locks[0].lease_expires_at;

    pair.one.kill();
    let killed = SystemClock.now();
    let counts = burst.responses();
    let took = SystemClock.now().millis() - killed.millis();
    never.open();

    let states = assert_all_served(&counts, "<p>of the living</p>", CLIENTS);
    let requested_at = requested_at.lock().expect("times").clone();
    assert_eq!(requested_at.len(), 2, "the page was rendered once more");
    assert!(requested_at[1] >= held_until, "the render was taken over before {held_until}: {requested_at:?}");
    let after = pair.store.locks();
    assert!(after.is_empty(), "all leases were released: {after:?}");
    print(&format!(
        "a gateway was killed during a render: {CLIENTS} clients of the other: {states}, within {took} ms"
    ));
}
