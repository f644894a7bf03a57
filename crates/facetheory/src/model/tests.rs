//! The protocol holds in every scope, and every mutant violates an invariant.
//!
//! A scope in [`Scope::SMALL`] is explored completely. One in [`Scope::LARGE`] has millions of states: those nearest to the
//! beginning are explored, and the rest only by random walks.

use super::explore::{Exploration, explore, explore_world, random_walks};
use super::mutant::Mutant;
use super::scope::Scope;
use super::table::World;

/// How many states of each large scope are explored by default; no small one has so many.
const STATES: usize = 60_000;

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().and_then(|value| value.parse().ok())
}

/// Explores a scope without a violation, and returns whether that were all its states.
fn holds(scope: Scope, most: usize) -> bool {
    let exploration = explore(scope, None, most);
    println!("{exploration}");
    if let Some(counterexample) = exploration.counterexample {
        panic!("{}: {counterexample}", scope.name);
    }
    exploration.exhausted
}

#[test]
fn the_protocol_holds_in_every_interleaving_of_the_small_scopes() {
    let unfinished = Scope::SMALL.into_iter().filter(|scope| !holds(*scope, STATES));
    let unfinished: Vec<&str> = unfinished.map(|scope| scope.name).collect();
    assert!(unfinished.is_empty(), "these have more than {STATES} states; make them smaller: {unfinished:?}");
}

#[test]
fn the_protocol_holds_in_the_nearest_states_of_the_large_scopes() {
    let most = number("FACETHEORY_MODEL_STATES").unwrap_or(STATES);
    let finished = Scope::LARGE.into_iter().filter(|scope| holds(*scope, most));
    let finished: Vec<&str> = finished.map(|scope| scope.name).collect();
    assert!(finished.is_empty() || most > STATES, "all states were explored; these are small: {finished:?}");
}

#[test]
fn the_protocol_holds_on_long_random_walks() {
    let walks = number("FACETHEORY_MODEL_STATES").unwrap_or(STATES) / 25;
    let (longest, counterexample) = random_walks(Scope::EVERYTHING, walks);
    println!("everything: {walks} random walks, the longest of {longest} steps");
    if let Some(counterexample) = counterexample {
        panic!("{counterexample}");
    }
}

#[test]
fn every_mutant_is_detected() {
    for (mutant, scope) in Mutant::ALL {
        is_detected(mutant, explore(scope, Some(mutant), STATES));
    }
}

#[test]
fn neither_expiry_nor_generated_at_can_replace_the_token() {
    for mutant in [Mutant::NoToken, Mutant::ExpiryForToken, Mutant::RisingForToken] {
        let mut world = World::new(Scope::TAKEOVER, Some(mutant));
        world.ignore_lock_ownership = true;
        is_detected(mutant, explore_world(world, STATES));
    }
}

fn is_detected(mutant: Mutant, exploration: Exploration) {
    let found = exploration.to_string();
    let Some(counterexample) = exploration.counterexample else {
        panic!("the mutant was not detected: {mutant:?}, {found}");
    };
    if std::env::var_os("FACETHEORY_MODEL_TRACE").is_some() {
        println!("{mutant:?}: {counterexample}");
    } else {
        println!("{mutant:?}: {} in {} steps; {found}", counterexample.violation, counterexample.steps.len());
    }
}
