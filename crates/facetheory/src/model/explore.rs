//! Breadth first over all states, so that the first violation found is a shortest one.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use tabletheory::{Clock as _, Random as _, SeededRandom, SystemClock};

use super::action::{Action, Step};
use super::invariant::Broken;
use super::mutant::Mutant;
use super::scope::Scope;
use super::state::State;
use super::table::World;

/// What an exploration saw.
#[derive(Debug)]
pub(super) struct Exploration {
    scope: &'static str,
    pub(super) states: usize,
    steps: usize,
    /// How many steps away the farthest state is.
    depth: usize,
    /// Whether nothing was left to see within the bounds of the scope.
    exhausted: bool,
    seconds: f64,
    known: (usize, usize),
    pub(super) counterexample: Option<Counterexample>,
}

/// A shortest way to what must not happen.
#[derive(Debug)]
pub(super) struct Counterexample {
    pub(super) broken: Broken,
    pub(super) steps: Vec<Action>,
}

impl fmt::Display for Exploration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exploration { scope, states, steps, depth, seconds, known: (rows, answers), .. } = self;
        let whole = if self.exhausted { "all" } else { "the first" };
        write!(f, "{scope}: {whole} {states} states, {steps} steps, depth {depth}, {seconds:.1} s ")?;
        write!(f, "({rows} different rows, {answers} different transactions)")
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after {} steps:", self.broken, self.steps.len())?;
        self.steps.iter().enumerate().try_for_each(|(index, step)| writeln!(f, "  {:2}. {step}", index + 1))
    }
}

/// States are kept as fingerprints: 64 bits tell ten million apart but for one chance in 300,000.
type Fingerprint = u64;

/// A fingerprint is as good as random already.
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

/// Each state that was seen, and from where it was reached first.
type Seen = HashMap<Fingerprint, Fingerprint, BuildHasherDefault<AsIs>>;

fn fingerprint(state: &State) -> Fingerprint {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Visits the states of a scope, nearest first, until something is broken, all were seen, or there were `most`.
pub(super) fn explore(scope: Scope, mutant: Option<Mutant>, most: usize) -> Exploration {
    explore_world(World::new(scope, mutant), most)
}

/// The same, of a world that was made to look at something in particular.
pub(super) fn explore_world(mut world: World, most: usize) -> Exploration {
    let start = SystemClock.now();
    let beginning = world.beginning();
    let mut seen = Seen::default();
    seen.insert(fingerprint(&beginning), 0);
    let mut level = vec![beginning];
    let (mut depth, mut steps) = (0, 0);
    let mut found: Vec<Step> = Vec::new();
    let mut broken = None;
    'levels: while !level.is_empty() && seen.len() < most {
        let mut next = Vec::new();
        for state in &level {
            let from = fingerprint(state);
            world.steps(state, &mut found);
            steps += found.len();
            for step in &found {
                if let Some(what) = step.broken {
                    broken = Some((from, step.action, what));
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
    let counterexample = broken.map(|(from, last, broken)| {
        let mut steps = path(&mut world, &seen, from);
        steps.push(last);
        Counterexample { broken, steps }
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

/// The steps from the beginning to a state, found by going the way of the fingerprints once more.
fn path(world: &mut World, seen: &Seen, to: Fingerprint) -> Vec<Action> {
    let mut way = vec![to];
    while let Some(from) = way.last().and_then(|to| seen.get(to)).filter(|from| **from != 0) {
        way.push(*from);
    }
    let mut state = world.beginning();
    let mut found = Vec::new();
    way.iter()
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

/// Goes at random from the beginning until nothing is left to do, many times: deeper than all states can be visited.
pub(super) fn wander(scope: Scope, walks: usize) -> (usize, Option<Counterexample>) {
    let mut world = World::new(scope, None);
    let random = SeededRandom::new(0);
    let mut found = Vec::new();
    let mut longest = 0;
    for _ in 0..walks {
        let mut state = world.beginning();
        let mut steps = Vec::new();
        loop {
            world.steps(&state, &mut found);
            let chance = usize::try_from(random.next_u64() >> 32).unwrap_or(0);
            let Some(step) = chance.checked_rem(found.len()).map(|index| found[index]) else { break };
            steps.push(step.action);
            if let Some(broken) = step.broken {
                return (longest, Some(Counterexample { broken, steps }));
            }
            state = step.state;
        }
        longest = longest.max(steps.len());
    }
    (longest, None)
}
