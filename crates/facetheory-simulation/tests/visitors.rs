//! What must hold for visitors in every history, and the breaks that show that it is really checked.
//!
//! `FACETHEORY_SEEDS=10000` tries more seeds than the default and `FACETHEORY_SEED=42` exactly one.

use std::collections::BTreeSet;

use facetheory_simulation::{Campaign, Count, Invariant, Mutant, Settings, Tally, simulate};

/// How many seeds a run tries by default.
const SEEDS: u64 = 1000;
/// Within how many seeds a mutant must have been caught in every way that it should be.
const SEEDS_A_MUTANT: u64 = 300;

fn visitors() -> Settings {
    Settings { visitors: true, ..Settings::default() }
}

#[test]
fn no_seed_shows_a_visitor_what_it_should_not() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let one = number("FACETHEORY_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("FACETHEORY_SEEDS").unwrap_or(SEEDS),
    };
    let mut total = Tally::default();
    for report in Campaign::start(seeds.clone(), visitors()) {
        let seed = report.seed;
        assert_eq!(report.violation, None, "seed {seed}; FACETHEORY_SEED={seed} repeats it");
        total.merge(&report.tally);
    }
    println!("{} seeds:\n{total}", seeds.end - seeds.start);
    if one.is_none() {
        for count in Count::OF_VISITORS {
            assert!(total.of(*count) > 0, "no history has any {count}:\n{total}");
        }
    }
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
    let mut uncaught = Vec::new();
    for (mutant, breaks) in own.map(|mutant| (*mutant, mutant.breaks())).chain(of_the_table) {
        let settings = Settings { mutant: Some(mutant), ..visitors() };
        let mut missing: BTreeSet<Invariant> = breaks.iter().copied().collect();
        let mut campaign = Campaign::start(0..SEEDS_A_MUTANT, settings);
        let mut other = BTreeSet::new();
        while !missing.is_empty()
            && let Some(report) = campaign.next()
        {
            if let Some(violation) = report.violation
                && !missing.remove(&violation.invariant)
                && !breaks.contains(&violation.invariant)
            {
                other.insert(violation.invariant);
            }
        }
        if !missing.is_empty() {
            uncaught.push(format!("{mutant} was not caught by {missing:?}, but by {other:?}"));
        }
    }
    assert!(uncaught.is_empty(), "{uncaught:#?}");
}
