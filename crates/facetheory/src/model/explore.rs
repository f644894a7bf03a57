//! Explores all states breadth first, so that the first violation has a shortest trace.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use tabletheory::{Clock as _, Random as _, SeededRandom, SystemClock};

use super::action::{Action, Step};
use super::invariant::Violation;
use super::mutant::Mutant;
use super::scope::Scope;
use super::state::State;
use super::table::World;

/// The result of an exploration.
#[derive(Debug)]
pub(super) struct Exploration {
    scope: &'static str,
    pub(super) states: usize,
    steps: usize,
    /// The number of steps to the farthest state.
    depth: usize,
    /// Whether all states within the bounds of the scope were explored.
    pub(super) exhausted: bool,
    seconds: f64,
    known: (usize, usize),
    pub(super) counterexample: Option<Counterexample>,
}

/// A shortest trace to a violation.
#[derive(Debug)]
pub(super) struct Counterexample {
    pub(super) violation: Violation,
    pub(super) steps: Vec<Action>,
}

impl fmt::Display for Exploration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exploration { scope, states, steps, depth, seconds, known: (rows, transactions), .. } = self;
        let whole = if self.exhausted { "all" } else { "the first" };
        write!(f, "{scope}: {whole} {states} states, {steps} steps, depth {depth}, {seconds:.1} s ")?;
        write!(f, "({rows} different rows, {transactions} different transactions)")
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after {} steps:", self.violation, self.steps.len())?;
        self.steps.iter().enumerate().try_for_each(|(index, step)| writeln!(f, "  {:2}. {step}", index + 1))
    }
}

/// States are stored as 64-bit fingerprints: among ten million, the probability of a collision is one in 300,000.
type Fingerprint = u64;

/// A hasher for fingerprints, which are already hashes.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}

/// Each explored state, and the state from which it was first reached.
type Seen = HashMap<Fingerprint, Fingerprint, BuildHasherDefault<AsIs>>;

fn fingerprint(state: &State) -> Fingerprint {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Explores the states of a scope breadth first, until an invariant is violated, all or `most` states were explored.
pub(super) fn explore(scope: Scope, mutant: Option<Mutant>, most: usize) -> Exploration {
    explore_world(World::new(scope, mutant), most)
}

/// Explores the states of a world that was set up for a special check.
pub(super) fn explore_world(mut world: World, most: usize) -> Exploration {
    let start = SystemClock.now();
    let beginning = world.beginning();
    let mut seen = Seen::default();
    seen.insert(fingerprint(&beginning), 0);
    let mut level = vec![beginning];
    let (mut depth, mut steps) = (0, 0);
    let mut found: Vec<Step> = Vec::new();
    let mut violation = None;
    'levels: while !level.is_empty() && seen.len() < most {
        let mut next = Vec::new();
        for state in &level {
            let from = fingerprint(state);
            world.steps(state, &mut found);
            steps += found.len();
            for step in &found {
                if let Some(what) = step.violation {
                    violation = Some((from, step.action, what));
                    break 'levels;
                }
                let to = fingerprint(&step.state);
                if let std::collections::hash_map::Entry::Vacant(place) = seen.entry(to) {
                    place.insert(from);
                    next.push(step.state);
                }
            }
            if seen.len() >= most {
                break;
            }
        }
        depth += 1;
        level = next;
    }
    let exhausted = level.is_empty();
    let counterexample = violation.map(|(from, last, violation)| {
        let mut steps = path(&mut world, &seen, from);
        steps.push(last);
        Counterexample { violation, steps }
    });
    let millis = SystemClock.now().millis() - start.millis();
    Exploration {
        scope: world.scope.name,
        states: seen.len(),
        steps,
        depth,
        exhausted,
        seconds: f64::from(i32::try_from(millis).unwrap_or(i32::MAX)) / 1000.0,
        known: world.known(),
        counterexample,
    }
}

/// The steps from the initial state to a state, found by following the fingerprints again.
fn path(world: &mut World, seen: &Seen, to: Fingerprint) -> Vec<Action> {
    let mut trace = vec![to];
    while let Some(from) = trace.last().and_then(|to| seen.get(to)).filter(|from| **from != 0) {
        trace.push(*from);
    }
    let mut state = world.beginning();
    let mut found = Vec::new();
    trace
        .iter()
        .rev()
        .skip(1)
        .map(|to| {
            world.steps(&state, &mut found);
            let step = found.iter().find(|step| fingerprint(&step.state) == *to).expect("it was seen before");
            state = step.state;
            step.action
        })
        .collect()
}

/// Takes random steps from the initial state until none is possible, many times: deeper than an exhaustive exploration.
pub(super) fn random_walks(scope: Scope, walks: usize) -> (usize, Option<Counterexample>) {
    let mut world = World::new(scope, None);
    let random = SeededRandom::new(0);
    let mut found = Vec::new();
    let mut longest = 0;
    for _ in 0..walks {
        let mut state = world.beginning();
        let mut steps = Vec::new();
        loop {
            world.steps(&state, &mut found);
            let number = usize::try_from(random.next_u64() >> 32).unwrap_or(0);
            let Some(step) = number.checked_rem(found.len()).map(|index| found[index]) else { break };
            steps.push(step.action);
            if let Some(violation) = step.violation {
                return (longest, Some(Counterexample { violation, steps }));
            }
            state = step.state;
        }
        longest = longest.max(steps.len());
    }
    (longest, None)
}
