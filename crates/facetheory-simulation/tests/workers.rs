//! Histories of workers: every seed satisfies the invariants, and every mutant is detected.
//!
//! `FACETHEORY_SEEDS=10000` runs more seeds than the default, and `FACETHEORY_SEED=42` exactly one. A failure prints its
//! seed, which repeats the history.

mod support;

use facetheory_simulation::{Counter, Invariant, Mutant, Settings, simulate};
use support::{every_mutant_is_detected, every_seed_passes};

#[test]
fn every_seed_satisfies_the_invariants_of_the_protocol() {
    let counters = Counter::ALL.iter().filter(|counter| !counter.is_about_clients());
    every_seed_passes(Settings::default(), counters);
}

#[test]
fn a_seed_repeats_its_history() {
    let settings = Settings::default();
    for seed in 0..20 {
        assert_eq!(simulate(seed, &settings), simulate(seed, &settings));
        assert_ne!(simulate(seed, &settings).fingerprint, simulate(seed + 1, &settings).fingerprint);
    }
}

#[test]
fn mutants_are_detected() {
    let mutants = Mutant::ALL.iter().filter(|mutant| !mutant.is_about_clients());
    every_mutant_is_detected(Settings::default(), mutants.map(|mutant| (*mutant, mutant.breaks())));
}

#[test]
fn every_invariant_has_a_mutant() {
    for invariant in Invariant::ALL {
        let detected = Mutant::ALL.iter().any(|mutant| mutant.breaks().contains(invariant));
        assert!(detected, "no mutant violates: {invariant}");
    }
}
