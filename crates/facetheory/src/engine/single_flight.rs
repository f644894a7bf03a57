//! Single flight: one lookup and one render per page and process, however many requests need it.
//!
//! Concurrent requests for a page coalesce: the first one starts the work, the others wait for its result. This protects
//! table and origin from a cache stampede (thundering herd) when a popular page goes stale. Across processes the lease
//! does the same.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Engine;
use super::memory::MemoryKey;
use crate::PageKey;

/// The work that is running, by page. It continues even if every request that waits for it is cancelled.
#[derive(Debug)]
pub(super) struct SingleFlight<T> {
    running: Mutex<HashMap<MemoryKey, watch::Receiver<Progress<T>>>>,
}

/// How far work has come.
#[derive(Debug)]
enum Progress<T> {
    /// It goes on, and may have a result that serves some of the requests already.
    Running(Option<T>),
    Done(T),
}

impl<T> Progress<T> {
    /// The result of work that has ended.
    fn result(&self) -> Option<&T> {
        if let Progress::Done(result) = self { Some(result) } else { None }
    }
}

/// Sends a result of work that goes on.
pub(super) struct Early<T>(watch::Sender<Progress<T>>);

impl<T> Early<T> {
    /// Serves the requests that [accept](Flight::result_or_early) this result.
    pub(super) fn send(&self, value: T) {
        self.0.send_replace(Progress::Running(Some(value)));
    }
}

/// A request's share in work that is running.
pub(super) struct Flight<T> {
    progress: watch::Receiver<Progress<T>>,
    /// Whether this request started the work.
    pub(super) started: bool,
}

/// How work begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// As a task of the engine.
    AsTask,
    /// At once. Work that does not have to wait, such as a read of the embedded store, ends without a task of its own.
    ///
    /// Not for code of users: if the work panics at its beginning, so does the request.
    AtOnce,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(SingleFlight { running: Mutex::default() })
    }

    /// Joins the work that is running for a page, or starts it.
    pub(super) fn join<F: Future<Output = T> + Send + 'static>(
        self: &Arc<Self>,
        engine: &Engine,
        page: &PageKey,
        begin: Begin,
        start: impl FnOnce(Early<T>) -> F,
    ) -> Flight<T> {
        self.join_or(
            page,
            |_| true,
            |announcement| {
                let mut work = Box::pin(start(Early(announcement.sender.clone())));
                if begin == Begin::AtOnce {
                    // The task polls it again, and so registers its own waker.
                    if let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                        return announcement.finish(value);
                    }
                }
                engine.spawn(Box::pin(async move { announcement.finish(work.await) }));
            },
        )
    }

    /// Like [`join`](Self::join), but also joins work that has ended if this request `accepts` its result. A result stays
    /// until the future that `retain` returns for it is ready. `None` if the request can neither join nor start work.
    pub(super) fn join_recent<F, L>(
        self: &Arc<Self>,
        engine: &Engine,
        page: &PageKey,
        accepts: impl Fn(&T) -> bool,
        retain: impl FnOnce(&T) -> L + Send + 'static,
        start: Option<impl FnOnce() -> F>,
    ) -> Option<Flight<T>>
    where
        F: Future<Output = T> + Send + 'static,
        L: Future<Output = ()> + Send + 'static,
    {
        let joins = |work: &watch::Receiver<Progress<T>>| work.borrow().result().is_none_or(&accepts);
        let Some(start) = start else {
            let running = self.running.lock();
            let progress = running.get(&MemoryKey::from(page)).filter(|work| joins(work))?;
            return Some(Flight { progress: progress.clone(), started: false });
        };
        Some(self.join_or(page, joins, |announcement| {
            let work = start();
            engine.spawn(Box::pin(async move {
                let value = work.await;
                let retained = retain(&value);
                announcement.sender.send_replace(Progress::Done(value));
                // In a task of its own, for which shutdown does not wait.
                tokio::spawn(async move {
                    retained.await;
                    drop(announcement);
                });
            }));
        }))
    }

    /// Joins the work for a page that `joins` accepts, or announces work and lets `begin` do it.
    fn join_or(
        self: &Arc<Self>,
        page: &PageKey,
        joins: impl FnOnce(&watch::Receiver<Progress<T>>) -> bool,
        begin: impl FnOnce(Announcement<T>),
    ) -> Flight<T> {
        match self.claim(page, joins) {
            Ok(announcement) => {
                let flight = announcement.flight();
                begin(announcement);
                flight
            }
            Err(running) => running,
        }
    }

    /// Announces work that the caller does itself: requests that [`join`](Self::join) wait for it. `None` if other work is
    /// running for the page.
    pub(super) fn announce(self: &Arc<Self>, page: &PageKey) -> Option<Announcement<T>> {
        self.claim(page, is_pending).ok()
    }

    /// Announces work for a page, unless `joins` accepts the work that is there.
    fn claim(
        self: &Arc<Self>,
        page: &PageKey,
        joins: impl FnOnce(&watch::Receiver<Progress<T>>) -> bool,
    ) -> Result<Announcement<T>, Flight<T>> {
        let key = MemoryKey::from(page);
        let mut running = self.running.lock();
        if let Some(progress) = running.get(&key).filter(|work| joins(work)) {
            return Err(Flight { progress: progress.clone(), started: false });
        }
        let (sender, progress) = watch::channel(Progress::Running(None));
        running.insert(key.clone(), progress.clone());
        Ok(Announcement { sender, remove: RemoveOnDrop { flights: self.clone(), key, progress } })
    }

    /// Whether work is running for a page.
    pub(super) fn is_running(&self, page: &PageKey) -> bool {
        self.running.lock().get(&MemoryKey::from(page)).is_some_and(is_pending)
    }
}

/// Work for which requests may wait. If it is dropped without a result, they get none.
pub(super) struct Announcement<T> {
    sender: watch::Sender<Progress<T>>,
    remove: RemoveOnDrop<T>,
}

impl<T> Announcement<T> {
    /// Whether any request waits for the result. The map and its guard have a receiver as well.
    pub(super) fn is_awaited(&self) -> bool {
        self.sender.receiver_count() > 2
    }

    /// The share of the request that announced the work.
    fn flight(&self) -> Flight<T> {
        Flight { progress: self.remove.progress.clone(), started: true }
    }

    /// Ends the work with this result.
    pub(super) fn finish(self, value: T) {
        drop(self.remove);
        self.sender.send_replace(Progress::Done(value));
    }
}

/// Removes the work from the map also after a panic or a cancellation, so that no request waits for it forever.
struct RemoveOnDrop<T> {
    flights: Arc<SingleFlight<T>>,
    key: MemoryKey,
    /// Other work of the page may have taken its place in the map.
    progress: watch::Receiver<Progress<T>>,
}

impl<T> Drop for RemoveOnDrop<T> {
    fn drop(&mut self) {
        let mut running = self.flights.running.lock();
        if running.get(&self.key).is_some_and(|work| work.same_channel(&self.progress)) {
            running.remove(&self.key);
        }
    }
}

/// Whether work is running, and has not ended.
fn is_pending<T>(work: &watch::Receiver<Progress<T>>) -> bool {
    work.borrow().result().is_none()
}

impl<T: Clone> Flight<T> {
    /// Waits for the result; `None` if the work panicked or was cancelled.
    pub(super) async fn result(&mut self) -> Option<T> {
        self.result_or_early(|_| false).await
    }

    /// Like [`result`](Self::result), but ends with the first result that this request `accepts`, also if the work goes on.
    pub(super) async fn result_or_early(&mut self, accepts: impl Fn(&T) -> bool) -> Option<T> {
        let is_enough = |progress: &Progress<T>| match progress {
            Progress::Running(early) => early.as_ref().is_some_and(&accepts),
            Progress::Done(_) => true,
        };
        match &*self.progress.wait_for(is_enough).await.ok()? {
            Progress::Running(result) => result.clone(),
            Progress::Done(result) => Some(result.clone()),
        }
    }
}
