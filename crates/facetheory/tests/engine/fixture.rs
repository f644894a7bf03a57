//! A site for a story to be told on: its clock is the paused runtime's, and its renders are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use facetheory::{
    Bodies, GetResult, Isr, IsrBuilder, PageKey, PageStore, Pages, Policy, RenderError, Rendered, Result,
    State,
};
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use tabletheory::{
    Clock, Commit, Consistency, Faults, Faulty, Item, Key, MemoryTable, Page, Query, Scan, Table, Txn,
};

use crate::clock::RuntimeClock;

pub(crate) const NOW: i64 = 1_700_000_000;
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// For how long pages are fresh.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

/// A table that counts what is asked of it.
#[derive(Debug)]
pub(crate) struct Counted {
    table: Faulty<MemoryTable>,
    reads: AtomicU32,
    commits: AtomicU32,
}

impl Counted {
    /// Reads and commits since it was last asked.
    pub(crate) fn take(&self) -> (u32, u32) {
        (self.reads.swap(0, Ordering::SeqCst), self.commits.swap(0, Ordering::SeqCst))
    }

    pub(crate) fn break_down(&self) {
        self.table.set_faults(Faults { fail: 1.0, ..Faults::NONE });
    }

    /// Every call takes up to this long.
    pub(crate) fn slow_down(&self, longest_delay: Duration) {
        self.table.set_faults(Faults { delay: 1.0, longest_delay, ..Faults::NONE });
    }

    pub(crate) fn come_back(&self) {
        self.table.set_faults(Faults::NONE);
    }

    fn read(&self) {
        self.reads.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Table for Counted {
    async fn get(&self, key: &Key, consistency: Consistency) -> tabletheory::Result<Option<Item>> {
        self.read();
        self.table.get(key, consistency).await
    }

    async fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> tabletheory::Result<Vec<Option<Item>>> {
        self.read();
        self.table.batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> tabletheory::Result<Page> {
        self.read();
        self.table.query(query).await
    }

    async fn scan(&self, scan: &Scan) -> tabletheory::Result<Page> {
        self.read();
        self.table.scan(scan).await
    }

    async fn commit(&self, txn: &Txn) -> tabletheory::Result<Commit> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.table.commit(txn).await
    }

    fn clock(&self) -> &dyn Clock {
        self.table.clock()
    }
}

/// One process of a site.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) isr: Isr,
    pub(crate) table: Arc<Counted>,
    pub(crate) bodies: Bodies,
    pub(crate) page: PageKey,
    pub(crate) policy: Policy,
    pub(crate) renders: Arc<AtomicU32>,
}

impl Site {
    pub(crate) fn new() -> Self {
        Site::built(|builder| builder)
    }

    pub(crate) fn built(build: impl FnOnce(IsrBuilder) -> IsrBuilder) -> Self {
        Site::on(build, Bodies::memory())
    }

    pub(crate) fn on(build: impl FnOnce(IsrBuilder) -> IsrBuilder, bodies: Bodies) -> Self {
        let clock = Arc::new(RuntimeClock::starting_at(NOW));
        let table = Faulty::new(MemoryTable::with_clock(clock), 1, Faults::NONE);
        let table = Arc::new(Counted { table, reads: AtomicU32::new(0), commits: AtomicU32::new(0) });
        let pages = Pages::new(PageStore::new(table.clone()), bodies.clone());
        Site {
            isr: build(Isr::builder(pages)).build(),
            table,
            bodies,
            page: PageKey::new("/").expect("a page"),
            policy: Policy::every(INTERVAL),
            renders: Arc::default(),
        }
    }

    /// Another process of the same site.
    pub(crate) fn another(&self) -> Self {
        self.another_built(|builder| builder)
    }

    pub(crate) fn another_built(&self, build: impl FnOnce(IsrBuilder) -> IsrBuilder) -> Self {
        let pages = Pages::new(PageStore::new(self.table.clone()), self.bodies.clone());
        Site { isr: build(Isr::builder(pages)).build(), ..self.clone() }
    }

    /// The same with another policy.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Policy)) -> Self {
        let mut site = self.clone();
        change(&mut site.policy);
        site
    }

    /// A visit, for which a render takes this long and gives this.
    pub(crate) async fn visit_slow(
        &self,
        takes: Duration,
        gives: std::result::Result<Rendered, &'static str>,
    ) -> Result<GetResult> {
        let renders = self.renders.clone();
        let render = move |_| async move {
            renders.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(takes).await;
            gives.map_err(RenderError::from)
        };
        self.isr.get(&self.page, &self.policy, render).await
    }

    /// A visit, for which a render is quick and gives this body. Answers with the state and the body.
    pub(crate) async fn visit(&self, body: &'static str) -> (State, String) {
        seen(self.visit_slow(Duration::ZERO, Ok(Rendered::html(body))).await)
    }

    /// A visit, for which a render fails.
    pub(crate) async fn visit_failing(&self) -> Result<GetResult> {
        self.visit_slow(Duration::ZERO, Err("the origin is down")).await
    }

    /// How many renders there were since it was last asked.
    pub(crate) fn renders(&self) -> u32 {
        self.renders.swap(0, Ordering::SeqCst)
    }

    /// Lets what goes on in the background come to its end.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Bodies that take this long to be read.
pub(crate) fn slow_bodies(takes: Duration) -> Bodies {
    let slow = ThrottleConfig { wait_get_per_call: takes, ..ThrottleConfig::default() };
    Bodies::over(Arc::new(ThrottledStore::new(InMemory::new(), slow)))
}

/// What a visitor sees: the state, and the body or why there is none.
pub(crate) fn seen(answer: Result<GetResult>) -> (State, String) {
    match answer.expect("no error") {
        GetResult::Page(served) => {
            (served.state, String::from_utf8(served.page.bytes().to_vec()).expect("a text"))
        }
        GetResult::Bypass(reason) => (State::Bypass, reason.as_str().to_owned()),
    }
}

/// What a visitor should see.
pub(crate) fn sees(state: State, body: &str) -> (State, String) {
    (state, body.to_owned())
}
