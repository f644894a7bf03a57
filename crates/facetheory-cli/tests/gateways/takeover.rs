//! A gateway dies in the middle of a render.

use std::sync::{Arc, Mutex};

use tabletheory::{Clock as _, SystemClock};

use crate::burst::{Burst, assert_all_served};
use crate::pair::Pair;
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::{print, wait_for};

/// The lease is so long that a gateway which rests for some seconds still has it, and so short that a test can wait for
/// its end.
const RULES: &str =
    "[routes]\n\"/**\" = { isr = \"1h\", lease = \"8s\", wait_timeout = \"5m\", render_timeout = \"5m\" }\n";
/// So many visitors wait at the gateway that lives on.
const CLIENTS: usize = 100;

#[test]
fn another_gateway_takes_over_a_render_after_the_lease_of_a_killed_one() {
    let pair = Pair::start(RULES);
    let (never, asked_at) = (Gate::default(), Arc::new(Mutex::new(Vec::new())));
    let (gate, times) = (never.clone(), asked_at.clone());
    // The first render never ends; the next is quick.
    pair.origin.script("/page", move |_| {
        let mut times = times.lock().expect("times");
        times.push(SystemClock.now().seconds());
        match times.len() {
            1 => ScriptedResponse::page(&[], "<p>of the dead</p>").after(&gate),
            _ => ScriptedResponse::page(&[], "<p>of the living</p>"),
        }
    });
    let mut of_the_dead = Burst::new();
    of_the_dead.come(&pair.one, "/page", 1);
    wait_for("the render begins", || (!asked_at.lock().expect("times").is_empty()).then_some(()));
    let mut burst = Burst::new();
    burst.come(&pair.other, "/page", CLIENTS);
    let locks = pair.store.locks();
    assert_eq!(locks.len(), 1, "one of them renders: {locks:?}");
    assert_eq!(pair.origin.requests().len(), 1, "the other waits");
    let held_until = locks[0].lease_expires_at;

    pair.one.kill();
    let killed = SystemClock.now();
    let tally = burst.seen();
    let took = SystemClock.now().millis() - killed.millis();
    never.open();

    let states = assert_all_served(&tally, "<p>of the living</p>", CLIENTS);
    let asked_at = asked_at.lock().expect("times").clone();
    assert_eq!(asked_at.len(), 2, "it was rendered once more, and only once");
    assert!(asked_at[1] >= held_until, "it was taken over before {held_until}: {asked_at:?}");
    let after = pair.store.locks();
    assert!(after.is_empty(), "nobody holds a lease any more: {after:?}");
    print(&format!(
        "a gateway was killed in mid-render: {CLIENTS} visitors of the other: {states}, within {took} ms"
    ));
}
