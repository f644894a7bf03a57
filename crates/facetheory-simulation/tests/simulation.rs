//! What must hold in every history, and the breaks that show that it is really checked.
//!
//! `FACETHEORY_SEEDS=10000` tries more seeds than the default and `FACETHEORY_SEED=42` exactly one: a failure names its
//! seed, and the seed repeats it.

mod support;

use facetheory_simulation::{Count, Invariant, Mutant, Settings, simulate};
use support::{every_one_is_caught, no_seed_breaks_anything};

#[test]
fn no_seed_breaks_the_protocol() {
    let counts = Count::ALL.iter().filter(|count| !Count::OF_VISITORS.contains(count));
    no_seed_breaks_anything(Settings::default(), counts);
}

#[test]
fn one_seed_gives_one_history() {
    let settings = Settings::default();
    for seed in 0..20 {
        assert_eq!(simulate(seed, &settings), simulate(seed, &settings));
        assert_ne!(simulate(seed, &settings).fingerprint, simulate(seed + 1, &settings).fingerprint);
    }
}

#[test]
fn every_mutant_is_caught() {
    let mutants = Mutant::ALL.iter().filter(|mutant| !mutant.is_about_visitors());
    every_one_is_caught(Settings::default(), mutants.map(|mutant| (*mutant, mutant.breaks())));
}

#[test]
fn every_invariant_has_a_mutant() {
    for invariant in Invariant::ALL {
        let caught = Mutant::ALL.iter().any(|mutant| mutant.breaks().contains(invariant));
        assert!(caught, "nothing can break: {invariant}");
    }
}
