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

/// How long the result of a write is used, if it succeeded, and if it failed: writes cost money.
const WRITE_MAX_AGE: Duration = Duration::from_secs(30);
const FAILED_WRITE_MAX_AGE: Duration = Duration::from_secs(5);

/// The last result of the store checks.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    last: Mutex<Option<(Instant, Vec<NotReady>)>>,
    last_write: Mutex<Option<(Instant, Vec<NotReady>)>>,
}

/// Whether requests should be sent to this process.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    /// Whether the process is ready.
    ready: bool,
    /// Why it is not ready.
    reasons: Vec<NotReady>,
    /// For each reason, what is wrong and what to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
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
    /// The table does not accept writes, so that no page can be published.
    TableNotWritable,
    /// The body store does not accept writes, so that no page can be published.
    BodiesNotWritable,
}

impl NotReady {
    /// Says what is wrong and what to do. Everyone may read it, so it contains no names and no errors of the stores; the log
    /// has them.
    fn detail(self) -> &'static str {
        match self {
            NotReady::Stopping => "the process is shutting down",
            NotReady::TableUnreachable => {
                "the table does not respond to a read; check that it is reachable, and that the identity of this process has \
                 dynamodb:Query if it is on DynamoDB"
            }
            NotReady::BodiesUnreachable => {
                "the body store does not respond to a read; check that it is reachable, and that the identity of this process \
                 has s3:GetObject and s3:ListBucket if it is on S3"
            }
            NotReady::TableNotWritable => {
                "the table does not accept a test row, so no page can be published; grant the identity of this process \
                 dynamodb:PutItem, or check the disk of an embedded table; the log has the cause"
            }
            NotReady::BodiesNotWritable => {
                "the body store does not accept a test object, so no page can be published; grant the identity of this process \
                 s3:PutObject, or check the disk of bodies in files; the log has the cause"
            }
        }
    }
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
    let details = reasons.iter().map(|reason| reason.detail().to_owned()).collect();
    (status, axum::Json(Ready { ready: reasons.is_empty(), reasons, details, origin }))
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
        if reasons.is_empty() {
            reasons = self.check_writes(isr).await;
        }
        *last = Some((checked, reasons.clone()));
        reasons
    }

    /// Writes a row and an object that mean nothing, or returns the last result if it is recent.
    async fn check_writes(&self, isr: &Isr) -> Vec<NotReady> {
        let mut last = self.last_write.lock().await;
        if let Some((checked, reasons)) = &*last {
            let max_age = if reasons.is_empty() { WRITE_MAX_AGE } else { FAILED_WRITE_MAX_AGE };
            if checked.elapsed() < max_age {
                return reasons.clone();
            }
        }
        let checked = Instant::now();
        let (table, bodies) = tokio::join!(
            timeout(STORE_TIMEOUT, isr.check_table_write()),
            timeout(STORE_TIMEOUT, isr.check_bodies_write())
        );
        let mut reasons = Vec::new();
        for (outcome, reason) in [(table, NotReady::TableNotWritable), (bodies, NotReady::BodiesNotWritable)]
        {
            let error = match outcome {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => format!("{:#}", anyhow::Error::from(error)),
                Err(_) => format!("no response within {STORE_TIMEOUT:?}"),
            };
            tracing::warn!(%error, ?reason, "not ready: a store does not accept writes");
            reasons.push(reason);
        }
        *last = Some((checked, reasons.clone()));
        reasons
    }
}
