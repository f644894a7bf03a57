//! A gateway dies in the middle of a render.

use std::sync::{Arc, Mutex};

use tabletheory::{Clock as _, SystemClock};

use crate::crowd::{Crowd, assert_all_given};
use crate::pair::Pair;
use crate::support::origin::{Answer, Gate};
use crate::support::{tell, until};

/// The lease is so long that a gateway which rests for some seconds still has it, and so short that a test can wait for
/// its end.
const RULES: &str =
    "[routes]\n\"/**\" = { isr = \"1h\", lease = \"8s\", wait_timeout = \"5m\", render_timeout = \"5m\" }\n";
/// So many visitors wait at the gateway that lives on.
const VISITORS: usize = 100;

#[test]
fn a_gateway_that_dies_in_mid_render_is_followed_by_the_other_after_its_lease_and_nobody_there_gets_an_error()
{
    let pair = Pair::start(RULES);
    let (never, asked_at) = (Gate::default(), Arc::new(Mutex::new(Vec::new())));
    let (gate, times) = (never.clone(), asked_at.clone());
    // The first render never ends; the next is quick.
    pair.origin.script("/page", move |_| {
        let mut times = times.lock().expect("times");
        times.push(SystemClock.now().seconds());
        match times.len() {
            1 => Answer::page(&[], "<p>of the dead</p>").after(&gate),
            _ => Answer::page(&[], "<p>of the living</p>"),
        }
    });
    let mut of_the_dead = Crowd::new();
    of_the_dead.come(&pair.one, "/page", 1);
    until("the render begins", || (!asked_at.lock().expect("times").is_empty()).then_some(()));
    let mut crowd = Crowd::new();
    crowd.come(&pair.other, "/page", VISITORS);
    let locks = pair.store.locks();
    assert_eq!(locks.len(), 1, "one of them renders: {locks:?}");
    assert_eq!(pair.origin.requests().len(), 1, "the other waits");
    let held_until = locks[0].lease_expires_at;

    pair.one.kill();
    let killed = SystemClock.now();
    let tally = crowd.seen();
    let took = SystemClock.now().millis() - killed.millis();
    never.open();

    let states = assert_all_given(&tally, "<p>of the living</p>", VISITORS);
    let asked_at = asked_at.lock().expect("times").clone();
    assert_eq!(asked_at.len(), 2, "it was rendered once more, and only once");
    assert!(asked_at[1] >= held_until, "it was taken over before {held_until}: {asked_at:?}");
    let after = pair.store.locks();
    assert!(after.is_empty(), "nobody holds a lease any more: {after:?}");
    tell(&format!(
        "a gateway was killed in mid-render: {VISITORS} visitors of the other: {states}, within {took} ms"
    ));
}
