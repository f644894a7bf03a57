//! The actions: all steps that are possible in a state.

use std::fmt;

use super::budget::Event;
use super::invariant::{self, Violation};
use super::network::Response;
use super::operator::COLLECTOR;
use super::protocol::{self, CLOCK_STEP, InvalidationKind, Request};
use super::scope::Recipe;
use super::state::{
    BODIES, Clock, OLD, Objects, Operator, Past, Phase, SERVED, Set, State, UNDER_WAY, Writer,
};
use super::table::{LOCK, META, Rows, TAG, World, version_place};
use crate::protocol::row::{Meta, Version};

/// How a request is delivered whose sender waits for the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Delivered,
    /// The sender gets no response, and the request may arrive later.
    Delayed,
    /// The request arrives, and may arrive again.
    Duplicated,
    Rejected,
}

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    SecondPasses,
    Begin(usize),
    ReadLock(usize),
    Writer(usize, Delivery, Request),
    LookupAgain(usize),
    Refresh(usize),
    Finish(usize),
    ReadBack(usize),
    Crash(usize),
    LateDelivery(Request),
    LockExpires,
    RowExpires(usize),
    ClockStep(i8),
    RowIsDamaged(usize),
    ReplaceTag(i8),
    Invalidate(InvalidationKind),
    InvalidateTag(InvalidationKind),
    PutTag,
    RollBack(u8),
    Swap(u8),
    Collect(u8),
    Evict,
    Operator(usize, Delivery, Request),
    DeleteBody,
    CollectOrphan(u8),
    ReadMeta,
    CheckReplaced(u8),
    DeleteReplaced(u8),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::SecondPasses => write!(f, "a second passes"),
            Action::Begin(writer) => write!(f, "writer {writer} finds the page stale and requests the lease"),
            Action::ReadLock(writer) => write!(f, "writer {writer} reads LOCK to find out about its put"),
            Action::Writer(writer, delivery, request) => {
                write!(f, "writer {writer}: {request:?} {delivery:?}")
            }
            Action::LookupAgain(writer) => write!(f, "writer {writer} reads META again"),
            Action::Refresh(writer) => write!(f, "writer {writer} refreshes the lease"),
            Action::Finish(writer) => write!(f, "writer {writer} stores its body and publishes it"),
            Action::ReadBack(writer) => write!(f, "writer {writer} reads META to find out about its publish"),
            Action::Crash(writer) => write!(f, "writer {writer} crashes"),
            Action::LateDelivery(request) => write!(f, "a delayed request arrives: {request:?}"),
            Action::LockExpires => write!(f, "LOCK is deleted by its ttl"),
            Action::RowExpires(place) => write!(f, "row {place} is deleted by its ttl"),
            Action::ClockStep(by) => write!(f, "the wall clocks are set by {by} seconds"),
            Action::InvalidateTag(how) => write!(f, "an operator invalidates the tag ({how:?})"),
            Action::PutTag => write!(f, "another service invalidates the tag without counting"),
            Action::RowIsDamaged(place) => write!(f, "row {place} is damaged"),
            Action::ReplaceTag(now) => write!(f, "a reader replaces the damaged row of the tag at {now}"),
            Action::Invalidate(how) => write!(f, "an operator invalidates ({how:?})"),
            Action::RollBack(body) => write!(f, "an operator rolls back to version {body}"),
            Action::Swap(body) => write!(f, "another service moves the pointer to version {body}"),
            Action::Collect(body) => write!(f, "the collector chooses version {body}"),
            Action::Evict => write!(f, "the collector evicts the page"),
            Action::Operator(_, delivery, request) => write!(f, "operator: {request:?} {delivery:?}"),
            Action::DeleteBody => {
                write!(f, "the collector deletes the body of that version, or the bodies of that page")
            }
            Action::CollectOrphan(body) => write!(f, "the collector deletes body {body}, an orphan"),
            Action::ReadMeta => write!(f, "a reader reads META"),
            Action::CheckReplaced(body) => {
                write!(f, "a writer reads all rows, to delete replaced body {body}")
            }
            Action::DeleteReplaced(body) => write!(f, "a writer deletes replaced body {body}"),
        }
    }
}

/// An action, the state after it, and the invariant that it violates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) state: State,
    pub(super) violation: Option<Violation>,
}

/// Collects the steps that are possible in one state.
struct Steps<'a> {
    world: &'a mut World,
    from: State,
    found: &'a mut Vec<Step>,
}

impl Steps<'_> {
    /// Adds a step, if the action is possible.
    fn add(
        &mut self,
        action: Action,
        change: impl FnOnce(&mut World, &mut State) -> Option<Option<Violation>>,
    ) {
        let mut state = self.from;
        if let Some(violation) = change(self.world, &mut state) {
            let violation = violation.or_else(|| invariant::of_state(self.world, &state));
            self.found.push(Step { action, state, violation });
        }
    }

    /// Adds a step that violates no invariant of writes.
    fn try_add(&mut self, action: Action, change: impl FnOnce(&World, &mut State) -> bool) {
        self.add(action, |world, state| change(world, state).then_some(None));
    }

    fn of_writer(&mut self, index: usize) {
        let writer = self.from.writers[index];
        self.try_add(Action::Begin(index), |world, state| world.begin(state, index));
        match writer.phase {
            Phase::ReadingLock => self.add(Action::ReadLock(index), |world, state| {
                world.read_lock(state, index);
                Some(None)
            }),
            Phase::Granted => {
                self.add(Action::LookupAgain(index), |world, state| Some(world.lookup_again(state, index)));
            }
            Phase::Rendering { refreshed } => {
                self.add(Action::Finish(index), |world, state| Some(world.finish(state, index)));
                if self.world.scope.refreshes && !refreshed {
                    self.add(Action::Refresh(index), |world, state| {
                        world.refresh(state, index);
                        Some(None)
                    });
                }
            }
            Phase::ReadingBack => self.add(Action::ReadBack(index), |world, state| {
                world.read_back(state, index);
                Some(None)
            }),
            _ => {}
        }
        if writer.phase != Phase::Idle && self.from.left.has(Event::Crash) {
            self.try_add(Action::Crash(index), |_, state| {
                state.left.take(Event::Crash);
                state.writers[index] = Writer::default();
                writer.request.is_none_or(|request| state.leave_under_way(request))
            });
        }
        if let Some(request) = writer.request {
            self.of_request(
                request,
                |delivery| Action::Writer(index, delivery, request),
                |world, state, response| world.receive(state, index, response),
            );
        }
    }

    fn of_operator(&mut self, index: usize) {
        if let Operator::Waiting(request) = self.from.operators[index] {
            self.of_request(
                request,
                |delivery| Action::Operator(index, delivery, request),
                |world, state, response| world.receive_by_operator(state, index, response),
            );
        }
    }

    fn of_request(
        &mut self,
        request: Request,
        action: impl Fn(Delivery) -> Action,
        receive: impl Fn(&World, &mut State, Response),
    ) {
        for delivery in [Delivery::Delivered, Delivery::Delayed, Delivery::Duplicated, Delivery::Rejected] {
            // A put of `LOCK` is sent once, and the network does not multiply requests.
            if delivery == Delivery::Duplicated && matches!(request, Request::Acquire { .. }) {
                continue;
            }
            self.add(action(delivery), |world, state| {
                if delivery != Delivery::Delivered && !state.left.take(Event::Fault) {
                    return None;
                }
                if matches!(delivery, Delivery::Delayed | Delivery::Duplicated)
                    && !state.leave_under_way(request)
                {
                    return None;
                }
                let (response, violation) = match delivery {
                    Delivery::Delivered | Delivery::Duplicated => world.arrive(state, request),
                    Delivery::Delayed => (Response::Lost, None),
                    Delivery::Rejected => (Response::Rejected, None),
                };
                receive(world, state, response);
                Some(violation)
            });
        }
    }
}

impl World {
    /// Fills `found` with all steps that are possible in a state.
    pub(super) fn steps(&mut self, from: &State, found: &mut Vec<Step>) {
        found.clear();
        let writers = usize::from(self.scope.writers);
        let mut steps = Steps { world: self, from: *from, found };
        if from.clock.time < steps.world.scope.seconds {
            steps.try_add(Action::SecondPasses, |_, state| {
                state.clock.time += 1;
                state.end_late_read();
                true
            });
        }
        if steps.world.scope.early_deletion {
            steps.try_add(Action::ReadMeta, World::read_meta);
        }
        (0..writers).for_each(|index| steps.of_writer(index));
        (0..from.operators.len()).for_each(|index| steps.of_operator(index));
        for place in 0..UNDER_WAY {
            if let Some(request) = from.under_way[place] {
                steps.add(Action::LateDelivery(request), |world, state| {
                    state.under_way[place] = None;
                    state.under_way.sort_unstable();
                    Some(world.arrive(state, request).1)
                });
            }
        }
        if from.left.has(Event::LockExpiry) && from.rows.0[LOCK] != 0 {
            steps.try_add(Action::LockExpires, |_, state| {
                state.left.take(Event::LockExpiry);
                state.rows.0[LOCK] = 0;
                true
            });
        }
        for place in (0..from.rows.0.len()).filter(|place| *place != LOCK) {
            steps.try_add(Action::RowExpires(place), |world, state| world.expire(state, place));
        }
        for by in [-CLOCK_STEP, CLOCK_STEP] {
            steps.try_add(Action::ClockStep(by), |_, state| {
                state.clock.step += by;
                state.clock.step.abs() <= CLOCK_STEP && state.left.take(Event::ClockStep)
            });
        }
        for place in (0..from.rows.0.len()).filter(|_| from.left.has(Event::Damage)) {
            steps.add(Action::RowIsDamaged(place), |world, state| world.damage(state, place).then_some(None));
        }
        if steps.world.is_damaged(from.rows.0[TAG]) {
            // The clocks of readers differ like those of writers.
            for now in [from.clock.time - 1, from.clock.time, from.clock.time + 1] {
                steps.add(Action::ReplaceTag(now), |world, state| {
                    Some(world.arrive(state, Request::ReplaceTag { now }).1)
                });
            }
        }
        for how in [InvalidationKind::Soft, InvalidationKind::Hard] {
            steps.try_add(Action::Invalidate(how), |world, state| world.invalidate(state, how));
            steps.try_add(Action::InvalidateTag(how), |world, state| world.invalidate_tag(state, how));
        }
        steps.try_add(Action::PutTag, World::put_tag);
        if from.operators[COLLECTOR] != Operator::Idle {
            steps.try_add(Action::DeleteBody, World::delete);
        }
        steps.try_add(Action::Evict, World::evict);
        for body in (0..BODIES).filter_map(|body| u8::try_from(body).ok()) {
            steps.try_add(Action::RollBack(body), |world, state| world.roll_back(state, body));
            steps.try_add(Action::Swap(body), |world, state| world.swap(state, body));
            steps.try_add(Action::Collect(body), |world, state| world.collect(state, body));
            steps.try_add(Action::CollectOrphan(body), |world, state| world.collect_orphan(state, body));
            steps.try_add(Action::CheckReplaced(body), |world, state| world.check_replaced(state, body));
            steps.try_add(Action::DeleteReplaced(body), |_, state| state.delete_replaced(body));
        }
    }

    /// Deletes a row by its `ttl`, if it has one.
    fn expire(&self, state: &mut State, place: usize) -> bool {
        let row = &mut state.rows.0[place];
        if !self.expires(*row) || !state.left.take(Event::RowExpiry) {
            return false;
        }
        *row = 0;
        true
    }

    /// The initial state: a page that went stale long ago, with one older version; or no page.
    pub(super) fn beginning(&mut self) -> State {
        let mut rows = Rows::default();
        let mut there = Set::default();
        if !self.scope.empty {
            there = Set::of(&[OLD, SERVED]);
            for (body, generated_at) in [(OLD, -20), (SERVED, -10)] {
                let generation = protocol::rendered(self, body, generated_at, 0);
                let mut meta = Meta::of(generation.clone());
                meta.mark = Some("an earlier publish".to_owned());
                if !self.scope.early_deletion || self.scope.recipe == Recipe::Versioned {
                    meta.version = Some(2);
                    meta.current_sk = Some(self.key(version_place(body)).sk.clone());
                    let version = Version::of(generation).to_item();
                    rows.0[version_place(body)] = self.settle(version_place(body), version);
                }
                rows.0[META] = self.settle(META, meta.to_item());
            }
        }
        State {
            clock: Clock::default(),
            rows,
            objects: Objects::of(there),
            spent: Set::default(),
            writers: Default::default(),
            operators: Default::default(),
            replaced: Default::default(),
            reader: None,
            under_way: Default::default(),
            leases: 0,
            operations: 0,
            left: self.scope.budget,
            past: Past { begun: there, ..Past::default() },
        }
    }

    /// The number of an initial row, with its key as the table returns it.
    fn settle(&mut self, place: usize, mut item: tabletheory::Item) -> super::table::RowId {
        item.set("pk", self.key(place).pk.as_str());
        item.set("sk", self.key(place).sk.as_str());
        self.number(place, Some(&item))
    }
}
