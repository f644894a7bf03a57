//! Prometheus metrics.

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

/// The histogram buckets of regenerations, in milliseconds.
const REGENERATION_MS: [f64; 12] =
    [5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0, 30_000.0];
/// How often samples are sorted into buckets, so that they do not accumulate if nobody reads the metrics.
const UPKEEP: Duration = Duration::from_secs(5);

/// The metrics of this process.
#[derive(Clone)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    started: Instant,
}

impl Metrics {
    /// Installs the recorder. This must happen before the first metric is created, or it is not recorded.
    pub(crate) fn install() -> Result<Self> {
        let handle = Metrics::builder()?.install_recorder().context("cannot install the metrics recorder")?;
        let upkeep = handle.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                upkeep.run_upkeep();
            }
        });
        Ok(Metrics { handle, started: Instant::now() })
    }

    fn builder() -> Result<PrometheusBuilder> {
        let regeneration = Matcher::Full("facetheory.isr.regeneration_ms".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(regeneration, &REGENERATION_MS);
        builder.context("invalid histogram buckets")
    }

    /// Returns metrics that are not installed.
    #[cfg(test)]
    pub(crate) fn detached() -> Self {
        let recorder = Metrics::builder().expect("a recorder").build_recorder();
        Metrics { handle: recorder.handle(), started: Instant::now() }
    }
}

/// All metrics
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "process",
    responses((status = 200, description = "The text format of Prometheus", body = String, content_type = "text/plain")),
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    #[expect(clippy::cast_precision_loss, reason = "none of these counts reaches 2^53")]
    {
        let (pages, bytes) = admin.isr.in_memory();
        gauge!("facetheory.isr.memory_pages").set(pages as f64);
        gauge!("facetheory.isr.memory_bytes").set(bytes as f64);
        gauge!("facetheory.gateway.connections").set(admin.connections.open() as f64);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        gauge!("facetheory.process.tasks").set(tasks as f64);
    }
    gauge!("facetheory.gateway.origin_up").set(if admin.gateway.origin_is_down() { 0.0 } else { 1.0 });
    gauge!("facetheory.process.uptime_seconds").set(admin.metrics.started.elapsed().as_secs_f64());
    let handle = admin.metrics.handle.clone();
    // With thousands of routes, rendering would block a thread that serves requests.
    let text = tokio::task::spawn_blocking(move || handle.render()).await.unwrap_or_default();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
