//! Campaigns of many seeds: none may break anything, and each must catch the mutants.

use std::collections::BTreeSet;

use facetheory_simulation::{Campaign, Count, Invariant, Mutant, Settings, Tally};

/// How many seeds a run tries by default.
const SEEDS: u64 = 1000;
/// Within how many seeds a mutant must have been caught in every way that it should be.
const SEEDS_A_MUTANT: u64 = 300;

/// Runs the seeds that the environment tells. Unless that is one alone, each of these counts must come up.
#[expect(clippy::print_stdout, reason = "what has happened in so many histories is worth knowing")]
pub(crate) fn no_seed_breaks_anything<'a>(settings: Settings, counts: impl IntoIterator<Item = &'a Count>) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let one = number("FACETHEORY_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("FACETHEORY_SEEDS").unwrap_or(SEEDS),
    };
    let mut total = Tally::default();
    for report in Campaign::start(seeds.clone(), settings) {
        let seed = report.seed;
        assert_eq!(report.violation, None, "seed {seed}; FACETHEORY_SEED={seed} repeats it");
        total.merge(&report.tally);
    }
    println!("{} seeds:\n{total}", seeds.end - seeds.start);
    if one.is_none() {
        for count in counts {
            assert!(total.of(*count) > 0, "no history has any {count}:\n{total}");
        }
    }
}

/// Every mutant is caught by every invariant that it should break.
pub(crate) fn every_one_is_caught(
    settings: Settings,
    mutants: impl IntoIterator<Item = (Mutant, &'static [Invariant])>,
) {
    let mut uncaught = Vec::new();
    for (mutant, breaks) in mutants {
        let mut missing: BTreeSet<Invariant> = breaks.iter().copied().collect();
        let mut campaign = Campaign::start(0..SEEDS_A_MUTANT, Settings { mutant: Some(mutant), ..settings });
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
