//! Campaigns over many seeds.

use std::collections::BTreeSet;

use facetheory_simulation::{Campaign, Counter, Invariant, Mutant, Settings, Stats};

/// The default number of seeds.
const SEEDS: u64 = 1000;
/// The number of seeds within which a mutant must violate each of its invariants.
const SEEDS_PER_MUTANT: u64 = 300;

/// Runs the seeds that the environment sets. With more than one seed, each of these counters must rise.
#[expect(clippy::print_stdout, reason = "the statistics show what the histories covered")]
pub(crate) fn every_seed_passes<'a>(settings: Settings, counters: impl IntoIterator<Item = &'a Counter>) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let one = number("FACETHEORY_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("FACETHEORY_SEEDS").unwrap_or(SEEDS),
    };
    let mut total = Stats::default();
    for report in Campaign::start(seeds.clone(), settings) {
        let seed = report.seed;
        assert_eq!(report.violation, None, "seed {seed}; set FACETHEORY_SEED={seed} to repeat it");
        total.merge(&report.stats);
    }
    println!("{} seeds:\n{total}", seeds.end - seeds.start);
    if one.is_none() {
        for counter in counters {
            assert!(total.of(*counter) > 0, "no history counted any {counter}:\n{total}");
        }
    }
}

/// Every mutant violates each of these invariants in some history.
pub(crate) fn every_mutant_is_detected(
    settings: Settings,
    mutants: impl IntoIterator<Item = (Mutant, &'static [Invariant])>,
) {
    let mut undetected = Vec::new();
    for (mutant, breaks) in mutants {
        let mut missing: BTreeSet<Invariant> = breaks.iter().copied().collect();
        let mut campaign =
            Campaign::start(0..SEEDS_PER_MUTANT, Settings { mutant: Some(mutant), ..settings });
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
            undetected.push(format!("{mutant} did not violate {missing:?}, but {other:?}"));
        }
    }
    assert!(undetected.is_empty(), "{undetected:#?}");
}
