//! What can be seen of the engine: metrics under FaceTheory's names, and a hook for what goes wrong.

use std::fmt;
use std::sync::Arc;

use metrics::{Counter, Histogram, counter, gauge, histogram};
use quick_cache::sync::Cache;

use crate::engine::state::State;
use crate::error::Error;
use crate::protocol::key::PageKey;

/// The most routes whose metrics are told apart.
const MOST_ROUTES: usize = 4096;
/// The name of the route of pages that have none.
const NO_ROUTE: &str = "";

/// What the engine was doing when something went wrong.
///
/// ```
/// assert_eq!(facetheory::Phase::Render.as_str(), "render");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Asking the table.
    Table,
    /// Reading a body.
    Body,
    /// Rendering.
    Render,
    /// Storing and publishing what was rendered.
    Publish,
}

impl Phase {
    /// Its name in metrics and logs.
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

/// Something that went wrong, and that a visitor may not have noticed.
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
    /// What was being done.
    pub phase: Phase,
    /// For which page.
    pub page: &'a PageKey,
    /// What went wrong.
    pub error: &'a Error,
}

/// What is called when something goes wrong.
pub(super) type OnIncident = Arc<dyn Fn(&Incident<'_>) + Send + Sync>;

/// Counts what happens, and tells of what goes wrong.
pub(super) struct Observer {
    routes: Cache<Arc<str>, Arc<RouteMetrics>>,
    on_incident: Option<OnIncident>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("routes", &self.routes.len()).finish_non_exhaustive()
    }
}

/// The metrics of one route, looked up once.
struct RouteMetrics {
    states: [Counter; State::ALL.len()],
    contention: Counter,
    dropped: Counter,
}

impl RouteMetrics {
    fn new(route: &Arc<str>) -> Self {
        let cache = |state: State| counter!("facetheory.isr.cache", "state" => state.as_str(), "route_pattern" => route.clone());
        RouteMetrics {
            states: State::ALL.map(cache),
            contention: counter!("facetheory.isr.lease_contention", "route_pattern" => route.clone()),
            dropped: counter!("facetheory.isr.renewals_dropped", "route_pattern" => route.clone()),
        }
    }
}

impl Observer {
    pub(super) fn new(on_incident: Option<OnIncident>) -> Self {
        Observer { routes: Cache::new(MOST_ROUTES), on_incident }
    }

    /// A visitor was served.
    pub(super) fn served(&self, page: &PageKey, state: State) {
        let index = State::ALL.iter().position(|other| *other == state).unwrap_or(0);
        self.route(page).states[index].increment(1);
    }

    /// Somebody else holds the lease.
    pub(super) fn contended(&self, page: &PageKey) {
        self.route(page).contention.increment(1);
    }

    /// A page was not renewed in the background, because too many others are.
    pub(super) fn dropped(&self, page: &PageKey) {
        self.route(page).dropped.increment(1);
    }

    /// A regeneration ended in this way after so long.
    pub(super) fn regenerated(&self, page: &PageKey, outcome: &'static str, millis: u64) {
        let route: Arc<str> = page.route().unwrap_or(NO_ROUTE).into();
        let time: Histogram = histogram!(
            "facetheory.isr.regeneration_ms", "outcome" => outcome, "route_pattern" => route
        );
        #[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^53 milliseconds")]
        time.record(millis as f64);
    }

    /// So many bytes and pages are in memory.
    pub(super) fn memory(&self, bytes: u64, pages: usize) {
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^53 bytes of memory")]
        gauge!("facetheory.isr.memory_bytes").set(bytes as f64);
        #[expect(clippy::cast_precision_loss, reason = "nor pages")]
        gauge!("facetheory.isr.memory_pages").set(pages as f64);
    }

    /// Something went wrong.
    pub(super) fn incident(&self, phase: Phase, page: &PageKey, error: &Error) {
        counter!("facetheory.isr.incidents", "phase" => phase.as_str()).increment(1);
        tracing::warn!(phase = phase.as_str(), page = %page.redacted(), error = %Chain(error), "an incident");
        if let Some(on_incident) = &self.on_incident {
            on_incident(&Incident { phase, page, error });
        }
    }

    fn route(&self, page: &PageKey) -> Arc<RouteMetrics> {
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

/// An error with all its causes, in one line.
struct Chain<'a>(&'a Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = std::error::Error::source(self.0);
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}
