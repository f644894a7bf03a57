//! What visitors were given, and whether that was right by true time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use facetheory::{InvalidationMode, Policy, Served, State as Shown, Tag};

use super::{Ledger, State, short};
use crate::tally::Count;
use crate::violation::Invariant;
use crate::world::Place;

/// Two clocks differ by up to two seconds, and times in rows are whole seconds.
const SKEW: Duration = Duration::from_secs(3);

/// What is known of visitors, and of what pages should show.
#[derive(Debug, Default)]
pub(super) struct Site {
    /// What each page shows if it is rendered now: it rises with every edit.
    inputs: BTreeMap<String, u64>,
    /// What was invalidated and acknowledged.
    orders: Vec<CarriedOut>,
    /// When each page was last rolled back, in milliseconds.
    pub(super) rolled_back: BTreeMap<String, i64>,
    /// How many renders of a page go on in a process, and how many there were.
    rendering: BTreeMap<(usize, String), u64>,
    renders: BTreeMap<(usize, String), u64>,
    /// How often somebody was granted the lease of a page.
    pub(super) granted: BTreeMap<(String, String), u64>,
}

/// What an operator wants to be stale.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Page(InvalidationMode),
    Tag(Tag),
}

/// An invalidation that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// The pages that are concerned, and what they have to show at least.
    pages: Vec<(String, u64)>,
    /// The process whose engine was told; none where the table was told directly.
    through: Option<usize>,
    hard: bool,
    tag: bool,
    asked: i64,
}

#[derive(Debug)]
struct CarriedOut {
    given: Given,
    acknowledged: i64,
}

/// A visit that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    process: usize,
    began: i64,
    /// How many invalidations had been acknowledged when it began, also within the same millisecond.
    acknowledged: usize,
    /// For how long the process believes what it read of a page, and of a tag.
    pub(crate) believed: Duration,
    pub(crate) epochs_believed: Duration,
    /// For how long a stale page may be served.
    pub(crate) limit: Option<Duration>,
    pub(crate) policy: Policy,
}

/// A render that goes on until this is dropped.
#[derive(Debug)]
pub(crate) struct Rendering {
    ledger: Arc<Ledger>,
    page: (usize, String),
}

impl Drop for Rendering {
    fn drop(&mut self) {
        if let Some(count) = self.ledger.state().site.rendering.get_mut(&self.page) {
            *count -= 1;
        }
    }
}

impl Ledger {
    /// What a page shows has changed.
    pub(crate) fn edit(&self, pk: &str) {
        *self.state().site.inputs.entry(pk.to_owned()).or_default() += 1;
    }

    /// An operator has changed what some pages show, and is about to say so.
    pub(crate) fn orders(
        &self,
        place: &Place,
        all: &[Place],
        order: &Order,
        through: Option<usize>,
    ) -> Given {
        let concerned = |other: &&Place| match order {
            Order::Page(_) => other.key.pk() == place.key.pk(),
            Order::Tag(tag) => other.tenant == place.tenant && other.tags().contains(tag),
        };
        let mut state = self.state();
        let mut pages = Vec::new();
        for other in all.iter().filter(concerned) {
            let input = state.site.inputs.entry(other.key.pk().to_owned()).or_default();
            *input += 1;
            pages.push((other.key.pk().to_owned(), *input));
        }
        Given {
            pages,
            through,
            hard: matches!(order, Order::Page(InvalidationMode::Hard)),
            tag: matches!(order, Order::Tag(_)),
            asked: state.elapsed,
        }
    }

    /// An invalidation was acknowledged.
    pub(crate) fn carried_out(&self, given: Given) {
        let mut state = self.state();
        let acknowledged = state.elapsed;
        state.note(format!(
            "acknowledged{}{}: {}",
            if given.tag { " of a tag" } else { "" },
            given.through.map_or_else(|| ", directly".into(), |number| format!(", process {number}")),
            given
                .pages
                .iter()
                .map(|(pk, input)| format!("{} {input}", short(pk)))
                .collect::<Vec<_>>()
                .join(", ")
        ));
        state.site.orders.push(CarriedOut { given, acknowledged });
    }

    /// A render begins. It shows what is true now, and goes on until the second value is dropped.
    pub(crate) fn render_begins(ledger: &Arc<Ledger>, process: usize, pk: &str) -> (u64, Rendering) {
        let mut state = ledger.state();
        let page = (process, pk.to_owned());
        let input = *state.site.inputs.entry(pk.to_owned()).or_default();
        let going_on = state.site.rendering.entry(page.clone()).or_default();
        *going_on += 1;
        let alone = *going_on == 1;
        let renders = state.site.renders.entry(page.clone()).or_default();
        *renders += 1;
        let renders = *renders;
        let owner = crate::visitor::name(process);
        let grants = state.site.granted.get(&(owner, pk.to_owned())).copied().unwrap_or(0);
        state.note(format!("{} process {process} renders input {input}", short(pk)));
        state.count(Count::Rendered);
        state.ensure(alone, Invariant::OneRender, || format!("process {process} renders {pk} twice at once"));
        state.ensure(renders <= grants, Invariant::OneRender, || {
            format!("process {process} has rendered {pk} {renders} times, and was granted {grants} leases")
        });
        (input, Rendering { ledger: ledger.clone(), page })
    }

    /// How many renders of a page there were, in all processes.
    pub(crate) fn renders(&self, pk: &str) -> u64 {
        let state = self.state();
        state.site.renders.iter().filter(|((_, page), _)| page == pk).map(|(_, count)| count).sum()
    }

    /// Whether a process renders anything now.
    pub(crate) fn is_rendering(&self, process: usize) -> bool {
        self.state().site.rendering.iter().any(|((number, _), count)| *number == process && *count > 0)
    }

    /// A visitor comes.
    pub(crate) fn arrives(&self, process: usize, place: &Place) -> Visit {
        let mut state = self.state();
        state.note(format!("a visitor of {place} in process {process}"));
        Visit {
            process,
            began: state.elapsed,
            acknowledged: state.site.orders.len(),
            believed: Duration::ZERO,
            epochs_believed: Duration::ZERO,
            limit: None,
            policy: Policy::every(Duration::ZERO),
        }
    }

    /// A visitor was told to ask the origin, or that there is nothing to be had.
    pub(crate) fn answered_without(&self, visit: &Visit, place: &Place, why: &str) {
        let mut state = self.state();
        state.note(format!("{place} in process {}: {why}", visit.process));
        state.count(Count::TurnedAway);
    }

    /// A visitor was given a page.
    pub(crate) fn answered_with(&self, visit: &Visit, place: &Place, served: &Served) {
        let mut state = self.state();
        state.count(count_of(served.state));
        let (pk, bytes) = (place.key.pk(), served.page.bytes());
        let text = String::from_utf8_lossy(bytes);
        let own = text.starts_with(&place.signature());
        state.ensure(own, Invariant::TenantsApart, || format!("{place} was served {text:?}"));
        let shown = text.rsplit_once("input ").and_then(|(_, number)| number.parse::<u64>().ok());
        state.ensure(shown.is_some(), Invariant::StaysReadable, || format!("{place} was served {text:?}"));
        let Some(shown) = shown else { return };
        let meta = served.page.meta();
        state.note(format!("{place} in process {}: {} input {shown}", visit.process, served.state));

        let claims = matches!(served.state, Shown::Hit | Shown::WaitHit | Shown::Miss | Shown::Bypass);
        let blind = served.state == Shown::StaleMetadataError;
        // A pin holds what an operator chose, whenever it was rendered.
        let pinned = meta.pinned_until.is_some();
        if claims && !pinned {
            let due = state.site.due(visit, pk, |_| true);
            state.ensure(shown >= due, Invariant::ShownFresh, || {
                format!("{place} was served as {} with input {shown}, and {due} was due", served.state)
            });
        }
        // Whoever rolls back decides that it may be served again, and a process that cannot reach the table knows of
        // what was done through itself alone.
        let rolled_back = state.site.rolled_back.get(pk).copied().unwrap_or(i64::MIN);
        let counts = |order: &CarriedOut| {
            let here = order.given.through == Some(visit.process);
            order.given.hard && order.given.asked > rolled_back && (here || !blind)
        };
        let due = state.site.due(visit, pk, counts);
        state.ensure(shown >= due || pinned, Invariant::Forbidden, || {
            format!("{place} was served as {} with input {shown}, and only {due} may be", served.state)
        });
        state.check_age(visit, place, served);
    }
}

impl State {
    /// A fresh page is within its interval, and a stale one within the limits of its policy.
    fn check_age(&mut self, visit: &Visit, place: &Place, served: &Served) {
        let meta = served.page.meta();
        let began = self.began_at(visit.began);
        let expired = meta.generation.generated_at.saturating_add(meta.generation.revalidate_seconds);
        let since = meta.stale_since.unwrap_or(expired);
        let stale_for = Duration::from_secs(u64::try_from(began - since).unwrap_or(0));
        let most = match served.state {
            Shown::Hit => Some(Duration::ZERO),
            // A render may take longer than its result is fresh for.
            Shown::WaitHit | Shown::Miss | Shown::Bypass => None,
            Shown::Stale | Shown::StaleError | Shown::StaleMetadataError => visit.limit,
        };
        let ok = most.is_none_or(|most| stale_for <= most + SKEW);
        self.ensure(ok, Invariant::WithinLimits, || {
            format!(
                "{place} was served as {} after it had been stale for {stale_for:?}, by {:?}",
                served.state, visit.policy
            )
        });
    }

    /// A moment of the simulation, in epoch seconds.
    fn began_at(&self, elapsed: i64) -> i64 {
        (self.now.millis() - self.elapsed + elapsed) / 1000
    }
}

impl Site {
    pub(super) fn is_visited(&self) -> bool {
        !self.renders.is_empty()
    }

    /// The input that a visitor has to be shown at least, by the orders that count.
    fn due(&self, visit: &Visit, pk: &str, counts: impl Fn(&CarriedOut) -> bool) -> u64 {
        let known = |order: &&CarriedOut| {
            let believed = if order.given.tag { visit.epochs_believed } else { visit.believed };
            let delay = if order.given.through == Some(visit.process) { Duration::ZERO } else { believed };
            order.acknowledged + i64::try_from(delay.as_millis()).unwrap_or(i64::MAX) <= visit.began
        };
        let pages = self.orders.iter().take(visit.acknowledged).filter(known).filter(|order| counts(order));
        let due = pages.flat_map(|order| &order.given.pages).filter(|(page, _)| page == pk);
        due.map(|(_, input)| *input).max().unwrap_or(0)
    }
}

fn count_of(state: Shown) -> Count {
    match state {
        Shown::Hit => Count::Hit,
        Shown::Stale => Count::Stale,
        Shown::WaitHit => Count::WaitHit,
        Shown::Miss => Count::Miss,
        Shown::Bypass => Count::Bypass,
        Shown::StaleError => Count::StaleError,
        Shown::StaleMetadataError => Count::StaleMetadataError,
    }
}
