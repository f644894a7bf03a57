//! Visitors: engines of several processes over one table, visited at random, while operators do what they do.

mod calm;
mod habit;
mod process;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use facetheory::InvalidationMode;
use tabletheory::Faults;

pub(crate) use self::habit::Habits;

use self::habit::Order as Habit;
pub(crate) use self::process::name;
use self::process::{Luck, Process};
use crate::dice::Dice;
use crate::ledger::Order;
use crate::violation::Invariant;
use crate::world::World;

/// Streams of chance of those who are no process.
const VISITORS: u64 = 600;
const OPERATORS: u64 = 700;
const OUTAGES: u64 = 800;
/// Among how many of the newest versions a rollback chooses.
const VERSIONS: usize = 8;

type Life<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl World {
    /// Visitors come while everything goes wrong, and then while nothing does.
    pub(crate) async fn receive(&self) {
        let setups = self.habits.setups.iter().enumerate();
        let processes: Vec<Process<'_>> =
            setups.map(|(number, setup)| Process::new(self, number, setup)).collect();
        let mut lives: Vec<Life<'_>> = Vec::new();
        for number in 0..self.habits.visitors {
            lives.push(Box::pin(self.visitor(number, &processes)));
        }
        for number in 0..self.habits.operators {
            lives.push(Box::pin(self.operator(number, &processes)));
        }
        lives.push(Box::pin(self.outages()));
        lives.push(Box::pin(self.sweep()));
        lives.push(Box::pin(self.lose_bodies()));
        self.live_through(lives).await;
        if !self.ledger.is_broken() {
            self.quiet(&processes).await;
        }
    }

    async fn visitor(&self, number: u64, processes: &[Process<'_>]) {
        let (dice, habits) = (Dice::new(self.seed, VISITORS + number), &self.habits);
        let patience = habits.patience(&self.character);
        while self.is_stormy() {
            tokio::time::sleep(dice.up_to(habits.pause)).await;
            let (process, place) = (dice.pick(processes), dice.pick(&self.places));
            let luck = Luck {
                takes: dice.up_to(habits.render),
                fails: dice.chance(habits.fails),
                declines: dice.chance(habits.declines),
            };
            let policy = habits.policy(place.keep);
            let visit = process.visit(place, &policy, luck);
            if dice.chance(habits.leaves) {
                drop(tokio::time::timeout(dice.up_to(Duration::from_secs(5)), visit).await);
                continue;
            }
            let answered = tokio::time::timeout(patience, visit).await.is_ok();
            self.ledger.state().ensure(answered, Invariant::Answered, || {
                format!("a visitor of {place} in process {} waited for {patience:?}", process.number)
            });
        }
    }

    async fn operator(&self, number: u64, processes: &[Process<'_>]) {
        let (dice, habits) = (Dice::new(self.seed, OPERATORS + number), &self.habits);
        while self.is_stormy() {
            tokio::time::sleep(dice.up_to(habits.order_pause)).await;
            let (process, place) = (dice.pick(processes), dice.pick(&self.places));
            let directly = dice.chance(0.3);
            match habits.order(&dice) {
                Habit::Soft => process.order(place, Order::Page(InvalidationMode::Soft), directly).await,
                Habit::Hard => process.order(place, Order::Page(InvalidationMode::Hard), directly).await,
                Habit::Tag => {
                    let tag = dice.pick(&place.tags()).clone();
                    process.order(place, Order::Tag(tag), directly).await;
                }
                Habit::RollBack => {
                    let pin = dice.up_to(self.character.pin);
                    let pin = if dice.chance(0.3) { Duration::ZERO } else { pin };
                    let versions = process.isr.pages().store().versions(&place.key, VERSIONS).await;
                    let Some((sk, _)) = versions.ok().and_then(|mut all| {
                        let index = dice.below(all.len() as u64);
                        (!all.is_empty()).then(|| all.swap_remove(usize::try_from(index).expect("few")))
                    }) else {
                        continue;
                    };
                    drop(process.isr.roll_back(&place.key, &sk, pin).await);
                }
                Habit::Unpin => drop(process.isr.unpin(&place.key).await),
                Habit::Edit => self.ledger.edit(place.key.pk()),
            }
        }
    }

    /// From time to time the table is down for a while.
    async fn outages(&self) {
        let dice = Dice::new(self.seed, OUTAGES);
        let Some(longest) = self.habits.outage else { return };
        while self.is_stormy() {
            tokio::time::sleep(dice.up_to(2 * longest)).await;
            self.set_faults(Faults { fail: 1.0, ..self.character.faults });
            tokio::time::sleep(dice.up_to(longest)).await;
            self.set_faults(self.character.faults);
        }
    }
}
