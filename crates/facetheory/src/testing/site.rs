//! A site over tables and bodies in memory.

use std::sync::Arc;
use std::time::Duration;

use tabletheory::SeededRandom;

use super::clock::RuntimeClock;
use super::counted_table::CountedTable;
use crate::{Bodies, Isr, IsrBuilder, PageStore, Pages};

/// One process of a site: an engine, over a table and bodies that other processes may share.
#[derive(Clone, Debug)]
pub struct Site {
    /// The engine.
    pub isr: Isr,
    /// The table of the site; its clock is the runtime's.
    pub table: Arc<CountedTable>,
    /// The bodies of the site.
    pub bodies: Bodies,
}

impl Site {
    /// When the clock of a new site starts, in epoch seconds.
    pub const START: i64 = 1_700_000_000;

    /// A new site with an empty table.
    #[must_use]
    pub fn new(bodies: Bodies, build: impl FnOnce(IsrBuilder) -> IsrBuilder) -> Self {
        let table = Arc::new(CountedTable::new(Arc::new(RuntimeClock::starting_at(Site::START))));
        Site::over(table, bodies, |store| store, build)
    }

    /// Another process of this site.
    #[must_use]
    pub fn another(&self, build: impl FnOnce(IsrBuilder) -> IsrBuilder) -> Self {
        Site::over(self.table.clone(), self.bodies.clone(), |store| store, build)
    }

    /// A process over this table and these bodies. Its random numbers are the same in every run: pages share counters of
    /// invalidations by a random hash, and a test whose pages share one by chance would see the other page's invalidation.
    #[must_use]
    pub fn over(
        table: Arc<CountedTable>,
        bodies: Bodies,
        store: impl FnOnce(PageStore) -> PageStore,
        build: impl FnOnce(IsrBuilder) -> IsrBuilder,
    ) -> Self {
        let pages = Pages::new(store(PageStore::new(table.clone())), bodies.clone());
        let builder = Isr::builder(pages).random(Arc::new(SeededRandom::new(1)));
        Site { isr: build(builder).build(), table, bodies }
    }

    /// Lets the background tasks of the site finish; see [`settle`].
    pub async fn settle(&self) {
        settle().await;
    }
}

/// Lets background tasks finish: paused time advances only once every other task waits.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
