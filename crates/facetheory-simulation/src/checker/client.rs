//! Responses to clients, checked by true time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use facetheory::{InvalidationMode, Policy, Served, State as ServedState, Tag};

use super::{Checker, State, short};
use crate::stats::Counter;
use crate::violation::Invariant;
use crate::world::SimPage;

/// Two clocks differ by up to two seconds, and times in rows are whole seconds.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3);

/// The renders and invalidations that decide which content a client may be served.
#[derive(Debug, Default)]
pub(super) struct ClientHistory {
    /// The input that a render of each page shows now; every edit increments it.
    inputs: BTreeMap<String, u64>,
    /// The acknowledged invalidations, in order.
    invalidations: Vec<AcknowledgedInvalidation>,
    /// When each page was last rolled back, in milliseconds.
    pub(super) rolled_back: BTreeMap<String, i64>,
    /// By process, page and whether it holds a lease: how many renders are running, and how many there were.
    rendering: BTreeMap<(usize, String, bool), u64>,
    renders: BTreeMap<(usize, String, bool), u64>,
    /// By owner and page: how many leases were granted.
    pub(super) grants: BTreeMap<(String, String), u64>,
}

/// The target of an operator's invalidation.
#[derive(Clone, Debug)]
pub(crate) enum Invalidation {
    Page(InvalidationMode),
    Tag(Tag),
}

/// An invalidation that is not acknowledged yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingInvalidation {
    /// The affected pages, with the lowest input that they may show afterwards.
    pages: Vec<(String, u64)>,
    /// The process whose engine executes it; `None` if it is written to the table directly.
    through: Option<usize>,
    hard: bool,
    tag: bool,
    requested_millis: i64,
}

#[derive(Debug)]
struct AcknowledgedInvalidation {
    invalidation: PendingInvalidation,
    acknowledged_millis: i64,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    process: usize,
    started_millis: i64,
    /// How many invalidations had been acknowledged when it started, including those of the same millisecond.
    acknowledged: usize,
    /// How long the process may use what it read of a page, and of a tag.
    pub(crate) metadata_max_age: Duration,
    pub(crate) epochs_max_age: Duration,
    /// How long a page may be served after it went stale.
    pub(crate) limit: Option<Duration>,
    pub(crate) policy: Policy,
}

/// A running render, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Rendering {
    checker: Arc<Checker>,
    page: (usize, String, bool),
}

impl Drop for Rendering {
    fn drop(&mut self) {
        if let Some(count) = self.checker.state().clients.rendering.get_mut(&self.page) {
            *count -= 1;
        }
    }
}

impl Checker {
    /// The content of a page has changed, without an invalidation.
    pub(crate) fn input_changed(&self, pk: &str) {
        *self.state().clients.inputs.entry(pk.to_owned()).or_default() += 1;
    }

    /// An operator has changed the content of some pages and is about to invalidate them.
    pub(crate) fn invalidation_started(
        &self,
        page: &SimPage,
        all: &[SimPage],
        invalidation: &Invalidation,
        through: Option<usize>,
    ) -> PendingInvalidation {
        let affected = |other: &&SimPage| match invalidation {
            Invalidation::Page(_) => other.key.pk() == page.key.pk(),
            Invalidation::Tag(tag) => other.tenant == page.tenant && other.tags().contains(tag),
        };
        let mut state = self.state();
        let mut pages = Vec::new();
        for other in all.iter().filter(affected) {
            let input = state.clients.inputs.entry(other.key.pk().to_owned()).or_default();
            *input += 1;
            pages.push((other.key.pk().to_owned(), *input));
        }
        PendingInvalidation {
            pages,
            through,
            hard: matches!(invalidation, Invalidation::Page(InvalidationMode::Hard)),
            tag: matches!(invalidation, Invalidation::Tag(_)),
            requested_millis: state.elapsed_millis,
        }
    }

    /// An invalidation was acknowledged.
    pub(crate) fn acknowledged_invalidation(&self, invalidation: PendingInvalidation) {
        let mut state = self.state();
        let acknowledged_millis = state.elapsed_millis;
        let PendingInvalidation { pages, through, tag, .. } = &invalidation;
        let pages: Vec<_> = pages.iter().map(|(pk, input)| format!("{} {input}", short(pk))).collect();
        let through = through.map_or_else(|| "directly".into(), |number| format!("process {number}"));
        let what = if *tag { "a tag" } else { "a page" };
        state.note(format!("invalidation of {what} acknowledged, {through}: {}", pages.join(", ")));
        state.clients.invalidations.push(AcknowledgedInvalidation { invalidation, acknowledged_millis });
    }

    /// A render starts. Returns the input that it shows, and a guard that lives as long as the render.
    pub(crate) fn client_render_started(
        checker: &Arc<Checker>,
        process: usize,
        pk: &str,
        leased: bool,
    ) -> (u64, Rendering) {
        let mut state = checker.state();
        let page = (process, pk.to_owned(), leased);
        let input = *state.clients.inputs.entry(pk.to_owned()).or_default();
        let running = state.clients.rendering.entry(page.clone()).or_default();
        *running += 1;
        let alone = *running == 1;
        let renders = state.clients.renders.entry(page.clone()).or_default();
        *renders += 1;
        let renders = *renders;
        let owner = crate::client::owner_name(process);
        let grants = state.clients.grants.get(&(owner, pk.to_owned())).copied().unwrap_or(0);
        let how = if leased { "" } else { " without a lease" };
        state.note(format!("{} process {process} renders input {input}{how}", short(pk)));
        state.count(Counter::Rendered);
        state.ensure(alone, Invariant::SingleRender, || {
            format!("process {process} renders {pk} twice at once")
        });
        state.ensure(!leased || renders <= grants, Invariant::SingleRender, || {
            format!("process {process} has rendered {pk} {renders} times with {grants} leases")
        });
        (input, Rendering { checker: checker.clone(), page })
    }

    /// The number of renders of a page, in all processes.
    pub(crate) fn renders(&self, pk: &str) -> u64 {
        let state = self.state();
        state.clients.renders.iter().filter(|((_, page, _), _)| page == pk).map(|(_, count)| count).sum()
    }

    /// Whether a process is rendering.
    pub(crate) fn is_rendering(&self, process: usize) -> bool {
        self.state().clients.rendering.iter().any(|((number, ..), count)| *number == process && *count > 0)
    }

    /// A client sends a request.
    pub(crate) fn request_started(&self, process: usize, page: &SimPage) -> ClientRequest {
        let mut state = self.state();
        state.note(format!("request for {page} in process {process}"));
        ClientRequest {
            process,
            started_millis: state.elapsed_millis,
            acknowledged: state.clients.invalidations.len(),
            metadata_max_age: Duration::ZERO,
            epochs_max_age: Duration::ZERO,
            limit: None,
            policy: Policy::every(Duration::ZERO),
        }
    }

    /// A client got no page: a bypass or an error.
    pub(crate) fn response_without_page(&self, request: &ClientRequest, page: &SimPage, why: &str) {
        let mut state = self.state();
        state.note(format!("{page} in process {}: {why}", request.process));
        state.count(Counter::NoPage);
    }

    /// A client was served a page.
    pub(crate) fn response_served(&self, request: &ClientRequest, page: &SimPage, served: &Served) {
        let mut state = self.state();
        state.count(counter(served.state));
        let (pk, bytes) = (page.key.pk(), served.page.bytes());
        let text = String::from_utf8_lossy(bytes);
        let own = text.starts_with(&page.signature());
        state.ensure(own, Invariant::TenantIsolation, || format!("{page} was served {text:?}"));
        let shown = text.rsplit_once("input ").and_then(|(_, number)| number.parse::<u64>().ok());
        state.ensure(shown.is_some(), Invariant::StaysReadable, || format!("{page} was served {text:?}"));
        let Some(shown) = shown else { return };
        let meta = served.page.meta();
        state.note(format!("{page} in process {}: {} input {shown}", request.process, served.state));

        let claims_fresh = matches!(
            served.state,
            ServedState::Hit | ServedState::WaitHit | ServedState::Miss | ServedState::Bypass
        );
        let table_unreachable = served.state == ServedState::StaleMetadataError;
        // Pinned: an operator chose this version, whenever it was rendered.
        let pinned = meta.pinned_until.is_some();
        if claims_fresh && !pinned {
            let due = state.clients.due(request, pk, |_| true);
            state.ensure(shown >= due, Invariant::FreshToClients, || {
                format!("{page} was served as {} with input {shown} instead of {due}", served.state)
            });
        }
        // A rollback allows a version to be served again. A process that cannot reach the table knows only of the
        // invalidations that it executed itself.
        let rolled_back = state.clients.rolled_back.get(pk).copied().unwrap_or(i64::MIN);
        let binding = |order: &PendingInvalidation| {
            let here = order.through == Some(request.process);
            order.hard && order.requested_millis > rolled_back && (here || !table_unreachable)
        };
        let due = state.clients.due(request, pk, binding);
        state.ensure(shown >= due || pinned, Invariant::HardInvalidated, || {
            format!("{page} was served as {} with input {shown}, hard-invalidated up to {due}", served.state)
        });
        state.check_age(request, page, served);
    }
}

impl State {
    /// A fresh page is within its interval, and a stale one within the limits of its policy.
    fn check_age(&mut self, request: &ClientRequest, page: &SimPage, served: &Served) {
        let meta = served.page.meta();
        let started = crate::START + request.started_millis / 1000;
        let expired = meta.generation.generated_at.saturating_add(meta.generation.revalidate_seconds);
        let since = meta.stale_since.unwrap_or(expired);
        let stale_for = Duration::from_secs(u64::try_from(started - since).unwrap_or(0));
        let limit = match served.state {
            ServedState::Hit => Some(Duration::ZERO),
            // A render may take longer than its result is fresh.
            ServedState::WaitHit | ServedState::Miss | ServedState::Bypass => None,
            ServedState::Stale | ServedState::StaleError | ServedState::StaleMetadataError => request.limit,
            state => unreachable!("the checker does not know the state {state}"),
        };
        let ok = limit.is_none_or(|limit| stale_for <= limit + CLOCK_TOLERANCE);
        self.ensure(ok, Invariant::StaleLimits, || {
            format!(
                "{page} was served as {} when stale for {stale_for:?}, against {:?}",
                served.state, request.policy
            )
        });
    }
}

impl ClientHistory {
    pub(super) fn has_renders(&self) -> bool {
        !self.renders.is_empty()
    }

    /// The lowest input that a request may be served, according to the invalidations that bind it.
    fn due(&self, request: &ClientRequest, pk: &str, binding: impl Fn(&PendingInvalidation) -> bool) -> u64 {
        let visible = |acknowledged: &&AcknowledgedInvalidation| {
            let order = &acknowledged.invalidation;
            let max_age = if order.tag { request.epochs_max_age } else { request.metadata_max_age };
            let delay = if order.through == Some(request.process) { Duration::ZERO } else { max_age };
            let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
            acknowledged.acknowledged_millis + delay <= request.started_millis
        };
        let known = self.invalidations.iter().take(request.acknowledged).filter(visible);
        let binding = known.map(|acknowledged| &acknowledged.invalidation).filter(|order| binding(order));
        let due = binding.flat_map(|order| &order.pages).filter(|(page, _)| page == pk);
        due.map(|(_, input)| *input).max().unwrap_or(0)
    }
}

fn counter(state: ServedState) -> Counter {
    match state {
        ServedState::Hit => Counter::Hit,
        ServedState::Stale => Counter::Stale,
        ServedState::WaitHit => Counter::WaitHit,
        ServedState::Miss => Counter::Miss,
        ServedState::Bypass => Counter::Bypass,
        ServedState::StaleError => Counter::StaleError,
        ServedState::StaleMetadataError => Counter::StaleMetadataError,
        other => unreachable!("the simulation does not count the state {other}"),
    }
}
