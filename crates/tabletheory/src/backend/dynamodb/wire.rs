//! What only the wire knows: where requests go, and whether one was sent at all.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;

tokio::task_local! {
    /// Whether the attempt that this task is making has been sent.
    static SENT: Arc<AtomicBool>;
}

/// Makes an attempt, and says whether anything was sent in it.
///
/// The SDK reports a request that it could not sign in the same way as one whose connection broke; but
/// only one of them can have been applied.
pub(super) async fn watched<A: Future>(attempt: A) -> (A::Output, bool) {
    let sent = Arc::new(AtomicBool::new(false));
    let outcome = SENT.scope(sent.clone(), attempt).await;
    (outcome, sent.load(Ordering::SeqCst))
}

/// A table at an address: what every message about a failure names.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) table: String,
    pub(super) address: Address,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table `{}` at {}", self.table, self.address)
    }
}

/// Where requests really go. The SDK finds it out from settings, the environment, profiles and the region,
/// and tells nobody, so it is taken from the first request.
#[derive(Clone, Debug, Default)]
pub(super) struct Address(Arc<OnceLock<String>>);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get().map_or("DynamoDB", String::as_str))
    }
}

impl Intercept for Address {
    fn name(&self) -> &'static str {
        "tabletheory::Address"
    }

    /// Called in the task of the attempt, when the request is signed and about to be sent.
    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.get_or_init(|| context.request().uri().trim_end_matches('/').to_owned());
        // Outside of `watched` nobody asks.
        let _ = SENT.try_with(|sent| sent.store(true, Ordering::SeqCst));
        Ok(())
    }
}
