//! The protocol holds in every scope, and no mutant of it does.

use super::explore::explore;
use super::mutant::Mutant;
use super::scope::Scope;

/// How many states of each scope are visited every day.
const STATES: usize = 30_000;

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
fn every_guard_that_is_taken_out_is_missed() {
    let trace = std::env::var_os("FACETHEORY_MODEL_TRACE").is_some();
    for (mutant, scope) in Mutant::ALL {
        let exploration = explore(scope, Some(mutant), 10 * STATES);
        println!("{mutant:?}, {exploration}");
        match exploration.counterexample {
            Some(counterexample) if trace => println!("{mutant:?}: {counterexample}"),
            Some(counterexample) => {
                println!("{mutant:?}: {} in {} steps", counterexample.broken, counterexample.steps.len());
            }
            None => panic!("{mutant:?} was not noticed"),
        }
    }
}
