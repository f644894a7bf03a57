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
        let remove = RemoveOnDrop { flights: self.clone(), key };
        let work = start();
        engine.spawn(Box::pin(async move {
            let value = work.await;
            drop(remove);
            sender.send_replace(Some(value));
        }));
        Flight { result, started: true }
    }

    /// Whether work is running for a page.
    pub(super) fn is_running(&self, page: &PageKey) -> bool {
        self.running.lock().contains_key(&page.into())
    }
}

/// Removes the work from the map also after a panic or a cancellation, so that no request waits for it forever.
struct RemoveOnDrop<T> {
    flights: Arc<SingleFlight<T>>,
    key: MemoryKey,
}

impl<T> Drop for RemoveOnDrop<T> {
    fn drop(&mut self) {
        self.flights.running.lock().remove(&self.key);
    }
}

impl<T: Clone> Flight<T> {
    /// Waits for the result; `None` if the work panicked or was cancelled.
    pub(super) async fn result(mut self) -> Option<T> {
        self.result.wait_for(Option::is_some).await.ok()?.clone()
    }
}
