//! Prometheus metrics.

use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::response::IntoResponse;
use facetheory::{FailedStore, LastWrite};
use http::header::CONTENT_TYPE;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::Instant;

use super::AdminState;

/// The histogram buckets of regenerations, in seconds.
const REGENERATION_SECONDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const REGENERATION: &str = "facetheory_regeneration_duration_seconds";
/// The histogram buckets of requests to DynamoDB, in seconds.
const DYNAMODB_SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
const DYNAMODB: &str = "facetheory_dynamodb_request_duration_seconds";
/// The histogram buckets of the capacity that a request to DynamoDB consumes, in units.
const CAPACITY_UNITS: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 200.0];
const CAPACITY: &str = "facetheory_dynamodb_capacity_units";
/// The metrics that are histograms, with their buckets and help texts.
const HISTOGRAMS: [(&str, &[f64], &str); 3] = [
    (REGENERATION, &REGENERATION_SECONDS, "Duration of regenerations, by outcome and route"),
    (DYNAMODB, &DYNAMODB_SECONDS, "Duration of requests to DynamoDB, by operation"),
    (CAPACITY, &CAPACITY_UNITS, "Capacity units that requests to DynamoDB consumed, by operation"),
];
/// The help texts of counters. docs/reference/metrics.md lists all metrics.
const COUNTERS: [(&str, &str); 20] = [
    (
        "facetheory_table_replacements_total",
        "Times that an empty or another table took the place of the one in use",
    ),
    ("facetheory_damaged_rows_total", "Damaged rows that were read, by kind of row"),
    ("facetheory_requests_total", "Requests served by the cache, by state and route"),
    ("facetheory_lease_contention_total", "Regenerations that found the lease held by another process"),
    ("facetheory_regenerations_dropped_total", "Background regenerations dropped because the queue was full"),
    ("facetheory_published_behind_total", "Pages that were served before they were published"),
    ("facetheory_incidents_total", "Failures of stores and renders, by phase"),
    ("facetheory_dynamodb_requests_total", "Requests to DynamoDB, by operation and outcome"),
    ("facetheory_dynamodb_retries_total", "Requests to DynamoDB that repeat a failed one, by operation"),
    ("facetheory_feed_reads_total", "Reads of the change feed, by outcome"),
    ("facetheory_feed_entries_total", "Changes that the change feed named"),
    ("facetheory_feed_gaps_total", "Times that entries of the change feed may have been missed, by reason"),
    ("facetheory_gateway_origin_outages_total", "Times that the origin began to count as down"),
    ("facetheory_gateway_origin_probes_total", "Connections that tested an origin that was down, by outcome"),
    (
        "facetheory_gateway_origin_queue_rejected_total",
        "Requests that got no connection to the origin, by reason",
    ),
    ("facetheory_memory_waits_total", "Bodies that waited for memory"),
    ("facetheory_memory_full_total", "Bodies that did not fit into the memory budget, by use"),
    (
        "facetheory_evicted_pages_total",
        "Pages that this process evicted because the store was near its quota",
    ),
    ("facetheory_expired_pages_total", "Pages that this process deleted because their retention had ended"),
    ("facetheory_log_dropped_lines_total", "Log lines dropped because the output was too slow"),
];
/// The help texts of gauges.
const GAUGES: [(&str, &str); 19] = [
    ("facetheory_table_in_place", "1, or 0 while writes are lost because the file of the table was replaced"),
    ("facetheory_store_writable", "1, or 0 if the last write failed, by store"),
    ("facetheory_disk_full", "1 if the last write failed because the disk is full, by store"),
    ("facetheory_feed_complete", "1 while this process relies on the change feed"),
    ("facetheory_feed_read_entries", "Entries that the last read of the change feed returned"),
    ("facetheory_memory_pages", "Pages in the memory cache"),
    ("facetheory_memory_bytes", "Bytes of pages in the memory cache"),
    ("facetheory_memory_used_bytes", "Bytes of pages in memory and of bodies in flight"),
    ("facetheory_memory_limit_bytes", "The most bytes of pages in memory and of bodies in flight"),
    ("facetheory_store_pages", "Pages in the store"),
    ("facetheory_store_bytes", "Bytes of the store on the disk"),
    ("facetheory_store_max_bytes", "The limit of those bytes that is in force now, or 0 without a limit"),
    ("facetheory_store_max_pages", "The limit of the pages in the store, or 0 without a limit"),
    ("facetheory_gateway_connections", "Open client connections"),
    ("facetheory_gateway_origin_up", "1, or 0 while the origin cannot be reached"),
    ("facetheory_gateway_origin_connections", "Connections to the origin in use"),
    ("facetheory_gateway_origin_queue", "Requests that wait for a connection to the origin"),
    ("facetheory_process_tasks", "Live asynchronous tasks"),
    ("facetheory_process_uptime_seconds", "Seconds since the start of the process"),
];
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
        describe();
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
        let with_buckets = |builder: PrometheusBuilder, (name, buckets, _): (&str, &[f64], &str)| {
            builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)
        };
        HISTOGRAMS
            .into_iter()
            .try_fold(PrometheusBuilder::new(), with_buckets)
            .context("invalid histogram buckets")
    }

    /// Returns metrics that are not installed.
    #[cfg(test)]
    pub(crate) fn detached() -> Self {
        let recorder = Metrics::builder().expect("a recorder").build_recorder();
        Metrics { handle: recorder.handle(), started: Instant::now() }
    }
}

/// Sets the help texts.
fn describe() {
    COUNTERS.into_iter().for_each(|(name, help)| describe_counter!(name, help));
    GAUGES.into_iter().for_each(|(name, help)| describe_gauge!(name, help));
    HISTOGRAMS.into_iter().for_each(|(name, _, help)| describe_histogram!(name, help));
    describe_histogram!(
        "facetheory_feed_lag_seconds",
        "Time from a change to its arrival by the change feed"
    );
}

/// All metrics
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "process",
    responses((status = 200, description = "The text format of Prometheus", body = String, content_type = "text/plain")),
)]
pub(super) async fn show(admin: AdminState) -> impl IntoResponse {
    let origin = admin.gateway.origin();
    #[expect(clippy::cast_precision_loss, reason = "none of these counts reaches 2^53")]
    {
        let (pages, bytes) = admin.isr.in_memory();
        gauge!("facetheory_memory_pages").set(pages as f64);
        gauge!("facetheory_memory_bytes").set(bytes as f64);
        let (used, limit) = admin.isr.memory_used();
        gauge!("facetheory_memory_used_bytes").set(used as f64);
        gauge!("facetheory_memory_limit_bytes").set(limit as f64);
        for store in [FailedStore::Table, FailedStore::Bodies] {
            let (last, flag) = (admin.isr.last_write(store), |value: bool| if value { 1.0 } else { 0.0 });
            gauge!("facetheory_store_writable", "store" => store.as_str())
                .set(flag(last == LastWrite::Accepted));
            gauge!("facetheory_disk_full", "store" => store.as_str()).set(flag(last == LastWrite::DiskFull));
        }
        gauge!("facetheory_gateway_connections").set(admin.connections.open() as f64);
        gauge!("facetheory_gateway_origin_connections").set(origin.connections() as f64);
        gauge!("facetheory_gateway_origin_queue").set(origin.waiting() as f64);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        gauge!("facetheory_process_tasks").set(tasks as f64);
    }
    gauge!("facetheory_gateway_origin_up").set(if origin.is_down() { 0.0 } else { 1.0 });
    let replacements = admin.isr.table_replacements();
    gauge!("facetheory_table_in_place").set(if replacements.is_ok() { 1.0 } else { 0.0 });
    if let Ok(number) = replacements {
        counter!("facetheory_table_replacements_total").absolute(number);
    }
    gauge!("facetheory_process_uptime_seconds").set(admin.metrics.started.elapsed().as_secs_f64());
    let handle = admin.metrics.handle.clone();
    // With thousands of routes, rendering would block a thread that serves requests.
    let text = tokio::task::spawn_blocking(move || handle.render()).await.unwrap_or_default();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
