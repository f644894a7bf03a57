//! The table as one process sees it: shared rows, its own clock, and a crash at a chosen call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use facetheory::testing::{Call, ObservedTable, RuntimeClock, TableHooks};
use tabletheory::{Clock, Table};
use tokio::sync::Notify;

/// The number of responses left for a process that does not crash.
const UNLIMITED: u64 = u64::MAX;

/// The table as one process sees it.
pub(crate) type ProcessTable = ObservedTable<ProcessCalls>;

/// Counts the calls of a process, and crashes it.
#[derive(Debug)]
pub(crate) struct ProcessCalls {
    table: Arc<dyn Table>,
    clock: RuntimeClock,
    /// How many more responses the process receives before it crashes.
    responses_left: AtomicU64,
    crash: Notify,
    /// Calls plus responses, so that it also changes when a call in flight returns.
    calls: AtomicU64,
}

pub(crate) fn process_table(table: Arc<dyn Table>, clock: RuntimeClock) -> ProcessTable {
    let (responses_left, calls) = (AtomicU64::new(UNLIMITED), AtomicU64::new(0));
    ObservedTable(ProcessCalls { table, clock, responses_left, crash: Notify::new(), calls })
}

impl ProcessCalls {
    /// Runs a task and drops it when the table has executed the call after `responses` others, before the caller gets
    /// the response: a commit that nobody heard of is the worst moment to crash. Returns whether the task crashed.
    pub(crate) async fn crash_after(&self, responses: u64, task: impl Future<Output = ()>) -> bool {
        self.responses_left.store(responses, Ordering::SeqCst);
        let crashed = tokio::select! {
            biased;
            () = self.crash.notified() => true,
            () = task => false,
        };
        self.responses_left.store(UNLIMITED, Ordering::SeqCst);
        crashed
    }

    /// The number of calls and responses so far; it does not change while the process is idle.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl TableHooks for ProcessCalls {
    fn table(&self) -> &dyn Table {
        &*self.table
    }

    async fn before(&self, _call: Call) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    async fn after(&self) {
        let left = self.responses_left.load(Ordering::SeqCst);
        if left == 0 {
            self.crash.notify_one();
            std::future::pending::<()>().await;
        }
        self.responses_left.store(left - 1, Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
}
