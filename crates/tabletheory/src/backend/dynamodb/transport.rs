//! Observes requests as they are sent: to which endpoint, and whether an attempt sent one at all.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;

tokio::task_local! {
    /// Whether the current attempt of this task has sent its request.
    static SENT: Arc<AtomicBool>;
}

/// Makes an attempt, and returns whether its request was sent.
///
/// The SDK reports a request that it could not sign like one whose connection broke, but only the latter can have been
/// applied.
pub(super) async fn track_sent<A: Future>(attempt: A) -> (A::Output, bool) {
    let sent = Arc::new(AtomicBool::new(false));
    let result = SENT.scope(sent.clone(), attempt).await;
    (result, sent.load(Ordering::SeqCst))
}

/// Names the table and its endpoint in messages.
#[derive(Clone, Debug)]
pub(super) struct TableLabel {
    pub(super) table: String,
    /// The endpoint that requests are sent to. The SDK derives it from settings, environment, profile and region without
    /// exposing it, so it is taken from the first request.
    pub(super) endpoint: Arc<OnceLock<String>>,
}

impl fmt::Display for TableLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = self.endpoint.get().map_or("DynamoDB", String::as_str);
        write!(f, "table `{}` at {endpoint}", self.table)
    }
}

impl Intercept for TableLabel {
    fn name(&self) -> &'static str {
        "tabletheory::TableLabel"
    }

    /// Called in the task of the attempt, when the request has been signed and is about to be sent.
    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.endpoint.get_or_init(|| context.request().uri().trim_end_matches('/').to_owned());
        // Not set outside of `track_sent`.
        let _ = SENT.try_with(|sent| sent.store(true, Ordering::SeqCst));
        Ok(())
    }
}
