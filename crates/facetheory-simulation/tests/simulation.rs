//! What must hold in every history, and the breaks that show that it is really checked.
//!
//! `FACETHEORY_SEEDS=10000` tries more seeds than the default and `FACETHEORY_SEED=42` exactly one: a failure names its
//! seed, and the seed repeats it.

use std::collections::BTreeSet;

use facetheory_simulation::{Campaign, Count, Invariant, Mutant, Settings, Tally, simulate};

/// How many seeds a run tries by default.
const SEEDS: u64 = 1000;
/// Within how many seeds a mutant must have been caught in every way that it should be.
const SEEDS_A_MUTANT: u64 = 300;

#[test]
fn no_seed_breaks_the_protocol() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let one = number("FACETHEORY_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("FACETHEORY_SEEDS").unwrap_or(SEEDS),
    };
    let mut total = Tally::default();
    for report in Campaign::start(seeds.clone(), Settings::default()) {
        let seed = report.seed;
        assert_eq!(report.violation, None, "seed {seed}; FACETHEORY_SEED={seed} repeats it");
        total.merge(&report.tally);
    }
    println!("{} seeds:\n{total}", seeds.end - seeds.start);
    if one.is_none() {
        for count in Count::ALL.iter().filter(|count| !Count::OF_VISITORS.contains(count)) {
            assert!(total.of(*count) > 0, "no history has any {count}:\n{total}");
        }
    }
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
    let mut uncaught = Vec::new();
    for mutant in Mutant::ALL.iter().filter(|mutant| !mutant.is_about_visitors()) {
        let settings = Settings { mutant: Some(*mutant), ..Settings::default() };
        let mut missing: BTreeSet<Invariant> = mutant.breaks().iter().copied().collect();
        let mut campaign = Campaign::start(0..SEEDS_A_MUTANT, settings);
        let mut other = BTreeSet::new();
        while !missing.is_empty()
            && let Some(report) = campaign.next()
        {
            if let Some(violation) = report.violation
                && !missing.remove(&violation.invariant)
                && !mutant.breaks().contains(&violation.invariant)
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

#[test]
fn every_invariant_has_a_mutant() {
    for invariant in Invariant::ALL {
        let caught = Mutant::ALL.iter().any(|mutant| mutant.breaks().contains(invariant));
        assert!(caught, "nothing can break: {invariant}");
    }
}
