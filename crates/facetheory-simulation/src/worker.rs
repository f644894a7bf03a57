//! A worker: production code with its own clock and its own luck, doing what workers and operators do.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::{Begin, Content, EpochTerms, Freshness, Generation, Meta, Published};
use facetheory::{
    History, Invalidated, InvalidationMode, Kind, Outcome, PageStore, Pages, Policy, RegenerateReason,
    Rendered, Retention, Tag,
};

use crate::character::Deed;
use crate::dice::Dice;
use crate::mutant::Mutant;
use crate::seat::Seat;
use crate::tally::Count;
use crate::world::{Place, World};

/// Clocks differ by up to two seconds, so what is rendered so soon after an invalidation counts as before it.
const MARGIN: Duration = Duration::from_secs(2);
/// A worker that dies hears fewer answers than this before.
const MOST_ANSWERS: u64 = 6;
/// How many different requests a page gets.
pub(crate) const REQUESTS: u64 = 4;
/// Among how many of the newest versions a rollback chooses.
const VERSIONS: usize = 8;

pub(crate) struct Worker<'w> {
    pub(crate) world: &'w World,
    pub(crate) dice: Arc<Dice>,
    number: u64,
    seat: Arc<Seat>,
    deeds: Cell<u64>,
}

/// The tools of one deed. Its name is in the leases that it takes, so that the ledger knows whose they are.
pub(crate) struct Tools {
    pub(crate) name: String,
    pub(crate) pages: Pages,
}

impl<'w> Worker<'w> {
    pub(crate) fn new(world: &'w World, number: u64, skew: i64) -> Self {
        let dice = Arc::new(Dice::new(world.seed, number));
        Worker { world, dice, number, seat: world.seat(skew), deeds: Cell::new(0) }
    }

    /// Does one thing after the other until the storm is over, and dies in the middle of some.
    pub(crate) async fn live(&self) {
        let character = &self.world.character;
        while self.world.is_stormy() {
            tokio::time::sleep(self.dice.up_to(character.pause)).await;
            let (place, deed) = (self.dice.pick(&self.world.places), character.deed(&self.dice));
            let crashed = if !self.dice.chance(character.crash) {
                self.act(place, deed).await;
                false
            } else if self.dice.chance(0.5) {
                self.seat.die_after(self.dice.below(MOST_ANSWERS), self.act(place, deed)).await
            } else {
                let life = self.dice.up_to(character.render);
                tokio::time::timeout(life, self.act(place, deed)).await.is_err()
            };
            if crashed {
                let mut ledger = self.world.ledger.state();
                ledger.count(Count::Crashed);
                ledger.note(format!("worker {} crashed in {deed:?} of {place}", self.number));
            }
        }
    }

    async fn act(&self, place: &Place, deed: Deed) {
        match deed {
            Deed::Regenerate => drop(self.regenerate(place, None, self.keep(place)).await),
            Deed::Serve => self.serve(place).await,
            Deed::Request => self.request(place).await,
            Deed::InvalidateSoft => self.invalidate(place, InvalidationMode::Soft).await,
            Deed::InvalidateHard => self.invalidate(place, InvalidationMode::Hard).await,
            Deed::InvalidateTag => self.invalidate_tag(place).await,
            Deed::RollBack => self.roll_back(place).await,
            Deed::Unpin => drop(self.tools().pages.store().unpin(&place.key).await),
            Deed::Collect => self.collect(place).await,
        }
    }

    pub(crate) fn tools(&self) -> Tools {
        let (world, deed) = (self.world, self.deeds.get() + 1);
        self.deeds.set(deed);
        let name = format!("worker {} deed {deed}", self.number);
        let character = &world.character;
        let mut request = character.request.clone();
        if world.mutant == Some(Mutant::EndlessClaim) {
            request.in_progress = Duration::from_secs(86_400);
        }
        // What is believed for a second is stale for a second; the simulation asks for more.
        let mut always_read = EpochTerms::default();
        (always_read.max_age, always_read.skew) = (Duration::ZERO, MARGIN);
        let mut lease = character.lease.clone();
        lease.owner = Some(name.clone());
        let store = PageStore::new(self.seat.clone())
            .with_epoch_terms(always_read)
            .with_lease_terms(lease)
            .with_request_terms(request)
            .with_guards(character.guards)
            .with_random(self.dice.clone());
        Tools { name, pages: Pages::new(store, world.bodies.clone()).with_random(self.dice.clone()) }
    }

    fn keep(&self, place: &Place) -> History {
        if self.world.character.mixed {
            *self.dice.pick(&[History::Latest, History::Versions])
        } else {
            place.keep
        }
    }

    /// One of few texts, so that some renders come out the same.
    fn body(&self, place: &Place) -> String {
        format!("{}text {}", place.signature(), self.dice.below(self.world.character.texts))
    }

    /// Renews a page, or heals one whose body is broken.
    pub(crate) async fn regenerate(
        &self,
        place: &Place,
        broken: Option<&str>,
        keep: History,
    ) -> facetheory::Result<Outcome> {
        let (ledger, character, tools) = (&self.world.ledger, &self.world.character, self.tools());
        let policy = Policy::every(character.revalidate).with_history(keep);
        let (takes, fails) =
            (self.dice.up_to(character.render), self.world.is_stormy() && self.dice.chance(0.1));
        let render = |_| {
            ledger.render_starts(&tools.name);
            async move {
                tokio::time::sleep(takes).await;
                assert!(self.world.mutant != Some(Mutant::Panics), "a mutant panics");
                if fails {
                    return Err("the origin is down".into());
                }
                let mut rendered = Rendered::html(self.body(place));
                rendered.content.tags = place.tags().iter().map(|tag| tag.as_str().to_owned()).collect();
                Ok(rendered)
            }
        };
        let reason =
            broken.map_or(RegenerateReason::Stale, |s3_key| RegenerateReason::BodyMissing(s3_key.to_owned()));
        let outcome = tools.pages.regenerate_for(&place.key, &policy, &reason, render).await;
        match &outcome {
            Ok(Outcome::Published(_) | Outcome::Unchanged(_)) => ledger.told_published(&tools.name),
            // What became of these is not known, and they say so.
            Ok(Outcome::Superseded) => {}
            Err(error) if error.kind() == Kind::Unknown => {}
            Ok(_) | Err(_) => {
                ledger.told_denied(&tools.name);
            }
        }
        outcome
    }

    /// Looks a page up as a server does: rows, epochs, body; renews what is stale and heals what is broken.
    pub(crate) async fn serve(&self, place: &Place) {
        let Some(meta) = self.look(place).await else { return };
        let Some(meta) = meta else {
            drop(self.regenerate(place, None, self.keep(place)).await);
            return;
        };
        let digest = meta.generation.content.digest.as_deref();
        match self.world.bodies.get(&meta.generation.s3_key, digest).await {
            Err(_) => {}
            Ok(Some(body)) => self.world.ledger.read_body(place, &meta, &body),
            Ok(None) => {
                if self.world.ledger.read_no_body(place, &meta) && self.world.mutant != Some(Mutant::Unhealed)
                {
                    self.heal(place, &meta).await;
                }
            }
        }
        if meta.freshness(self.tools().pages.store().now()) != Freshness::Fresh {
            drop(self.regenerate(place, None, self.keep(place)).await);
        }
    }

    /// `META`, with its freshness checked; none where the table does not answer.
    pub(crate) async fn look(&self, place: &Place) -> Option<Option<Meta>> {
        let (tools, tags) = (self.tools(), place.tags());
        let fences = self.world.ledger.reading(place, &tags);
        let store = tools.pages.store();
        let meta = store.lookup(&place.key).await.ok()?.meta;
        let freshness = match &meta {
            None => None,
            Some(meta) => {
                let tags: Vec<Tag> = meta.generation.content.tags.iter().flat_map(Tag::new).collect();
                let epochs = store.epochs(&tags, Some(&place.tenant)).await.ok()?;
                let margin =
                    if self.world.mutant == Some(Mutant::NoMargin) { Duration::ZERO } else { MARGIN };
                Some(meta.freshness_with(&epochs, store.now(), margin))
            }
        };
        self.world.ledger.read_row(place, &fences, meta.as_ref(), freshness);
        Some(meta)
    }

    pub(crate) async fn heal(&self, place: &Place, meta: &Meta) {
        let healed = self.regenerate(place, Some(&meta.generation.s3_key), self.keep(place)).await;
        if let Ok(Outcome::Published(_)) = healed {
            self.world.ledger.state().count(Count::Healed);
        }
    }

    /// Delivers one of a few requests, sometimes with another hash, and carries it out where that is up to it.
    async fn request(&self, place: &Place) {
        let key = format!("order-{}", self.dice.below(REQUESTS));
        let hash = if self.dice.chance(0.2) { "another hash" } else { "hash" };
        drop(self.deliver(place, &key, hash).await);
    }

    /// Delivers a request, and carries it out where that is up to it.
    pub(crate) async fn deliver(&self, place: &Place, key: &str, hash: &str) -> facetheory::Result<Begin> {
        let (ledger, character, tools) = (&self.world.ledger, &self.world.character, self.tools());
        let store = tools.pages.store();
        let sent = if self.world.mutant == Some(Mutant::HashIgnored) { "hash" } else { hash };
        let delivered = ledger.delivering(&place.key, key);
        let begin = store.begin_request(&place.key, key, sent).await?;
        ledger.answered(&delivered, hash, &begin);
        let Begin::Started { lease, claim } = &begin else { return Ok(begin) };
        ledger.render_starts(&tools.name);
        let started = store.now();
        let seen = store.lookup(&place.key).await?.meta;
        if self.world.is_stormy() {
            tokio::time::sleep(self.dice.up_to(character.render)).await;
            if self.dice.chance(0.25) {
                store.fail_request(lease, claim).await?;
                ledger.told_denied(&tools.name);
                return Ok(begin);
            }
        }
        let revalidate = i64::try_from(character.revalidate.as_secs()).expect("short");
        let mut content = Content::default();
        content.tags = place.tags().iter().map(|tag| tag.as_str().to_owned()).collect();
        let body = self.body(place);
        let stored = self.world.bodies.put(&place.key, started, body.into(), &content, &*self.dice).await?;
        content.digest = Some(stored.digest);
        let mut rendered = Generation::new(stored.s3_key, started.seconds(), revalidate);
        rendered.content = content;
        let published = store.commit_request(lease, claim, &rendered, seen.as_ref(), self.keep(place)).await;
        match &published {
            Ok(Published::Done) => ledger.told_published(&tools.name),
            Ok(Published::Superseded) => {}
            Err(error) if error.kind() == Kind::Unknown => {}
            Ok(Published::Lost) | Err(_) => ledger.told_denied(&tools.name),
        }
        published.map(|_| begin)
    }

    async fn invalidate(&self, place: &Place, strength: InvalidationMode) {
        let asked = self.world.ledger.now();
        let done = self.tools().pages.store().invalidate(&place.key, strength).await;
        if let Ok(Invalidated::Stale | Invalidated::Absent) = done {
            self.world.ledger.told_invalidated(&place.key, strength, asked);
        }
    }

    async fn invalidate_tag(&self, place: &Place) {
        let tags = place.tags();
        let (asked, tag) = (self.world.ledger.now(), self.dice.pick(&tags));
        if self.tools().pages.store().invalidate_tag(tag, Some(&place.tenant)).await.is_ok() {
            self.world.ledger.told_tag_invalidated(place, tag, asked);
        }
    }

    async fn roll_back(&self, place: &Place) {
        let tools = self.tools();
        let Ok(versions) = tools.pages.store().versions(&place.key, VERSIONS).await else { return };
        if versions.is_empty() {
            return;
        }
        // The oldest ones are those that a collector is after.
        let (sk, _) =
            if self.dice.chance(0.5) { &versions[versions.len() - 1] } else { self.dice.pick(&versions) };
        let pin =
            if self.dice.chance(0.3) { Duration::ZERO } else { self.dice.up_to(self.world.character.pin) };
        drop(tools.pages.store().roll_back(&place.key, sk, pin).await);
    }

    async fn collect(&self, place: &Place) {
        let (world, tools) = (self.world, self.tools());
        let store = tools.pages.store();
        let versions = world.character.retention;
        let versions =
            if world.mutant == Some(Mutant::ShortMemory) { versions.saturating_sub(1) } else { versions };
        let collected = store.gc_versions(&place.key, Retention::newest(versions)).await;
        let mut bodies = collected.unwrap_or_default();
        if world.mutant == Some(Mutant::EagerCollector) {
            let served = store.lookup(&place.key).await.ok().and_then(|view| view.meta);
            bodies.extend(served.map(|meta| meta.generation.s3_key));
        }
        for s3_key in bodies {
            // A body that could not be deleted is left to the collection of orphans.
            drop(world.bodies.delete(&s3_key).await);
        }
    }
}
