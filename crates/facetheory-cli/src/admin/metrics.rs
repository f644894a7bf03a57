//! Metrics, as Prometheus reads them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::extract::State;
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use metrics::gauge;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::Instant;

use super::Admin;

/// The times of a regeneration that are told apart, in milliseconds.
const REGENERATION_MS: [f64; 12] =
    [5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0, 30_000.0];
/// How often what was measured is put into its places, so that it does not pile up where nobody asks.
const UPKEEP: Duration = Duration::from_secs(5);

/// What is counted in this process.
#[derive(Clone)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    began: Instant,
}

impl Metrics {
    /// Counts from now on. What was looked up before is not counted, so this comes first.
    pub(crate) fn install() -> Result<Self> {
        let handle = Metrics::builder()?.install_recorder().context("somebody else counts already")?;
        let upkeep = handle.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                upkeep.run_upkeep();
            }
        });
        Ok(Metrics { handle, began: Instant::now() })
    }

    fn builder() -> Result<PrometheusBuilder> {
        let regeneration = Matcher::Full("facetheory.isr.regeneration_ms".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(regeneration, &REGENERATION_MS);
        builder.context("the metrics cannot be set up")
    }

    /// Metrics that nobody writes to.
    #[cfg(test)]
    pub(crate) fn idle() -> Self {
        let recorder = Metrics::builder().expect("a recorder").build_recorder();
        Metrics { handle: recorder.handle(), began: Instant::now() }
    }
}

/// Everything that is counted, as Prometheus reads it.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "process",
    responses((status = 200, description = "The metrics, in Prometheus' text format", body = String, content_type = "text/plain")),
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^53 of any of them")]
    {
        let (pages, bytes) = admin.isr.in_memory();
        gauge!("facetheory.isr.memory_pages").set(pages as f64);
        gauge!("facetheory.isr.memory_bytes").set(bytes as f64);
        gauge!("facetheory.gateway.connections").set(admin.connections.open() as f64);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        gauge!("facetheory.process.tasks").set(tasks as f64);
    }
    gauge!("facetheory.gateway.origin_up").set(if admin.gateway.origin_is_down() { 0.0 } else { 1.0 });
    gauge!("facetheory.process.uptime_seconds").set(admin.metrics.began.elapsed().as_secs_f64());
    let handle = admin.metrics.handle.clone();
    // Thousands of routes make a long text, for which no thread that serves visitors may stand still.
    let text = tokio::task::spawn_blocking(move || handle.render()).await.unwrap_or_default();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
