//! Metrics of the requests to DynamoDB.

use metrics::{counter, histogram};
use tabletheory::dynamodb::{Observation, Observer};

/// Records the requests of a table on DynamoDB as metrics, with the crate `metrics`.
///
/// ```no_run
/// use facetheory::{DynamoMetrics, PageStore};
/// use std::sync::Arc;
/// use tabletheory::{DynamoSettings, DynamoTable};
///
/// # async fn f() -> facetheory::Result<()> {
/// let table = DynamoTable::connect("pages", DynamoSettings::default()).await?;
/// let store = PageStore::new(Arc::new(table.with_observer(Arc::new(DynamoMetrics))));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct DynamoMetrics;

impl Observer for DynamoMetrics {
    fn observe(&self, request: &Observation) {
        let operation = request.operation;
        let outcome = request.outcome.as_str();
        counter!("facetheory_dynamodb_requests_total", "operation" => operation, "outcome" => outcome)
            .increment(1);
        if request.attempt > 1 {
            counter!("facetheory_dynamodb_retries_total", "operation" => operation).increment(1);
        }
        histogram!("facetheory_dynamodb_request_duration_seconds", "operation" => operation)
            .record(request.duration.as_secs_f64());
        // Units come in halves, and a counter has no fractions; the sum of a histogram has.
        if let Some(units) = request.capacity_units {
            histogram!("facetheory_dynamodb_capacity_units", "operation" => operation).record(units);
        }
    }
}
