//! The heartbeat: refreshes a lease while its holder renders.

use super::Pages;
use crate::protocol::lease::{Lease, Refresh};

/// How often a lease is refreshed within its duration.
const HEARTBEATS_PER_LEASE: u32 = 3;

impl Pages {
    /// Refreshes a lease until it is lost. Returns only then.
    pub(super) async fn refresh_until_lost(&self, lease: &Lease) {
        let mut lease = lease.clone();
        loop {
            tokio::time::sleep(self.store.lease_terms().term() / HEARTBEATS_PER_LEASE).await;
            match self.store.refresh(&lease).await {
                Ok(Refresh::Extended(extended)) => lease = extended,
                Ok(Refresh::Lost) => return,
                // The next heartbeat may succeed before the lease expires.
                Err(error) if self.store.now().seconds() < lease.expires_at() => {
                    tracing::warn!(%error, page = %lease.page().redacted(), "a lease could not be refreshed");
                }
                Err(_) => return,
            }
        }
    }
}
