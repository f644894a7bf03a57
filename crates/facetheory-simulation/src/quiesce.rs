//! The end of a worker history: without faults, production code settles every request and page within its bounds.

use std::time::Duration;

use facetheory::Outcome;
use facetheory::protocol::{Begin, Freshness};

use crate::mutant::Mutant;
use crate::violation::Invariant;
use crate::worker::{REQUESTS, Worker};
use crate::world::SimPage;

/// This many calls let every delayed commit arrive.
const ARRIVALS: u32 = 200;
/// Longer than any page is fresh.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

const SECOND: Duration = Duration::from_secs(1);
/// The reason why calls succeed in this phase.
const NO_FAULTS: &str = "no faults are injected";

impl Worker<'_> {
    /// Waits until every lease, claim and pin has ended, then checks that every page can be regenerated.
    pub(crate) async fn quiesce(&self) {
        let bound = self.world.scenario.quiesce_bound() + MAX_INTERVAL;
        tokio::time::sleep(bound).await;
        for _ in 0..ARRIVALS {
            drop(self.operation().pages.store().lookup(&self.world.pages[0].key).await);
        }
        // A commit that arrived this late may have taken a lease, a claim or a pin once more.
        tokio::time::sleep(bound).await;
        for page in &self.world.pages {
            self.settle_requests(page).await;
            self.regenerate_page(page).await;
            if self.world.checker.is_broken() {
                return;
            }
        }
        self.world.checker.check_all_bodies();
    }

    /// No lock or claim has outlived its bound, and every request has one result.
    async fn settle_requests(&self, page: &SimPage) {
        let operation = self.operation();
        let now = operation.pages.store().now();
        let view = operation.pages.store().lookup(&page.key).await.expect(NO_FAULTS);
        self.require(page, !view.lock.is_some_and(|lock| lock.is_held(now)), || "its lock is held".into());
        for (key, request) in self.world.checker.open_requests(&page.key) {
            let open = request.in_progress_until.is_some_and(|until| until > now.seconds());
            self.require(page, !open, || format!("{} is in progress", key.sk));
        }
        for number in 0..REQUESTS {
            let key = format!("order-{number}");
            for hash in ["hash", "another hash", "hash"] {
                let begin = self.deliver_request(page, &key, hash).await;
                let settled = begin
                    .as_ref()
                    .is_ok_and(|begin| !matches!(begin, Begin::InProgress { .. } | Begin::Held { .. }));
                self.require(page, settled, || format!("the delivery of {key} returned {begin:?}"));
            }
        }
    }

    /// The page can be regenerated, and is fresh and readable afterwards.
    async fn regenerate_page(&self, page: &SimPage) {
        // The page may still be fresh from a request.
        tokio::time::sleep(self.world.scenario.quiesce_bound() + MAX_INTERVAL).await;
        if let Some(Some(meta)) = self.lookup(page).await {
            let digest = meta.generation.content.digest.as_deref();
            let body = self.world.bodies.get(&meta.generation.s3_key, digest).await.expect(NO_FAULTS);
            if body.is_none()
                && self.world.checker.body_missing(page, &meta)
                && self.world.mutant != Some(Mutant::NoRepair)
            {
                self.repair(page, &meta).await;
                tokio::time::sleep(MAX_INTERVAL).await;
            }
        }
        let outcome = self.regenerate(page, None, page.history).await;
        let regenerated = matches!(outcome, Ok(Outcome::Published(_) | Outcome::Unchanged(_)));
        self.require(page, regenerated, || format!("its regeneration returned {outcome:?}"));
        let operation = self.operation();
        let store = operation.pages.store();
        let view = store.lookup(&page.key).await.expect(NO_FAULTS);
        self.require(page, view.lock.is_none(), || "its regeneration left a lock".into());
        let fresh = view.meta.is_some_and(|meta| meta.freshness(store.now()) == Freshness::Fresh);
        // A render may take longer than its result is fresh.
        let may_be_fresh = self.world.scenario.pages.render < self.world.scenario.pages.revalidate;
        self.require(page, fresh || !may_be_fresh, || "it is not fresh after its regeneration".into());
        self.lose_and_repair_body(page).await;
    }

    /// A page whose body is damaged gets a new one, even while it is fresh.
    async fn lose_and_repair_body(&self, page: &SimPage) {
        let Some(Some(meta)) = self.lookup(page).await else { return };
        self.world.damage_body(&meta.generation.s3_key).await;
        let operation = self.operation();
        let read = operation.pages.read(&page.key).await.expect(NO_FAULTS);
        self.require(page, read.is_none(), || "it is served with a damaged body".into());
        if self.world.mutant == Some(Mutant::NoRepair) {
            return;
        }
        // With the guard `newer`, a second publish within the same second is refused.
        tokio::time::sleep(SECOND).await;
        self.repair(page, &meta).await;
        let read = operation.pages.read(&page.key).await.expect(NO_FAULTS);
        self.require(page, read.is_some(), || "it cannot be read after its body was replaced".into());
        if let Some((meta, body)) = read {
            self.world.checker.body_read(page, &meta, &body);
        }
    }

    fn require(&self, page: &SimPage, holds: bool, what: impl FnOnce() -> String) {
        let mut checker = self.world.checker.state();
        checker.ensure(holds, Invariant::Regenerated, || format!("{page}: {}", what()));
    }
}
