//! What must hold for visitors in every history, and the breaks that show that it is really checked.
//!
//! `FACETHEORY_SEEDS=10000` tries more seeds than the default and `FACETHEORY_SEED=42` exactly one.

mod support;

use facetheory_simulation::{Count, Invariant, Mutant, Settings, simulate};
use support::{every_one_is_caught, no_seed_breaks_anything};

fn visitors() -> Settings {
    Settings { visitors: true, ..Settings::default() }
}

#[test]
fn no_seed_shows_a_visitor_what_it_should_not() {
    no_seed_breaks_anything(visitors(), Count::OF_VISITORS);
}

#[test]
fn one_seed_gives_one_history() {
    for seed in 0..20 {
        assert_eq!(simulate(seed, &visitors()), simulate(seed, &visitors()));
        assert_ne!(simulate(seed, &visitors()).fingerprint, simulate(seed, &Settings::default()).fingerprint);
    }
}

#[test]
fn every_mutant_is_caught() {
    // The table's own lies are noticed by visitors, too.
    let of_the_table: [(Mutant, &[Invariant]); 3] = [
        (Mutant::DeafTag, &[Invariant::ShownFresh]),
        (Mutant::EternalLock, &[Invariant::Recovers]),
        (Mutant::SharedPartition, &[Invariant::TenantsApart]),
    ];
    let own = Mutant::ALL.iter().filter(|mutant| mutant.is_about_visitors());
    every_one_is_caught(visitors(), own.map(|mutant| (*mutant, mutant.breaks())).chain(of_the_table));
}
