//! A process that serves visitors: an engine with its own memory, its own clock, and its own beliefs.

use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::EpochTerms;
use facetheory::{GetResult, Isr, PageStore, Pages, Policy, Render, RenderContext, RenderError, Rendered};

use super::habit::{Setup, TABLE_TIMEOUT};
use crate::dice::Dice;
use crate::ledger::{Ledger, Order, Visit};
use crate::mutant::Mutant;
use crate::saboteur::MUTE;
use crate::seat::Seat;
use crate::world::{Place, World};

/// Clocks differ by up to two seconds, so what is rendered so soon after an invalidation counts as before it.
const MARGIN: Duration = Duration::from_secs(2);
/// Streams of chance of processes; workers and visitors have smaller numbers.
const PROCESSES: u64 = 500;

/// One process.
pub(super) struct Process<'w> {
    pub(super) number: usize,
    pub(super) setup: Setup,
    pub(super) isr: Isr,
    pub(super) seat: Arc<Seat>,
    world: &'w World,
    /// A second engine, which a mutant puts into the same process.
    twin: Option<Isr>,
}

/// How a render goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Luck {
    pub(super) takes: Duration,
    pub(super) fails: bool,
    pub(super) declines: bool,
}

impl<'w> Process<'w> {
    pub(super) fn new(world: &'w World, number: usize, setup: &Setup) -> Self {
        let stream = PROCESSES + u64::try_from(number).expect("few");
        let dice = Arc::new(Dice::new(world.seed, stream));
        let (seat, mut setup) = (world.seat(setup.skew), setup.clone());
        let engine = |memory| {
            let (mut epochs, mut lease) = (EpochTerms::default(), world.character.lease.clone());
            (epochs.max_age, epochs.skew) = (setup.epochs_believed, MARGIN);
            lease.owner = Some(name(number));
            let store = PageStore::new(seat.clone())
                .with_epoch_terms(epochs)
                .with_lease_terms(lease)
                .with_guards(world.character.guards)
                .with_random(dice.clone());
            let pages = Pages::new(store, world.bodies.clone()).with_random(dice.clone());
            let builder = Isr::builder(pages)
                .memory(memory)
                .metadata_max_age(setup.believed)
                .table_timeout(TABLE_TIMEOUT)
                .random(dice.clone());
            match setup.deployment {
                Some(id) => builder.deployment(id).build(),
                None => builder.build(),
            }
        };
        let isr = engine(if world.mutant == Some(Mutant::NoMemory) { 0 } else { setup.memory });
        let twin = (world.mutant == Some(Mutant::Twins)).then(|| engine(setup.memory));
        // A mutant tells the ledger that nothing is believed.
        if world.mutant == Some(Mutant::Credulous) {
            (setup.believed, setup.epochs_believed) = (Duration::ZERO, Duration::ZERO);
        }
        Process { number, setup, isr, seat, world, twin }
    }

    /// A visit, checked; none where it failed or was told to ask the origin.
    pub(super) async fn visit(&self, place: &Place, policy: &Policy, luck: Luck) -> Visited {
        let ledger = &self.world.ledger;
        let visit = self.arrive(place, policy);
        let engine = match &self.twin {
            Some(twin) if ledger.now().millis() % 2 == 0 => twin,
            _ => &self.isr,
        };
        let mut asked = *policy;
        if self.world.mutant == Some(Mutant::NoLimits) {
            (asked.stale_while_revalidate, asked.stale_if_error) = (None, None);
        }
        if self.world.mutant == Some(Mutant::MuteTable) {
            asked.wait = MUTE;
        }
        if self.world.mutant == Some(Mutant::StillBorn) {
            asked.revalidate = Duration::ZERO;
        }
        let render = renderer(ledger.clone(), self.number, place, luck);
        match engine.get(&place.key, &asked, render).await {
            Ok(GetResult::Page(served)) => {
                ledger.answered_with(&visit, place, &served);
                Visited::Page(served.state)
            }
            Ok(GetResult::Bypass(reason)) => {
                ledger.answered_without(&visit, place, reason.as_str());
                Visited::Bypass
            }
            Err(error) => {
                ledger.answered_without(&visit, place, &error.to_string());
                Visited::Failed
            }
        }
    }

    fn arrive(&self, place: &Place, policy: &Policy) -> Visit {
        let mut visit = self.world.ledger.arrives(self.number, place);
        visit.believed = self.setup.believed;
        visit.epochs_believed = self.setup.believed + self.setup.epochs_believed;
        visit.limit = self.world.habits.limit();
        visit.policy = *policy;
        visit
    }

    /// Makes a page or a tag stale through the engine, or past it.
    pub(super) async fn order(&self, place: &Place, order: Order, directly: bool) {
        let (ledger, store) = (&self.world.ledger, self.isr.pages().store());
        let directly_done = directly || self.world.mutant == Some(Mutant::NoDoubt);
        let given = ledger.orders(place, &self.world.places, &order, (!directly).then_some(self.number));
        let done = match &order {
            Order::Page(strength) if directly_done => store.invalidate(&place.key, *strength).await,
            Order::Page(strength) => self.isr.invalidate(&place.key, *strength).await,
            Order::Tag(tag) => {
                let tenant = Some(&place.tenant);
                let done = if directly_done {
                    store.invalidate_tag(tag, tenant).await
                } else {
                    self.isr.invalidate_tag(tag, tenant).await
                };
                done.map(|()| facetheory::Invalidated::Stale)
            }
        };
        if !matches!(done, Err(_) | Ok(facetheory::Invalidated::Pinned)) {
            ledger.carried_out(given);
        }
    }
}

/// What a visitor was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visited {
    Page(facetheory::State),
    Bypass,
    Failed,
}

/// The name of a process in the leases that it takes.
pub(crate) fn name(number: usize) -> String {
    format!("process {number}")
}

/// A renderer: what it shows is what was true when it began.
fn renderer(
    ledger: Arc<Ledger>,
    process: usize,
    place: &Place,
    luck: Luck,
) -> impl FnOnce(RenderContext) -> futures_util::future::BoxFuture<'static, Result<Render, RenderError>>
+ Send
+ 'static {
    let (signature, pk) = (place.signature(), place.key.pk().to_owned());
    let tags: Vec<String> = place.tags().iter().map(|tag| tag.as_str().to_owned()).collect();
    move |_| {
        Box::pin(async move {
            let (input, _rendering) = Ledger::render_begins(&ledger, process, &pk);
            tokio::time::sleep(luck.takes).await;
            if luck.fails {
                return Err("the origin is down".into());
            }
            if luck.declines {
                return Ok(Render::Invalidate);
            }
            let mut rendered = Rendered::html(format!("{signature}input {input}"));
            rendered.content.tags = tags;
            Ok(rendered.into())
        })
    }
}
