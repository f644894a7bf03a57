//! A table on which other actors run between the steps of a garbage collection.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use facetheory::testing::{Call, ObservedTable, TableHooks};
use tabletheory::{Page, Result, Scan, Table};

/// The actions before the step with this number.
pub(crate) type Meanwhile = Arc<dyn Fn(usize) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A table with [`Steps`].
pub(crate) type ConcurrentTable = ObservedTable<Steps>;

/// Returns a few rows at a time, so that a partition is split, and runs actions before each step.
pub(crate) struct Steps {
    pub(crate) table: Arc<dyn Table>,
    state: Mutex<(usize, Option<Meanwhile>)>,
}

/// The most rows of one scan request.
const ROWS: usize = 2;

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}

pub(crate) fn concurrent_table(table: Arc<dyn Table>) -> ConcurrentTable {
    ObservedTable(Steps { table, state: Mutex::default() })
}

impl Steps {
    /// Sets the actions of the following steps.
    pub(crate) fn meanwhile(&self, meanwhile: Option<Meanwhile>) {
        *self.state.lock().expect("not poisoned") = (0, meanwhile);
    }

    async fn step(&self) {
        let (step, meanwhile) = {
            let mut state = self.state.lock().expect("not poisoned");
            state.0 += 1;
            (state.0, state.1.clone())
        };
        if let Some(meanwhile) = meanwhile {
            meanwhile(step).await;
        }
    }
}

#[async_trait]
impl TableHooks for Steps {
    fn table(&self) -> &dyn Table {
        &*self.table
    }

    async fn before(&self, call: Call) {
        if call != Call::Read {
            self.step().await;
        }
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.table.scan(&scan.clone().limit(ROWS)).await
    }
}
