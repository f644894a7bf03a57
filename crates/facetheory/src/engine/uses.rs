//! Records in the table that pages are used that memory serves, at a low rate: so that they are not evicted as unused, and
//! their retention is counted from their last use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use tabletheory::Timestamp;

use super::Engine;
use super::memory::{MemoryKey, Metadata};
use crate::PageKey;
use crate::protocol::Meta;

/// The most pages whose use waits to be recorded. Uses of others are recorded when they are used again.
const MAX_WAITING: usize = 4096;
/// How long uses are collected before they are written together.
const COLLECT: Duration = Duration::from_millis(200);
/// Uses that are written at the same time, which share writes to the disk.
const CONCURRENT: usize = 64;

/// The uses that are not recorded yet.
#[derive(Debug, Default)]
pub(super) struct Uses {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    pages: HashMap<MemoryKey, (PageKey, Arc<Meta>)>,
    /// Whether a task records them.
    is_recording: bool,
}

impl Engine {
    /// Notes that a fresh page is served from memory now, and records it if the last recorded use is long ago.
    ///
    /// A page that is served stale is recorded when it is published again.
    pub(super) fn note_use(self: &Arc<Self>, page: &PageKey, metadata: &Metadata, now: Timestamp) {
        let pressure = self.pages.store().uses_recorded_after();
        if metadata.is_use_due(now.seconds(), pressure) {
            metadata.set_used_at(now.seconds());
            self.record_use_in_background(page, &metadata.meta);
        }
    }

    fn record_use_in_background(self: &Arc<Self>, page: &PageKey, meta: &Arc<Meta>) {
        let mut waiting = self.uses.waiting.lock();
        if waiting.pages.len() >= MAX_WAITING {
            return;
        }
        waiting.pages.insert(MemoryKey::from(page), (page.clone(), meta.clone()));
        if !std::mem::replace(&mut waiting.is_recording, true) {
            let engine = self.clone();
            self.spawn(Box::pin(async move { engine.record_uses().await }));
        }
    }

    /// Records uses until none is left.
    async fn record_uses(&self) {
        loop {
            tokio::time::sleep(COLLECT).await;
            let pages = {
                let mut waiting = self.uses.waiting.lock();
                if waiting.pages.is_empty() {
                    waiting.is_recording = false;
                    return;
                }
                std::mem::take(&mut waiting.pages)
            };
            let store = self.pages.store();
            let writes = pages.into_values().map(|(page, meta)| async move {
                // The page is served in any case, and its next use is recorded again.
                if let Err(error) = self.within_table_timeout(store.record_use(&page, &meta)).await {
                    tracing::debug!(%error, page = %page.redacted(), "the use of a page was not recorded");
                }
            });
            stream::iter(writes).buffer_unordered(CONCURRENT).collect::<()>().await;
        }
    }
}
