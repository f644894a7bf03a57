//! Deletes replaced bodies in the background, a while after they were replaced.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;

use super::Engine;
use crate::pages::replaced::ReplacedReport;

/// The pause between two batches. Bodies that are due within it are deleted together.
const PAUSE: Duration = Duration::from_secs(1);

impl Engine {
    /// Starts to delete replaced bodies if some wait, unless a task does so already. It ends when none waits, when the engine is
    /// dropped, or when it shuts down. It does not count as background work that a shutdown or [`Isr::settle`](super::Isr::settle)
    /// waits for: bodies that it leaves are deleted by garbage collection.
    pub(super) fn delete_replaced_in_background(self: &Arc<Self>) {
        if self.next_replaced().is_none() || self.deleting_replaced.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = Arc::downgrade(self);
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(delete_replaced(engine)));
    }

    fn next_replaced(&self) -> Option<Instant> {
        self.pages.replaced.as_ref().and_then(|replaced| replaced.next_due())
    }

    /// The time of the next batch; `None` if no body waits, and the task has to end.
    fn next_batch(&self) -> Option<Instant> {
        let next = self.next_replaced();
        if next.is_none() {
            self.deleting_replaced.store(false, Ordering::Release);
            // A body may have been added in between, by a request that has seen that this task was still running.
            let added = self.next_replaced();
            return added.filter(|_| !self.deleting_replaced.swap(true, Ordering::AcqRel));
        }
        next
    }
}

/// Deletes replaced bodies when they are due, as long as the engine exists.
async fn delete_replaced(engine: Weak<Engine>) {
    let mut failing = false;
    loop {
        let Some(next) = engine.upgrade().and_then(|engine| engine.next_batch()) else { return };
        tokio::time::sleep_until(next.max(Instant::now() + PAUSE)).await;
        let Some(engine) = engine.upgrade() else { return };
        let ReplacedReport { deleted, named, left, error } = engine.pages.delete_replaced().await;
        for (outcome, bodies) in [("deleted", deleted), ("named", named), ("left", left)] {
            counter!("facetheory_replaced_bodies_total", "outcome" => outcome).increment(bodies);
        }
        // One message per outage.
        match error {
            Some(error) if !failing => {
                failing = true;
                tracing::warn!(%error, "replaced bodies cannot be deleted; garbage collection deletes them later");
            }
            None if failing && deleted > 0 => {
                failing = false;
                tracing::info!("replaced bodies are deleted again");
            }
            _ => {}
        }
    }
}
