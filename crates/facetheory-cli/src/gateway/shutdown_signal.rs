//! The signal on which all connections end.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio_util::sync::CancellationToken;

/// A signal that is triggered once. Clones share it.
///
/// A connection is polled for every request, so waiting for the signal must be free: the first poll registers a waker,
/// and later polls only read a flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShutdownSignal {
    is_triggered: Arc<AtomicBool>,
    token: CancellationToken,
}

impl ShutdownSignal {
    pub(crate) fn trigger(&self) {
        // Before the tasks are woken, so that they see it.
        self.is_triggered.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub(crate) fn is_triggered(&self) -> bool {
        self.is_triggered.load(Ordering::Acquire)
    }

    /// Waits for the signal.
    pub(crate) async fn triggered(&self) {
        self.token.cancelled().await;
    }

    /// Runs a future until it completes, or returns `None` when the signal comes first. The future must always be polled
    /// by the same task.
    pub(crate) async fn run_until_triggered<F: Future>(&self, mut future: Pin<&mut F>) -> Option<F::Output> {
        let mut triggered = pin!(self.token.cancelled());
        let mut is_registered = false;
        poll_fn(|context| {
            if let Poll::Ready(outcome) = future.as_mut().poll(context) {
                return Poll::Ready(Some(outcome));
            }
            let is_quiet = is_registered && !self.is_triggered();
            is_registered = true;
            if is_quiet || triggered.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            Poll::Ready(None)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn every_waiter_is_notified_of_shutdown() {
        let (signal, notify) = (ShutdownSignal::default(), Arc::new(Notify::new()));
        let waiter = {
            let (signal, notify) = (signal.clone(), notify.clone());
            tokio::spawn(async move {
                let polled_often = pin!(async {
                    for _ in 0..3 {
                        notify.notified().await;
                    }
                    pending::<()>().await;
                });
                signal.run_until_triggered(polled_often).await
            })
        };
        for _ in 0..3 {
            notify.notify_one();
            tokio::task::yield_now().await;
        }
        signal.trigger();
        assert_eq!(waiter.await.expect("no panic"), None);
    }

    #[tokio::test]
    async fn a_future_that_is_ready_completes_after_the_signal_too() {
        let signal = ShutdownSignal::default();
        signal.trigger();
        assert_eq!(signal.run_until_triggered(pin!(async { 7 })).await, Some(7));
        assert_eq!(signal.run_until_triggered(pin!(pending::<()>())).await, None);
        signal.triggered().await;
    }
}
