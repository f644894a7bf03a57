//! Histories with clients: every seed satisfies the invariants, and every mutant is detected.
//!
//! `FACETHEORY_SEEDS=10000` runs more seeds than the default, and `FACETHEORY_SEED=42` exactly one.

mod support;

use facetheory_simulation::{Counter, Invariant, Mutant, Settings, simulate};
use support::{every_mutant_is_detected, every_seed_passes};

fn clients() -> Settings {
    Settings { clients: true, ..Settings::default() }
}

#[test]
fn every_seed_satisfies_the_invariants_of_clients() {
    every_seed_passes(clients(), Counter::ALL.iter().filter(|counter| counter.is_about_clients()));
}

#[test]
fn a_seed_repeats_its_history() {
    for seed in 0..20 {
        assert_eq!(simulate(seed, &clients()), simulate(seed, &clients()));
        assert_ne!(simulate(seed, &clients()).fingerprint, simulate(seed, &Settings::default()).fingerprint);
    }
}

#[test]
fn mutants_are_detected() {
    // Clients detect mutants of the table, too.
    let table_mutants: [(Mutant, &[Invariant]); 3] = [
        (Mutant::IgnoredTag, &[Invariant::FreshToClients]),
        (Mutant::EternalLock, &[Invariant::RecoversOnce]),
        (Mutant::SharedPartition, &[Invariant::TenantIsolation]),
    ];
    let client_mutants = Mutant::ALL.iter().filter(|mutant| mutant.is_about_clients());
    every_mutant_is_detected(
        clients(),
        client_mutants.map(|mutant| (*mutant, mutant.breaks())).chain(table_mutants),
    );
}
