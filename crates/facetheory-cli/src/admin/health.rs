//! Liveness and readiness.

use std::time::Duration;

use facetheory::{Isr, PageKey};
use http::StatusCode;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use super::AdminState;

/// The timeout of a store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a result is cached: readiness needs no token, and must not load the stores.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The last result of the store checks.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    last: Mutex<Option<(Instant, Vec<NotReady>)>>,
}

/// Whether requests should be sent to this process.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    /// Whether the process is ready.
    ready: bool,
    /// Why it is not ready.
    reasons: Vec<NotReady>,
    /// The state of the origin. It does not affect readiness: cached pages are served while the origin is down.
    origin: OriginState,
}

/// The state of the origin, according to recent requests to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum OriginState {
    /// The origin responds.
    Up,
    /// The origin cannot be reached.
    Down,
}

/// Why the process is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum NotReady {
    /// The process is shutting down.
    Stopping,
    /// The table does not respond.
    TableUnreachable,
    /// The body store does not respond.
    BodiesUnreachable,
}

/// Liveness
#[utoipa::path(
    get, path = "/healthz", operation_id = "live", tag = "process", security(()),
    responses((status = 200, description = "The process is alive", body = String, content_type = "text/plain")),
)]
pub(super) async fn live() -> &'static str {
    "alive\n"
}

/// Readiness: whether requests should be sent to this process
#[utoipa::path(
    get, path = "/readyz", operation_id = "ready", tag = "process", security(()),
    responses(
        (status = 200, description = "The process is ready", body = Ready),
        (status = 503, description = "The process is not ready, for these reasons", body = Ready),
    ),
)]
pub(super) async fn ready(admin: AdminState) -> (StatusCode, axum::Json<Ready>) {
    let reasons = if admin.shutdown.is_cancelled() {
        vec![NotReady::Stopping]
    } else {
        admin.readiness.check(&admin.isr).await
    };
    let origin = if admin.gateway.origin_is_down() { OriginState::Down } else { OriginState::Up };
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(Ready { ready: reasons.is_empty(), reasons, origin }))
}

impl Readiness {
    /// Reads a page and a body that do not exist from the stores, or returns the last result if it is recent. Concurrent
    /// requests share one check.
    async fn check(&self, isr: &Isr) -> Vec<NotReady> {
        let mut last = self.last.lock().await;
        if let Some((checked, reasons)) = &*last
            && checked.elapsed() < MAX_AGE
        {
            return reasons.clone();
        }
        let checked = Instant::now();
        let missing = PageKey::new("facetheory-readiness").ok();
        let table = async { isr.lookup(missing.as_ref()?).await.ok() };
        let bodies = async { isr.check_bodies().await.ok() };
        let (table, bodies) = tokio::join!(timeout(STORE_TIMEOUT, table), timeout(STORE_TIMEOUT, bodies));
        let mut reasons = Vec::new();
        if !matches!(table, Ok(Some(_))) {
            reasons.push(NotReady::TableUnreachable);
        }
        if !matches!(bodies, Ok(Some(_))) {
            reasons.push(NotReady::BodiesUnreachable);
        }
        *last = Some((checked, reasons.clone()));
        reasons
    }
}
