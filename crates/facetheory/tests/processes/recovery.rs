//! Once no process is killed any more, every lease and every request can be taken over, and every page regenerated.
//!
//! The last writes of killed processes may still arrive, take a lease or supersede a publish. Then the step is
//! repeated, but at most as often as such writes can be in flight.

use std::collections::BTreeSet;
use std::time::Duration;

use facetheory::protocol::{Acquire, Begin, Generation, Published};
use facetheory::{Bodies, History, Pages, Rendered};
use libtest_mimic::Failed;
use tabletheory::{Clock as _, SystemClock, SystemRandom};

use crate::history::Event;
use crate::work::{PAGES, is_requested, page, signature};

/// How often a step is repeated for one page or one request.
const MAX_ATTEMPTS: u32 = 20;
/// More writes than the killed processes can have in flight.
const MAX_LATE_WRITES: usize = 64;

pub(crate) async fn check(pages: &Pages, bodies: &Bodies, history: &[Event]) -> Result<(), Failed> {
    let mut recovery = Recovery { pages, bodies, late_writes_left: MAX_LATE_WRITES };
    for number in 0..PAGES {
        recovery.regenerate(number).await?;
    }
    let requested: BTreeSet<(u64, &str)> = history
        .iter()
        .filter(|event| event.what == "requesting" && is_requested(event.page))
        .map(|event| (event.page, event.more[0].as_str()))
        .collect();
    for (number, key) in requested {
        recovery.finish_request(number, key).await?;
    }
    // All late writes have arrived by now.
    recovery.late_writes_left = 0;
    for number in 0..PAGES {
        recovery.regenerate(number).await?;
    }
    Ok(())
}

struct Recovery<'a> {
    pages: &'a Pages,
    bodies: &'a Bodies,
    /// How many more steps a late write may spoil.
    late_writes_left: usize,
}

impl Recovery<'_> {
    /// Regenerates a page; afterwards it is readable and not locked.
    async fn regenerate(&mut self, number: u64) -> Result<(), Failed> {
        let (store, page) = (self.pages.store(), page(number));
        for _ in 0..MAX_ATTEMPTS {
            let lease = match store.try_acquire(&page).await? {
                Acquire::Granted(lease) => lease,
                Acquire::Held { until } => {
                    wait_until(until).await;
                    continue;
                }
            };
            let generation = self.store_body(number).await?;
            let seen = store.lookup(&page).await?.meta;
            let done = store.publish(&lease, &generation, seen.as_ref(), History::Versions, None).await?;
            let view = store.lookup(&page).await?;
            if view.lock.as_ref().is_some_and(|lock| lock.lease_token == lease.token()) {
                return Err(format!("page {number}: the publish is {done:?} and left its lease").into());
            }
            let published = view.meta.is_some_and(|meta| meta.mark.is_some());
            let readable = self.pages.read(&page).await?.is_some();
            if done == Published::Done && view.lock.is_none() && published && readable {
                return Ok(());
            }
            self.spoiled(&format!("page {number}: the publish is {done:?} without a competitor"))?;
        }
        Err(format!("page {number} could not be regenerated").into())
    }

    /// Delivers a request until it returns a recorded result.
    async fn finish_request(&mut self, number: u64, key: &str) -> Result<(), Failed> {
        let (store, page) = (self.pages.store(), page(number));
        for _ in 0..MAX_ATTEMPTS {
            match store.begin_request(&page, key, "hash").await? {
                Begin::Replayed { .. } => return Ok(()),
                Begin::Started { lease, claim } => {
                    let generation = self.store_body(number).await?;
                    let seen = store.lookup(&page).await?.meta;
                    let done =
                        store.publish(&lease, &generation, seen.as_ref(), History::Versions, Some(&claim));
                    let done = done.await?;
                    if done != Published::Done {
                        store.fail_request(&lease, &claim).await?;
                        self.spoiled(&format!("page {number}: the publish of request {key} is {done:?}"))?;
                    }
                }
                Begin::InProgress { until: Some(until) } | Begin::Held { until } => wait_until(until).await,
                other => {
                    return Err(
                        format!("page {number}: the delivery of request {key} returned {other:?}").into()
                    );
                }
            }
        }
        Err(format!("page {number}: the request {key} did not complete").into())
    }

    /// A late write of a killed process has interfered with this step.
    fn spoiled(&mut self, what: &str) -> Result<(), Failed> {
        let left = self.late_writes_left.checked_sub(1);
        self.late_writes_left = left.ok_or(format!("{what}, more often than late writes explain"))?;
        Ok(())
    }

    async fn store_body(&self, number: u64) -> Result<Generation, Failed> {
        let content = Rendered::html("").content;
        let (now, text) = (SystemClock.now(), format!("{}recovered", signature(number)));
        let stored = self.bodies.put(&page(number), now, text.into(), &content, &SystemRandom).await?;
        let mut generation = Generation::new(stored.s3_key, now.seconds(), 0);
        generation.content = content;
        generation.content.digest = Some(stored.digest);
        Ok(generation)
    }
}

/// Waits until this time, in epoch seconds.
async fn wait_until(seconds: i64) {
    let left = seconds.saturating_mul(1000).saturating_sub(SystemClock.now().millis());
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0))).await;
}
