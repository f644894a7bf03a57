//! After the storm: everything that was left behind is put in order by production code, within its bounds.

use std::time::Duration;

use facetheory::Outcome;
use facetheory::protocol::{Begin, Freshness};

use crate::mutant::Mutant;
use crate::violation::Invariant;
use crate::worker::{REQUESTS, Worker};
use crate::world::Place;

/// So many calls let every commit arrive that is still on its way.
const ARRIVALS: u32 = 200;
/// A page whose last render is fresh for so long, or shorter, is stale when this has passed.
const INTERVALS: Duration = Duration::from_secs(60);

const SECOND: Duration = Duration::from_secs(1);

impl Worker<'_> {
    /// Waits until nothing of the storm can hold anything up, and checks that nothing does.
    pub(crate) async fn calm_down(&self) {
        let bound = self.world.character.bound() + INTERVALS;
        tokio::time::sleep(bound).await;
        for _ in 0..ARRIVALS {
            drop(self.tools().pages.store().lookup(&self.world.places[0].key).await);
        }
        // What arrived so late may have taken a lease, a claim or a pin, but the last one.
        tokio::time::sleep(bound).await;
        for place in &self.world.places {
            self.settle_requests(place).await;
            self.renew(place).await;
            if self.world.ledger.is_broken() {
                return;
            }
        }
        self.world.ledger.check_all_bodies();
    }

    /// No lock and no claim has outlived its bound, and every request has one result.
    async fn settle_requests(&self, place: &Place) {
        let tools = self.tools();
        let now = tools.pages.store().now();
        let view = tools.pages.store().lookup(&place.key).await.expect("a calm table answers");
        self.require(place, !view.lock.is_some_and(|lock| lock.is_held(now)), || "its lock is held".into());
        for (key, request) in self.world.ledger.open_requests(&place.key) {
            let open = request.in_progress_until.is_some_and(|until| until > now.seconds());
            self.require(place, !open, || format!("{} is in progress", key.sk));
        }
        for number in 0..REQUESTS {
            let key = format!("order-{number}");
            for hash in ["hash", "another hash", "hash"] {
                let begin = self.deliver(place, &key, hash).await;
                let settled = begin
                    .as_ref()
                    .is_ok_and(|begin| !matches!(begin, Begin::InProgress { .. } | Begin::Held { .. }));
                self.require(place, settled, || format!("{key} was answered with {begin:?}"));
            }
        }
    }

    /// The page is healed and renewed, and then it is fresh and whole.
    async fn renew(&self, place: &Place) {
        // What a request has just published is fresh for a while.
        tokio::time::sleep(self.world.character.bound() + INTERVALS).await;
        let keep = place.keep;
        if let Some(Some(meta)) = self.look(place).await {
            let digest = meta.generation.content.digest.as_deref();
            let body =
                self.world.bodies.get(&meta.generation.s3_key, digest).await.expect("calm bodies answer");
            if body.is_none()
                && self.world.ledger.read_no_body(place, &meta)
                && self.world.mutant != Some(Mutant::Unhealed)
            {
                self.heal(place, &meta).await;
                tokio::time::sleep(INTERVALS).await;
            }
        }
        let outcome = self.regenerate(place, None, keep).await;
        let renewed = matches!(outcome, Ok(Outcome::Published(_) | Outcome::Unchanged(_)));
        self.require(place, renewed, || format!("its renewal ended as {outcome:?}"));
        let tools = self.tools();
        let store = tools.pages.store();
        let view = store.lookup(&place.key).await.expect("a calm table answers");
        self.require(place, view.lock.is_none(), || "its renewal left a lock".into());
        let fresh = view.meta.is_some_and(|meta| meta.freshness(store.now()) == Freshness::Fresh);
        // A render may take longer than what it renders is fresh for.
        let may_be_fresh = self.world.character.render < self.world.character.revalidate;
        self.require(place, fresh || !may_be_fresh, || "it is not fresh after its renewal".into());
        self.lose_and_heal(place).await;
    }

    /// A page that has just been renewed loses its body, and gets another one although it may be fresh.
    async fn lose_and_heal(&self, place: &Place) {
        let Some(Some(meta)) = self.look(place).await else { return };
        self.world.break_body(&meta.generation.s3_key).await;
        let tools = self.tools();
        let read = tools.pages.read(&place.key).await.expect("calm stores answer");
        self.require(place, read.is_none(), || "it is served with a body that is broken".into());
        if self.world.mutant == Some(Mutant::Unhealed) {
            return;
        }
        // Where times must rise, a second render of the same second is refused.
        tokio::time::sleep(SECOND).await;
        self.heal(place, &meta).await;
        let read = tools.pages.read(&place.key).await.expect("calm stores answer");
        self.require(place, read.is_some(), || "it cannot be read after it was healed".into());
        if let Some((meta, body)) = read {
            self.world.ledger.read_body(place, &meta, &body);
        }
    }

    fn require(&self, place: &Place, holds: bool, what: impl FnOnce() -> String) {
        let mut ledger = self.world.ledger.state();
        ledger.ensure(holds, Invariant::Renewed, || format!("{place}: {}", what()));
    }
}
