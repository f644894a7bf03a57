//! When nobody is killed any more, every lease and every request can be taken over, and every page be renewed.
//!
//! What the killed had sent last may arrive meanwhile, and may take a lease or make a publish vain. That is tried again,
//! but only as often as so much can be on its way.

use std::collections::BTreeSet;
use std::time::Duration;

use facetheory::protocol::{Acquire, Begin, Generation, Published};
use facetheory::{Bodies, History, Pages, Rendered};
use libtest_mimic::Failed;
use tabletheory::{Clock as _, SystemClock, SystemRandom};

use crate::history::Event;
use crate::work::{PAGES, beginning, is_requested, page};

/// How often one page or one request is tried, when nobody is left to hold it anew.
const PATIENCE: u32 = 20;
/// More requests than the killed can have on their way when they end.
const MOST_LATE: usize = 64;

pub(crate) async fn comes(pages: &Pages, bodies: &Bodies, history: &[Event]) -> Result<(), Failed> {
    let mut calm = Calm { pages, bodies, most_late: MOST_LATE };
    for number in 0..PAGES {
        calm.renew(number).await?;
    }
    let requested: BTreeSet<(u64, &str)> = history
        .iter()
        .filter(|event| event.what == "requesting" && is_requested(event.page))
        .map(|event| (event.page, event.more[0].as_str()))
        .collect();
    for (number, key) in requested {
        calm.finish(number, key).await?;
    }
    // By now everything has arrived, and nothing is in vain any more.
    calm.most_late = 0;
    for number in 0..PAGES {
        calm.renew(number).await?;
    }
    Ok(())
}

struct Calm<'a> {
    pages: &'a Pages,
    bodies: &'a Bodies,
    /// How often something may yet be in vain.
    most_late: usize,
}

impl Calm<'_> {
    /// Renews a page, which everyone is served then and nobody holds.
    async fn renew(&mut self, number: u64) -> Result<(), Failed> {
        let (store, page) = (self.pages.store(), page(number));
        for _ in 0..PATIENCE {
            let lease = match store.try_acquire(&page).await? {
                Acquire::Granted(lease) => lease,
                Acquire::Held { until } => {
                    wait_until(until).await;
                    continue;
                }
            };
            let generation = self.stored(number).await?;
            let seen = store.lookup(&page).await?.meta;
            let done = store.commit_generation(&lease, &generation, seen.as_ref(), History::Versions).await?;
            let view = store.lookup(&page).await?;
            if view.lock.as_ref().is_some_and(|lock| lock.lease_token == lease.token()) {
                return Err(format!("page {number}: it is {done:?}, and its lease is held still").into());
            }
            let is_renewed = view.meta.is_some_and(|meta| meta.mark.is_some());
            let is_read = self.pages.read(&page).await?.is_some();
            if done == Published::Done && view.lock.is_none() && is_renewed && is_read {
                return Ok(());
            }
            self.was_in_vain(&format!("page {number}: nobody else is there, and it is {done:?}"))?;
        }
        Err(format!("page {number} could not be renewed").into())
    }

    /// Asks for a request until its result is there.
    async fn finish(&mut self, number: u64, key: &str) -> Result<(), Failed> {
        let (store, page) = (self.pages.store(), page(number));
        for _ in 0..PATIENCE {
            match store.begin_request(&page, key, "hash").await? {
                Begin::Replayed { .. } => return Ok(()),
                Begin::Started { lease, claim } => {
                    let generation = self.stored(number).await?;
                    let seen = store.lookup(&page).await?.meta;
                    let done =
                        store.commit_request(&lease, &claim, &generation, seen.as_ref(), History::Versions);
                    let done = done.await?;
                    if done != Published::Done {
                        store.fail_request(&lease, &claim).await?;
                        self.was_in_vain(&format!("page {number}: the request {key} is {done:?}"))?;
                    }
                }
                Begin::InProgress { until: Some(until) } | Begin::Held { until } => wait_until(until).await,
                other => return Err(format!("page {number}: the request {key} is {other:?}").into()),
            }
        }
        Err(format!("page {number}: the request {key} is never done").into())
    }

    /// Something of the killed has come in between, unless that happens too often.
    fn was_in_vain(&mut self, what: &str) -> Result<(), Failed> {
        self.most_late = self.most_late.checked_sub(1).ok_or(format!("{what}, and too much was in vain"))?;
        Ok(())
    }

    async fn stored(&self, number: u64) -> Result<Generation, Failed> {
        let content = Rendered::html("").content;
        let (now, text) = (SystemClock.now(), format!("{}calm", beginning(number)));
        let stored = self.bodies.put(&page(number), now, text.into(), &content, &SystemRandom).await?;
        let mut generation = Generation::new(stored.s3_key, now.seconds(), 0);
        generation.content = content;
        generation.content.digest = Some(stored.digest);
        Ok(generation)
    }
}

/// Waits for a time that a row tells, at which something is no longer held.
async fn wait_until(seconds: i64) {
    let left = seconds.saturating_mul(1000).saturating_sub(SystemClock.now().millis());
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0))).await;
}
