//! What tells connections that they are to end.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio_util::sync::CancellationToken;

/// Rung once, and heard by everyone. A clone is the same one.
///
/// A connection is polled for every request, so listening must not cost anything then: a waker is left there once, and
/// from then on only a flag is looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShutdownSignal {
    is_rung: Arc<AtomicBool>,
    wakers: CancellationToken,
}

impl ShutdownSignal {
    pub(crate) fn ring(&self) {
        // Whoever is woken must see it.
        self.is_rung.store(true, Ordering::Release);
        self.wakers.cancel();
    }

    /// Waits until it is rung.
    pub(crate) async fn rung(&self) {
        self.wakers.cancelled().await;
    }

    /// What comes of something, unless it is rung before. Something must always be polled by the same task.
    pub(crate) async fn unless_rung<F: Future>(&self, mut something: Pin<&mut F>) -> Option<F::Output> {
        let mut rung = pin!(self.wakers.cancelled());
        let mut is_listening = false;
        poll_fn(|context| {
            if let Poll::Ready(outcome) = something.as_mut().poll(context) {
                return Poll::Ready(Some(outcome));
            }
            let is_told = is_listening && !self.is_rung.load(Ordering::Acquire);
            is_listening = true;
            if is_told || rung.as_mut().poll(context).is_pending() {
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
    async fn whoever_waits_hears_it_however_often_it_was_polled_before() {
        let (bell, pushed) = (ShutdownSignal::default(), Arc::new(Notify::new()));
        let listener = {
            let (bell, pushed) = (bell.clone(), pushed.clone());
            tokio::spawn(async move {
                let something = pin!(async {
                    for _ in 0..3 {
                        pushed.notified().await;
                    }
                    pending::<()>().await;
                });
                bell.unless_rung(something).await
            })
        };
        for _ in 0..3 {
            pushed.notify_one();
            tokio::task::yield_now().await;
        }
        bell.ring();
        assert_eq!(listener.await.expect("no panic"), None);
    }

    #[tokio::test]
    async fn what_has_ended_has_ended_also_if_it_was_rung_before() {
        let bell = ShutdownSignal::default();
        bell.ring();
        assert_eq!(bell.unless_rung(pin!(async { 7 })).await, Some(7));
        assert_eq!(bell.unless_rung(pin!(pending::<()>())).await, None);
        bell.rung().await;
    }
}
