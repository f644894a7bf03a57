//! Interim answers: what may be said before the head of an answer, and never later.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Version;
use tokio::sync::oneshot;

use super::conduct::{Conduct, lock};

/// How many interim answers wait to be written at most; more are dropped.
const MAX_INTERIMS: usize = 16;

/// The time before the head of an answer, while its visitor may be told something. It ends when this is dropped, which has to
/// be before the head is given to hyper: what was not written by then never is, or it would stand in the middle of an answer.
#[derive(Debug)]
pub(crate) struct Prelude {
    conduct: Arc<Conduct>,
    number: u64,
}

/// Whoever may send interim answers during a prelude, and nothing once that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Herald {
    conduct: Arc<Conduct>,
    number: u64,
}

impl Prelude {
    /// The prelude to the next answer of a connection, which gives its answers one after the other.
    pub(super) fn begin(conduct: &Arc<Conduct>) -> Self {
        Prelude { conduct: conduct.clone(), number: conduct.interims.begin() }
    }

    /// Who may speak in it.
    pub(crate) fn herald(&self) -> Herald {
        Herald { conduct: self.conduct.clone(), number: self.number }
    }
}

impl Drop for Prelude {
    fn drop(&mut self) {
        self.conduct.interims.end(self.number);
    }
}

impl Herald {
    /// Sends an interim answer, such as `103 Early Hints`, whole with its empty line; returns once it is on its way, or is not
    /// going to be.
    ///
    /// The final answer has to wait for that, or it would come first. Nothing is sent to clients before HTTP/1.1,
    /// which do not know of interim answers. hyper's `pipeline_flush` has to be off: it does not flush while further
    /// requests are there, and this waits for it to flush.
    pub(crate) async fn tell(&self, version: Version, bytes: Bytes) {
        if version < Version::HTTP_11 {
            return;
        }
        let Some(is_written) = self.conduct.interims.push(self.number, bytes) else { return };
        self.conduct.wake();
        // A prelude or a connection that has ended wakes nobody, and there is nobody to be told.
        let _ = is_written.await;
    }
}

/// An answer before the answer, and who waits until it is written.
#[derive(Debug)]
pub(super) struct Interim {
    pub(super) bytes: Bytes,
    pub(super) written: oneshot::Sender<()>,
}

/// The interim answers of a connection that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Interims {
    /// Whether there are any, for those who come often.
    are_there: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// How many preludes there were.
    preludes: u64,
    /// Which of them has not ended.
    open: Option<u64>,
    /// The connection is gone.
    has_ended: bool,
    waiting: VecDeque<Interim>,
}

impl Interims {
    fn begin(&self) -> u64 {
        let mut queue = lock(&self.queue);
        queue.preludes += 1;
        queue.open = Some(queue.preludes);
        queue.preludes
    }

    fn end(&self, number: u64) {
        let mut queue = lock(&self.queue);
        if queue.open == Some(number) {
            queue.open = None;
            queue.waiting.clear();
        }
    }

    /// Lets one wait to be written; none if it is not going to be.
    fn push(&self, number: u64, bytes: Bytes) -> Option<oneshot::Receiver<()>> {
        let mut queue = lock(&self.queue);
        queue.waiting.retain(|interim| !interim.written.is_closed());
        if queue.has_ended || queue.open != Some(number) || queue.waiting.len() >= MAX_INTERIMS {
            return None;
        }
        let (written, is_written) = oneshot::channel();
        queue.waiting.push_back(Interim { bytes, written });
        self.are_there.store(true, Relaxed);
        Some(is_written)
    }

    /// The next one that somebody still waits for.
    pub(super) fn next(&self) -> Option<Interim> {
        if !self.are_there.load(Relaxed) {
            return None;
        }
        let mut queue = lock(&self.queue);
        queue.waiting.retain(|interim| !interim.written.is_closed());
        let next = queue.waiting.pop_front();
        self.are_there.store(!queue.waiting.is_empty(), Relaxed);
        next
    }

    /// The connection is gone: nobody waits any longer for what can no longer be written, nor begins to.
    pub(super) fn end_all(&self) {
        let mut queue = lock(&self.queue);
        queue.has_ended = true;
        queue.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::super::Patience;
    use super::super::patience::Terms;
    use super::*;

    fn conduct() -> Arc<Conduct> {
        Arc::new(Conduct::new(Terms::new(Arc::default(), &Patience::default())))
    }

    /// What somebody waits for who tells this.
    fn told(herald: &Herald, text: &'static str) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        let herald = herald.clone();
        Box::pin(async move { herald.tell(Version::HTTP_11, Bytes::from_static(text.as_bytes())).await })
    }

    fn poll(telling: &mut std::pin::Pin<Box<dyn Future<Output = ()>>>) -> Poll<()> {
        telling.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_interim_answer_that_nobody_waits_for_any_longer_is_not_sent() {
        let conduct = conduct();
        let prelude = conduct.prelude();
        let (mut first, mut second) = (told(&prelude.herald(), "first"), told(&prelude.herald(), "second"));
        assert!(poll(&mut first).is_pending());
        assert!(poll(&mut second).is_pending());
        drop(first);
        let next = conduct.next_interim().expect("the second");
        assert_eq!(&next.bytes[..], b"second");
        assert!(conduct.next_interim().is_none());
        // The connection has ended.
        drop(next);
        assert!(poll(&mut second).is_ready());
    }

    #[test]
    fn once_the_answer_begins_nothing_is_said_before_it() {
        let conduct = conduct();
        let prelude = conduct.prelude();
        let herald = prelude.herald();
        let mut waiting = told(&herald, "waiting");
        assert!(poll(&mut waiting).is_pending());
        drop(prelude);
        assert!(conduct.next_interim().is_none());
        assert!(poll(&mut waiting).is_ready(), "nobody waits for what is not going to be written");
        let next = conduct.prelude();
        assert!(poll(&mut told(&herald, "late")).is_ready());
        assert!(conduct.next_interim().is_none(), "it is not said before another answer either");
        let mut own = told(&next.herald(), "own");
        assert!(poll(&mut own).is_pending());
        assert!(conduct.next_interim().is_some());
    }

    #[test]
    fn nobody_waits_for_a_connection_that_has_ended() {
        let conduct = conduct();
        let prelude = conduct.prelude();
        let mut early = told(&prelude.herald(), "early");
        assert!(poll(&mut early).is_pending());
        conduct.end();
        assert!(poll(&mut early).is_ready());
        assert!(poll(&mut told(&prelude.herald(), "late")).is_ready());
        let next = conduct.prelude();
        assert!(poll(&mut told(&next.herald(), "too late")).is_ready());
    }
}
