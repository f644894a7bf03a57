//! Work that is completed even if the client that waits for it disconnects.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Engine, Isr};

/// A future that continues in the background if it is dropped before it is ready.
pub(crate) struct Detached<F: Future<Output: 'static> + Send + 'static> {
    engine: Arc<Engine>,
    work: Option<Pin<Box<F>>>,
}

impl Isr {
    /// Runs `work` to completion even if the returned future is dropped: a request that may have changed something must
    /// still be followed by its invalidations. Shutdown waits for it as for a render.
    pub(crate) fn run_detached<F: Future<Output: 'static> + Send + 'static>(&self, work: F) -> Detached<F> {
        Detached { engine: self.engine.clone(), work: Some(Box::pin(work)) }
    }
}

impl<F: Future<Output: 'static> + Send + 'static> Future for Detached<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // A future must not be polled after it was ready.
        let Some(work) = &mut self.work else { return Poll::Pending };
        let output = work.as_mut().poll(context);
        if output.is_ready() {
            self.work = None;
        }
        output
    }
}

impl<F: Future<Output: 'static> + Send + 'static> Drop for Detached<F> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Without a runtime nothing can continue.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        // Clients that send requests and disconnect must not keep the origin busy without limit.
        let Ok(permit) = self.engine.detached.clone().try_acquire_owned() else {
            tracing::warn!(
                "a client disconnected and too many requests continue in the background: this request is dropped, and \
                 pages that it may have changed are not invalidated"
            );
            return;
        };
        let abandon = self.engine.abandon_token();
        self.engine.spawn(Box::pin(async move {
            let _permit = permit;
            abandon.run_until_cancelled(work).await;
        }));
    }
}
