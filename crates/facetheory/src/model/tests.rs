//! The protocol holds in every scope, and every mutant violates an invariant.

use super::explore::{Exploration, explore, explore_world, random_walks};
use super::mutant::Mutant;
use super::scope::Scope;
use super::table::World;

/// How many states of each scope are explored by default.
const STATES: usize = 60_000;

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().and_then(|value| value.parse().ok())
}

fn holds(scope: Scope, most: usize) {
    let exploration = explore(scope, None, most);
    println!("{exploration}");
    if let Some(counterexample) = exploration.counterexample {
        panic!("{}: {counterexample}", scope.name);
    }
}

#[test]
fn the_protocol_holds_in_every_scope() {
    let most = number("FACETHEORY_MODEL_STATES").unwrap_or(STATES);
    Scope::ALL.into_iter().for_each(|scope| holds(scope, most));
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
