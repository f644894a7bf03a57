//! Whether the process lives, and whether visitors should be sent to it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use facetheory::{Isr, PageKey};
use http::StatusCode;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::Admin;

/// How long a store may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// For how long an answer holds: anyone may ask, and no more than this reaches the stores.
const HOLDS: Duration = Duration::from_secs(1);

/// What the stores said when they were asked last.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    last: Mutex<Option<(Instant, Vec<Reason>)>>,
}

/// Whether visitors should be sent here.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    /// Whether they should.
    ready: bool,
    /// Why not.
    reasons: Vec<Reason>,
    /// How the origin is. It is no reason: pages are served while it is down, and that is what they are kept for.
    origin: Origin,
}

/// How the origin is, as far as the last requests to it tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Origin {
    /// It can be reached.
    Up,
    /// It cannot.
    Down,
}

/// Why visitors should not be sent here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Reason {
    /// The process is about to end.
    Stopping,
    /// The table does not answer.
    TableUnreachable,
    /// The store of bodies does not answer.
    BodiesUnreachable,
}

/// The process lives.
#[utoipa::path(
    get, path = "/healthz", operation_id = "lives", tag = "process", security(()),
    responses((status = 200, description = "It does", body = String, content_type = "text/plain")),
)]
pub(super) async fn lives() -> &'static str {
    "alive\n"
}

/// Whether visitors should be sent to this process.
#[utoipa::path(
    get, path = "/readyz", operation_id = "ready", tag = "process", security(()),
    responses(
        (status = 200, description = "They should", body = Ready),
        (status = 503, description = "They should not, for these reasons", body = Ready),
    ),
)]
pub(super) async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, axum::Json<Ready>) {
    let mut reasons = Vec::new();
    if admin.stop.is_cancelled() {
        reasons.push(Reason::Stopping);
    } else {
        reasons.extend(admin.readiness.of(&admin.isr).await);
    }
    let origin = if admin.gateway.origin_is_down() { Origin::Down } else { Origin::Up };
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(Ready { ready: reasons.is_empty(), reasons, origin }))
}

impl Readiness {
    /// What keeps the stores from being used; nothing if they answer.
    async fn of(&self, isr: &Isr) -> Vec<Reason> {
        // Whoever comes meanwhile waits for the same answer.
        let mut last = self.last.lock().await;
        if let Some((asked, reasons)) = &*last
            && asked.elapsed() < HOLDS
        {
            return reasons.clone();
        }
        let asked = Instant::now();
        let (table, bodies) = tokio::join!(table_answers(isr), bodies_answer(isr));
        let reasons = [(table, Reason::TableUnreachable), (bodies, Reason::BodiesUnreachable)];
        let reasons: Vec<Reason> =
            reasons.into_iter().filter(|(answers, _)| !answers).map(|(_, reason)| reason).collect();
        *last = Some((asked, reasons.clone()));
        reasons
    }
}

/// Whether the table says that there is no page of a name that none has.
async fn table_answers(isr: &Isr) -> bool {
    let Ok(nobody) = PageKey::new("facetheory-readiness") else { return false };
    matches!(tokio::time::timeout(PATIENCE, isr.pages().store().lookup(&nobody)).await, Ok(Ok(_)))
}

/// Whether the store of bodies says that there is none of a name that none has.
async fn bodies_answer(isr: &Isr) -> bool {
    let nobody = isr.pages().bodies().get("facetheory-readiness/none.html", None);
    matches!(tokio::time::timeout(PATIENCE, nobody).await, Ok(Ok(_)))
}
