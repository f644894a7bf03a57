//! Work that is done to its end, also if whoever waits for it leaves.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Engine, Isr};

/// Work that goes on in the background if it is dropped before it is done.
pub(crate) struct Detached<F: Future<Output: 'static> + Send + 'static> {
    engine: Arc<Engine>,
    work: Option<Pin<Box<F>>>,
}

impl Isr {
    /// Does this while somebody waits for it, and to its end if nobody does any more: what has begun to change something is
    /// not given up half-way. It ends with the process, which waits for it as for renders.
    pub(crate) fn run_detached<F: Future<Output: 'static> + Send + 'static>(&self, work: F) -> Detached<F> {
        Detached { engine: self.engine.clone(), work: Some(Box::pin(work)) }
    }
}

impl<F: Future<Output: 'static> + Send + 'static> Future for Detached<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Nobody asks again what has said that it is done.
        let Some(work) = &mut self.work else { return Poll::Pending };
        let outcome = work.as_mut().poll(context);
        if outcome.is_ready() {
            self.work = None;
        }
        outcome
    }
}

impl<F: Future<Output: 'static> + Send + 'static> Drop for Detached<F> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Where nothing runs any more, nothing can go on.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        // Whoever asks and leaves, again and again, must not keep the origin busy without end.
        let Ok(place) = self.engine.outliving.clone().try_acquire_owned() else {
            tracing::warn!(
                "too many visitors have left: what this one may have changed is not followed any more"
            );
            return;
        };
        let abandon = self.engine.abandon.clone();
        self.engine.spawn(Box::pin(async move {
            let _place = place;
            tokio::select! {
                biased;
                _ = work => {}
                () = abandon.cancelled() => {}
            }
        }));
    }
}
