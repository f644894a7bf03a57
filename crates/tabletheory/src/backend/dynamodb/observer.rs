//! Observes the requests to DynamoDB: their duration, outcome and consumed capacity.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::failure::Failure;

/// Receives a description of every request that a [`DynamoTable`](crate::DynamoTable) sends, for metrics.
///
/// It is called in the task of the caller, and must return at once.
///
/// ```
/// use std::sync::Arc;
/// use tabletheory::dynamodb::{Observation, Observer};
///
/// #[derive(Debug)]
/// struct Log;
///
/// impl Observer for Log {
///     fn observe(&self, request: &Observation) {
///         println!("{} took {:?}: {}", request.operation, request.duration, request.outcome.as_str());
///     }
/// }
///
/// # fn example(table: tabletheory::DynamoTable) {
/// let table = table.with_observer(Arc::new(Log));
/// # }
/// ```
pub trait Observer: fmt::Debug + Send + Sync {
    /// Called when a request has ended.
    fn observe(&self, request: &Observation);
}

/// One request to DynamoDB: an attempt of an operation.
///
/// ```no_run
/// # fn example(request: tabletheory::dynamodb::Observation) {
/// let is_retry = request.attempt > 1;
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Observation {
    /// The name of the operation in the API of DynamoDB.
    pub operation: &'static str,
    /// The number of the attempt; 2 is the first retry.
    pub attempt: u32,
    /// The time until the response, or until the attempt was given up.
    pub duration: Duration,
    /// How it ended.
    pub outcome: RequestOutcome,
    /// The capacity units that DynamoDB charged. `None` if its response does not say, as after a failure.
    pub capacity_units: Option<f64>,
}

/// How a request to DynamoDB ended.
///
/// ```
/// assert_eq!(tabletheory::dynamodb::RequestOutcome::Throttled.as_str(), "throttled");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// It was processed. A refused condition counts as processed.
    Ok,
    /// It exceeded the capacity of the table, of a partition, or of the account.
    Throttled,
    /// It failed for another reason.
    Failed,
    /// The caller stopped waiting before there was a response.
    Cancelled,
}

impl RequestOutcome {
    /// All outcomes.
    ///
    /// ```
    /// assert!(tabletheory::dynamodb::RequestOutcome::ALL.contains(&tabletheory::dynamodb::RequestOutcome::Ok));
    /// ```
    pub const ALL: [RequestOutcome; 4] =
        [RequestOutcome::Ok, RequestOutcome::Throttled, RequestOutcome::Failed, RequestOutcome::Cancelled];

    /// The name in metrics and logs.
    ///
    /// ```
    /// assert_eq!(tabletheory::dynamodb::RequestOutcome::Ok.as_str(), "ok");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RequestOutcome::Ok => "ok",
            RequestOutcome::Throttled => "throttled",
            RequestOutcome::Failed => "failed",
            RequestOutcome::Cancelled => "cancelled",
        }
    }
}

/// Measures one attempt. An attempt that its caller drops is observed as cancelled.
pub(super) struct Measurement<'o> {
    observer: Option<&'o Arc<dyn Observer>>,
    began: Instant,
    observation: Observation,
}

impl<'o> Measurement<'o> {
    pub(super) fn start(
        observer: Option<&'o Arc<dyn Observer>>,
        operation: &'static str,
        attempt: u32,
    ) -> Self {
        let observation = Observation {
            operation,
            attempt,
            duration: Duration::ZERO,
            outcome: RequestOutcome::Cancelled,
            capacity_units: None,
        };
        Measurement { observer, began: Instant::now(), observation }
    }

    pub(super) fn finish<T>(mut self, result: &Result<T, Failure>, units: Option<f64>) {
        self.observation.capacity_units = units;
        self.observation.outcome = match result {
            Ok(_) => RequestOutcome::Ok,
            Err(failure) if failure.is_throttling => RequestOutcome::Throttled,
            Err(_) => RequestOutcome::Failed,
        };
    }
}

impl Drop for Measurement<'_> {
    fn drop(&mut self) {
        if let Some(observer) = self.observer {
            self.observation.duration = self.began.elapsed();
            observer.observe(&self.observation);
        }
    }
}
