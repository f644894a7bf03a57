//! Metrics of the engine, and a hook for incidents.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, counter, gauge, histogram};
use quick_cache::sync::Cache;
use tabletheory::LogLimit;

use super::State;
use crate::{Error, PageKey};

/// The number of routes whose metrics are held ready.
const MAX_ROUTES: usize = 4096;
/// The label of pages without a route.
const NO_ROUTE: &str = "";

/// The work during which an error occurred.
///
/// ```
/// assert_eq!(facetheory::Phase::Render.as_str(), "render");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Reading or writing the table.
    Table,
    /// Reading a body.
    Body,
    /// Rendering.
    Render,
    /// Storing the body of a rendered page and publishing it.
    Publish,
}

impl Phase {
    /// The number of phases.
    const COUNT: usize = Phase::Publish as usize + 1;

    /// The name in metrics and logs.
    ///
    /// ```
    /// assert_eq!(facetheory::Phase::Table.as_str(), "table");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Table => "table",
            Phase::Body => "body",
            Phase::Render => "render",
            Phase::Publish => "publish",
        }
    }
}

/// An error during a request or in the background. The client may have been served all the same.
///
/// ```
/// use facetheory::{Bodies, Isr, Pages, PageStore};
/// # use std::sync::Arc;
///
/// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// let isr = Isr::builder(pages)
///     .on_incident(|incident| eprintln!("{} of {}: {}", incident.phase.as_str(), incident.page.cache_key(), incident.error))
///     .build();
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Incident<'a> {
    /// The work during which the error occurred.
    pub phase: Phase,
    /// The page that was worked on.
    pub page: &'a PageKey,
    /// The error.
    pub error: &'a Error,
}

/// The function that is called for each incident.
pub(super) type OnIncident = Arc<dyn Fn(&Incident<'_>) + Send + Sync>;

/// The use of memory for which a body got no permit.
#[derive(Clone, Copy, Debug)]
pub(super) enum MemoryUse {
    /// Reading a response of the renderer.
    Render,
    /// Reading a stored body.
    Body,
    /// Compressing a body.
    Compression,
}

impl MemoryUse {
    fn as_str(self) -> &'static str {
        match self {
            MemoryUse::Render => "render",
            MemoryUse::Body => "body",
            MemoryUse::Compression => "compression",
        }
    }
}

/// Records metrics, and reports incidents.
pub(super) struct Metrics {
    routes: Cache<Arc<str>, Arc<RouteMetrics>>,
    /// The limits on log lines, by phase.
    incidents: [LogLimit; Phase::COUNT],
    pub(super) on_incident: Option<OnIncident>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("routes", &self.routes.len()).finish_non_exhaustive()
    }
}

/// The counters of one route, looked up once.
pub(super) struct RouteMetrics {
    states: [Counter; State::ALL.len()],
    /// Another process held the lease of a page that was to be regenerated.
    pub(super) contention: Counter,
    /// A page was not regenerated in the background, because the queue was full.
    pub(super) dropped: Counter,
}

impl RouteMetrics {
    fn new(route: &Arc<str>) -> Self {
        let cache = |state: State| counter!("facetheory_requests_total", "state" => state.as_str(), "route_pattern" => route.clone());
        RouteMetrics {
            states: State::ALL.map(cache),
            contention: counter!("facetheory_lease_contention_total", "route_pattern" => route.clone()),
            dropped: counter!("facetheory_regenerations_dropped_total", "route_pattern" => route.clone()),
        }
    }
}

impl Metrics {
    pub(super) fn new() -> Self {
        let incidents = std::array::from_fn(|_| LogLimit::new());
        Metrics { routes: Cache::new(MAX_ROUTES), incidents, on_incident: None }
    }

    /// A request was served.
    pub(super) fn served(&self, page: &PageKey, state: State) {
        self.route(page).states[state as usize].increment(1);
    }

    /// A regeneration ended.
    pub(super) fn regenerated(&self, page: &PageKey, outcome: &'static str, took: Duration) {
        let route: Arc<str> = page.route().unwrap_or(NO_ROUTE).into();
        let name = "facetheory_regeneration_duration_seconds";
        histogram!(name, "outcome" => outcome, "route_pattern" => route).record(took.as_secs_f64());
    }

    /// The size of the memory tier has changed.
    #[expect(clippy::cast_precision_loss, reason = "memory has less than 2^53 bytes and pages")]
    pub(super) fn memory(&self, pages: usize, bytes: u64) {
        gauge!("facetheory_memory_bytes").set(bytes as f64);
        gauge!("facetheory_memory_pages").set(pages as f64);
    }

    /// A body did not fit into the memory budget.
    pub(super) fn memory_full(&self, of: MemoryUse) {
        counter!("facetheory_memory_full_total", "use" => of.as_str()).increment(1);
    }

    /// Logs and counts an error, and calls the hook.
    pub(super) fn incident(&self, phase: Phase, page: &PageKey, error: &Error) {
        counter!("facetheory_incidents_total", "phase" => phase.as_str()).increment(1);
        // A store that fails concerns every request.
        if let Some(omitted) = self.incidents[phase as usize].permit() {
            let (omitted, page) = ((omitted > 0).then_some(omitted), page.redacted());
            tracing::warn!(phase = phase.as_str(), %page, error = %chain(error), omitted, "{} failed", phase.as_str());
        }
        if let Some(on_incident) = &self.on_incident {
            on_incident(&Incident { phase, page, error });
        }
    }

    pub(super) fn route(&self, page: &PageKey) -> Arc<RouteMetrics> {
        let route = page.route().unwrap_or(NO_ROUTE);
        if let Some(known) = self.routes.get(route) {
            return known;
        }
        let route: Arc<str> = route.into();
        let metrics = Arc::new(RouteMetrics::new(&route));
        self.routes.insert(route, metrics.clone());
        metrics
    }
}

/// An error with all its causes on one line.
fn chain(error: &Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn StdError), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
