//! A table whose writes never end, as those of a disk that does not respond.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use facetheory::testing::{Call, ObservedTable, RuntimeClock, TableHooks};
use facetheory::{
    Bodies, InvalidationMode, Isr, Kind, PageKey, PageStore, Pages, Policy, Rendered, State, testing,
};
use tabletheory::{MemoryTable, Table};
use tokio::sync::Semaphore;

use crate::fixture::{INTERVAL, served, state_and_body};

/// No operation takes longer than this.
const LONGEST: Duration = Duration::from_secs(120);

/// A table whose writes wait until the test lets them continue.
#[derive(Debug)]
struct Blocked {
    table: MemoryTable,
    writes: Semaphore,
}

#[async_trait]
impl TableHooks for Blocked {
    fn table(&self) -> &dyn Table {
        &self.table
    }

    async fn before(&self, call: Call) {
        if let Call::Commit { .. } = call {
            drop(self.writes.acquire().await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_operation_waits_forever_for_a_table_that_does_not_complete_writes() {
    let clock = RuntimeClock::starting_at(testing::Site::START);
    let table = MemoryTable::with_clock(Arc::new(clock));
    let blocked = Blocked { table, writes: Semaphore::new(0) };
    let table = Arc::new(ObservedTable(blocked));
    let isr = Isr::new(Pages::new(PageStore::new(table.clone()), Bodies::memory()));
    let (page, policy) = (PageKey::new("/").expect("a page"), Policy::every(INTERVAL));
    let render = |body: &'static str| move |_| async move { Ok(Rendered::html(body)) };
    let request = tokio::time::timeout(LONGEST, isr.get(&page, &policy, render("one")));
    assert_eq!(state_and_body(request.await.expect("a response")).0, State::Bypass);
    let regenerated = tokio::time::timeout(LONGEST, isr.regenerate(&page, &policy, None, render("two")));
    let error = regenerated.await.expect("an outcome").expect_err("the table does not respond");
    assert_eq!(error.kind(), Kind::Unavailable, "nothing was published: {error}");
    let invalidated = tokio::time::timeout(LONGEST, isr.invalidate(&page, InvalidationMode::Hard));
    let error = invalidated.await.expect("an outcome").expect_err("the table does not respond");
    assert_eq!(error.kind(), Kind::Unknown, "it may be applied later: {error}");
    table.writes.add_permits(Semaphore::MAX_PERMITS);
    tokio::time::sleep(INTERVAL).await;
    let response = isr.get(&page, &policy, render("three")).await;
    assert_eq!(state_and_body(response), served(State::Miss, "three"));
    assert!(isr.shut_down(LONGEST).await);
}
