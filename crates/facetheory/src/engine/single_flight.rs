//! SingleFlight: what is done once for everyone who asks for it at the same time.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::memory::Slot;
use crate::protocol::key::PageKey;

/// What is under way for which page. It goes on even if everyone who waits for it goes away.
#[derive(Debug)]
pub(super) struct SingleFlight<T> {
    flying: Mutex<HashMap<Slot, watch::Receiver<Option<T>>>>,
}

/// A seat on a flight.
pub(super) struct Seat<T> {
    landing: watch::Receiver<Option<T>>,
    /// Whether it was this visitor who started it.
    pub(super) first: bool,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(SingleFlight { flying: Mutex::default() })
    }

    /// Joins what is under way for a page, or starts it with what `start` spawns.
    pub(super) fn join<F>(
        self: &Arc<Self>,
        page: &PageKey,
        start: impl FnOnce() -> F,
        spawn: impl FnOnce(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
    ) -> Seat<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let slot = Slot::of(page);
        let mut flying = self.lock();
        if let Some(landing) = flying.get(&slot) {
            return Seat { landing: landing.clone(), first: false };
        }
        let (land, landing) = watch::channel(None);
        flying.insert(slot.clone(), landing.clone());
        drop(flying);
        // Also a panic or a cancellation takes it off the board: nobody may wait for what will never land.
        let departure = Departure { flights: self.clone(), slot };
        let flight = start();
        spawn(Box::pin(async move {
            let landed = flight.await;
            drop(departure);
            land.send_replace(Some(landed));
        }));
        Seat { landing, first: true }
    }

    /// Whether something is under way for a page.
    pub(super) fn has(&self, page: &PageKey) -> bool {
        self.lock().contains_key(&Slot::of(page))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Slot, watch::Receiver<Option<T>>>> {
        // The map is whole at any moment, so a poisoned lock guards nothing broken.
        self.flying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Departure<T> {
    flights: Arc<SingleFlight<T>>,
    slot: Slot,
}

impl<T> Drop for Departure<T> {
    fn drop(&mut self) {
        self.flights.flying.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.slot);
    }
}

impl<T: Clone> Seat<T> {
    /// What came of it; none if it came to grief.
    pub(super) async fn landed(mut self) -> Option<T> {
        let landed = self.landing.wait_for(Option::is_some).await.ok()?;
        landed.clone()
    }
}
