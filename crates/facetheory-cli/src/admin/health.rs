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
    /// The file of the table was replaced or removed, so that every write would be lost.
    TableReplaced,
    /// The disk of a store is full: stored pages are served, and no page can be published.
    DiskFull,
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
            NotReady::TableReplaced => {
                "the file of the table, or its directory, was replaced or removed while this process was using it, so operations \
                 fail, and no page is published; restart the process to use what is there now"
            }
            NotReady::DiskFull => {
                "the disk of the table or of the bodies is full, so stored pages are served, and no page can be published; make \
                 room, and the stores are written again without a restart; the log names the file"
            }
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
    let origin = if admin.gateway.origin().is_down() { OriginState::Down } else { OriginState::Up };
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let details = reasons.iter().map(|reason| reason.detail().to_owned()).collect();
    (status, axum::Json(Ready { ready: reasons.is_empty(), reasons, details, origin }))
}

impl Readiness {
    /// Reads a page and a body that do not exist from the stores, and checks writes, or returns the last result if it is recent.
    /// Concurrent requests share one check.
    async fn check(&self, isr: &Isr) -> Vec<NotReady> {
        let mut last = self.last.lock().await;
        if let Some((checked, reasons)) = &*last
            && checked.elapsed() < MAX_AGE
        {
            return reasons.clone();
        }
        if let Err(error) = isr.table_replacements() {
            tracing::warn!(%error, "not ready: the table was replaced");
            let reasons = vec![NotReady::TableReplaced];
            *last = Some((Instant::now(), reasons.clone()));
            return reasons;
        }
        let table = async { isr.lookup(&PageKey::new("facetheory-readiness")?).await.map(drop) };
        let (table, bodies) = tokio::join!(
            check_store(table, NotReady::TableUnreachable),
            check_store(isr.check_bodies(), NotReady::BodiesUnreachable)
        );
        let mut reasons: Vec<NotReady> = [table, bodies].into_iter().filter_map(Result::err).collect();
        if reasons.is_empty() {
            reasons = self.check_writes(isr).await;
        }
        // The time after the check: requests that waited for it must find a recent result, however long it took.
        *last = Some((Instant::now(), reasons.clone()));
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
        let (table, bodies) = tokio::join!(
            check_store(isr.check_table_write(), NotReady::TableNotWritable),
            check_store(isr.check_bodies_write(), NotReady::BodiesNotWritable)
        );
        let mut reasons: Vec<NotReady> = [table, bodies].into_iter().filter_map(Result::err).collect();
        reasons.dedup();
        *last = Some((Instant::now(), reasons.clone()));
        reasons
    }
}

/// Waits for a check of a store. Logs why it failed, and returns the reason for clients.
async fn check_store(
    check: impl Future<Output = facetheory::Result<()>>,
    reason: NotReady,
) -> Result<(), NotReady> {
    let (error, reason) = match timeout(STORE_TIMEOUT, check).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => {
            let reason = if tabletheory::is_storage_full(&error) { NotReady::DiskFull } else { reason };
            (format!("{:#}", anyhow::Error::from(error)), reason)
        }
        Err(_) => (format!("no response within {STORE_TIMEOUT:?}"), reason),
    };
    tracing::warn!(error, ?reason, "not ready: a check of a store failed");
    Err(reason)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use facetheory::{Bodies, PageStore, Pages};
    use tabletheory::{Faults, Faulty, MemoryTable, Table};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_share_one_check_while_the_table_hangs() {
        let hangs = Faults { delay: 1.0, longest_delay: Duration::from_secs(86_400), ..Faults::default() };
        let table = Arc::new(Faulty::new(MemoryTable::new(), 1, hangs));
        let shared: Arc<dyn Table> = table.clone();
        let isr = Isr::new(Pages::new(PageStore::new(shared), Bodies::memory()));
        let (readiness, started) = (Readiness::default(), Instant::now());
        let check = || readiness.check(&isr);
        let (first, second, third) = tokio::join!(check(), check(), check());
        for reasons in [first, second, third] {
            assert_eq!(reasons, [NotReady::TableUnreachable]);
        }
        assert_eq!(table.counts().delayed, 1, "reads of the table");
        assert!(started.elapsed() < STORE_TIMEOUT + MAX_AGE, "{:?}", started.elapsed());

        table.set_faults(Faults::default());
        tokio::time::sleep(MAX_AGE).await;
        assert_eq!(check().await, [], "the result is too old");
    }

    #[tokio::test(start_paused = true)]
    async fn a_minute_of_checks_writes_twice_and_more_often_only_while_writes_fail() {
        const POLLS: u64 = 60;
        // Calls are counted as delayed, but for no time.
        let counts_calls = Faults { delay: 1.0, ..Faults::default() };
        let table = Arc::new(Faulty::new(MemoryTable::new(), 1, counts_calls));
        let shared: Arc<dyn Table> = table.clone();
        let isr = Isr::new(Pages::new(PageStore::new(shared), Bodies::memory()));
        let readiness = Readiness::default();
        for _ in 0..POLLS {
            assert_eq!(readiness.check(&isr).await, []);
            tokio::time::sleep(MAX_AGE).await;
        }
        assert_eq!(
            table.counts().delayed,
            POLLS + 2,
            "each check reads; the first one and that after 30 s write"
        );

        table.set_faults(Faults { lose_request: 1.0, ..Faults::default() });
        for _ in 0..POLLS {
            assert_eq!(readiness.check(&isr).await, [NotReady::TableNotWritable]);
            tokio::time::sleep(MAX_AGE).await;
        }
        assert_eq!(table.counts().requests_lost, 12, "a write every 5 s");
        table.set_faults(Faults::default());
        assert_eq!(readiness.check(&isr).await, [], "the failure is too old");
    }
}
