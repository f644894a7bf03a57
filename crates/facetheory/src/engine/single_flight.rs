//! Single flight: one lookup and one render per page and process, however many requests need it.
//!
//! Concurrent requests for a page coalesce: the first one starts the work, the others wait for its result. This protects
//! table and origin from a cache stampede (thundering herd) when a popular page goes stale. Across processes the lease
//! does the same.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Engine;
use super::memory::MemoryKey;
use crate::PageKey;

/// The work that is running, by page. It continues even if every request that waits for it is cancelled.
#[derive(Debug)]
pub(super) struct SingleFlight<T> {
    running: Mutex<HashMap<MemoryKey, watch::Receiver<Option<T>>>>,
}

/// A request's share in work that is running.
pub(super) struct Flight<T> {
    result: watch::Receiver<Option<T>>,
    /// Whether this request started the work.
    pub(super) started: bool,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(SingleFlight { running: Mutex::default() })
    }

    /// Joins the work that is running for a page, or starts it as a task of the engine.
    pub(super) fn join<F: Future<Output = T> + Send + 'static>(
        self: &Arc<Self>,
        engine: &Engine,
        page: &PageKey,
        start: impl FnOnce() -> F,
    ) -> Flight<T> {
        let key = MemoryKey::from(page);
        let mut running = self.running.lock();
        if let Some(result) = running.get(&key) {
            return Flight { result: result.clone(), started: false };
        }
        let (sender, result) = watch::channel(None);
        running.insert(key.clone(), result.clone());
        drop(running);
        let remove = RemoveOnDrop { flights: self.clone(), key, result: result.clone() };
        let work = start();
        engine.spawn(Box::pin(async move {
            let value = work.await;
            drop(remove);
            sender.send_replace(Some(value));
        }));
        Flight { result, started: true }
    }

    /// Like [`join`](Self::join), but also joins work that has ended if this request `accepts` its result. A result stays
    /// until the future that `linger` returns for it is ready.
    pub(super) fn join_recent<F, L>(
        self: &Arc<Self>,
        engine: &Engine,
        page: &PageKey,
        accepts: impl Fn(&T) -> bool,
        linger: impl FnOnce(&T) -> L + Send + 'static,
        start: impl FnOnce() -> F,
    ) -> Flight<T>
    where
        F: Future<Output = T> + Send + 'static,
        L: Future<Output = ()> + Send + 'static,
    {
        let key = MemoryKey::from(page);
        let mut running = self.running.lock();
        if let Some(result) = running.get(&key)
            && result.borrow().as_ref().is_none_or(accepts)
        {
            return Flight { result: result.clone(), started: false };
        }
        let (sender, result) = watch::channel(None);
        running.insert(key.clone(), result.clone());
        drop(running);
        let remove = RemoveOnDrop { flights: self.clone(), key, result: result.clone() };
        let work = start();
        engine.spawn(Box::pin(async move {
            let value = work.await;
            let lingering = linger(&value);
            sender.send_replace(Some(value));
            // In a task of its own, for which shutdown does not wait.
            tokio::spawn(async move {
                lingering.await;
                drop(remove);
            });
        }));
        Flight { result, started: true }
    }

    /// Announces work that the caller does itself: requests that [`join`](Self::join) wait for it. `None` if other work is
    /// running for the page.
    pub(super) fn announce(self: &Arc<Self>, page: &PageKey) -> Option<Announcement<T>> {
        let key = MemoryKey::from(page);
        let mut running = self.running.lock();
        if running.get(&key).is_some_and(is_pending) {
            return None;
        }
        let (sender, result) = watch::channel(None);
        running.insert(key.clone(), result.clone());
        drop(running);
        Some(Announcement { sender, remove: RemoveOnDrop { flights: self.clone(), key, result } })
    }

    /// Whether work is running for a page.
    pub(super) fn is_running(&self, page: &PageKey) -> bool {
        self.running.lock().get(&MemoryKey::from(page)).is_some_and(is_pending)
    }
}

/// Work of the caller for which requests may wait. If it is dropped without a result, they get none.
pub(super) struct Announcement<T> {
    sender: watch::Sender<Option<T>>,
    remove: RemoveOnDrop<T>,
}

impl<T> Announcement<T> {
    /// Whether any request waits for the result. The map and its guard have a receiver as well.
    pub(super) fn is_awaited(&self) -> bool {
        self.sender.receiver_count() > 2
    }

    /// Ends the work with this result.
    pub(super) fn finish(self, value: T) {
        drop(self.remove);
        self.sender.send_replace(Some(value));
    }
}

/// Removes the work from the map also after a panic or a cancellation, so that no request waits for it forever.
struct RemoveOnDrop<T> {
    flights: Arc<SingleFlight<T>>,
    key: MemoryKey,
    /// Other work of the page may have taken its place in the map.
    result: watch::Receiver<Option<T>>,
}

impl<T> Drop for RemoveOnDrop<T> {
    fn drop(&mut self) {
        let mut running = self.flights.running.lock();
        if running.get(&self.key).is_some_and(|result| result.same_channel(&self.result)) {
            running.remove(&self.key);
        }
    }
}

/// Whether work is running, and has not ended.
fn is_pending<T>(result: &watch::Receiver<Option<T>>) -> bool {
    result.borrow().is_none()
}

impl<T: Clone> Flight<T> {
    /// Waits for the result; `None` if the work panicked or was cancelled.
    pub(super) async fn result(&mut self) -> Option<T> {
        self.result.wait_for(Option::is_some).await.ok()?.clone()
    }
}
