//! Everything that can happen next.

use std::fmt;

use super::invariant::{self, Broken};
use super::network::Answer;
use super::operator::COLLECTOR;
use super::protocol::{self, How, Request};
use super::state::{BODIES, Budget, OLD, Operator, Past, Phase, SERVED, Set, State, UNDER_WAY, Writer};
use super::table::{LOCK, META, Rows, World, version_place};
use crate::protocol::row::{Meta, Version};

/// What becomes of a request that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    /// Its sender hears nothing, and it may arrive later.
    IsLate,
    /// It arrives, and may arrive once more.
    IsDoubled,
    IsDenied,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    SecondPasses,
    Begin(usize),
    Writer(usize, Fate, Request),
    LookAgain(usize),
    Refresh(usize),
    Finish(usize),
    Judge(usize),
    Crash(usize),
    ArrivesLate(Request),
    LockExpires,
    RowExpires(usize),
    Invalidate(How),
    RollBack(u8),
    Collect(u8),
    Operator(usize, Fate, Request),
    DeleteBody,
    CollectOrphan(u8),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::SecondPasses => write!(f, "a second passes"),
            Action::Begin(writer) => write!(f, "writer {writer} finds the page stale and asks for the lease"),
            Action::Writer(writer, fate, request) => write!(f, "writer {writer}: {request:?} {fate:?}"),
            Action::LookAgain(writer) => write!(f, "writer {writer} looks at META again"),
            Action::Refresh(writer) => write!(f, "writer {writer} asks for another term"),
            Action::Finish(writer) => write!(f, "writer {writer} stores its body and publishes it"),
            Action::Judge(writer) => write!(f, "writer {writer} looks what became of its publish"),
            Action::Crash(writer) => write!(f, "writer {writer} crashes"),
            Action::ArrivesLate(request) => write!(f, "late: {request:?} arrives"),
            Action::LockExpires => write!(f, "LOCK is deleted by its ttl"),
            Action::RowExpires(place) => write!(f, "row {place} is deleted by its ttl"),
            Action::Invalidate(how) => write!(f, "an operator invalidates ({how:?})"),
            Action::RollBack(body) => write!(f, "an operator rolls back to version {body}"),
            Action::Collect(body) => write!(f, "the collector chooses version {body}"),
            Action::Operator(_, fate, request) => write!(f, "operator: {request:?} {fate:?}"),
            Action::DeleteBody => write!(f, "the collector deletes the body of that version"),
            Action::CollectOrphan(body) => write!(f, "the collector deletes body {body}, which no row names"),
        }
    }
}

/// A state that follows, how, and what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) state: State,
    pub(super) broken: Option<Broken>,
}

/// Collects the steps from one state.
struct Steps<'a> {
    world: &'a mut World,
    from: State,
    found: &'a mut Vec<Step>,
}

impl Steps<'_> {
    /// Adds a step, if the change can happen.
    fn add(&mut self, action: Action, change: impl FnOnce(&mut World, &mut State) -> Option<Option<Broken>>) {
        let mut state = self.from;
        if let Some(broken) = change(self.world, &mut state) {
            let broken = broken.or_else(|| invariant::of_state(self.world, &state));
            self.found.push(Step { action, state, broken });
        }
    }

    /// Adds a step that breaks nothing by itself.
    fn try_add(&mut self, action: Action, change: impl FnOnce(&World, &mut State) -> bool) {
        self.add(action, |world, state| change(world, state).then_some(None));
    }

    fn of_writer(&mut self, index: usize) {
        let writer = self.from.writers[index];
        self.try_add(Action::Begin(index), |world, state| world.begin(state, index));
        match writer.phase {
            Phase::Granted => {
                self.add(Action::LookAgain(index), |world, state| Some(world.look_again(state, index)));
            }
            Phase::Rendering => {
                self.add(Action::Finish(index), |world, state| Some(world.finish(state, index)));
                if self.world.scope.refreshes && !writer.refreshed {
                    self.add(Action::Refresh(index), |world, state| {
                        world.refresh(state, index);
                        Some(None)
                    });
                }
            }
            Phase::Judging => self.add(Action::Judge(index), |world, state| {
                world.judge(state, index);
                Some(None)
            }),
            _ => {}
        }
        if writer.phase != Phase::Idle && self.from.left.crashes > 0 {
            self.try_add(Action::Crash(index), |_, state| {
                state.left.crashes -= 1;
                state.writers[index] = Writer::default();
                writer.request.is_none_or(|request| state.send_off(request))
            });
        }
        if let Some(request) = writer.request {
            self.of_request(
                request,
                |fate| Action::Writer(index, fate, request),
                |world, state, answer| world.hear(state, index, answer),
            );
        }
    }

    fn of_operator(&mut self, index: usize) {
        if let Operator::Waiting(request) = self.from.operators[index] {
            self.of_request(
                request,
                |fate| Action::Operator(index, fate, request),
                |world, state, answer| world.hear_operator(state, index, answer),
            );
        }
    }

    fn of_request(
        &mut self,
        request: Request,
        action: impl Fn(Fate) -> Action,
        hear: impl Fn(&World, &mut State, Answer),
    ) {
        for fate in [Fate::Arrives, Fate::IsLate, Fate::IsDoubled, Fate::IsDenied] {
            self.add(action(fate), |world, state| {
                if fate != Fate::Arrives {
                    state.left.faults = state.left.faults.checked_sub(1)?;
                }
                if matches!(fate, Fate::IsLate | Fate::IsDoubled) && !state.send_off(request) {
                    return None;
                }
                let (answer, broken) = match fate {
                    Fate::Arrives | Fate::IsDoubled => world.arrive(state, request),
                    Fate::IsLate => (Answer::Lost, None),
                    Fate::IsDenied => (Answer::Denied, None),
                };
                hear(world, state, answer);
                Some(broken)
            });
        }
    }
}

impl World {
    /// All that can happen next, into `found`.
    pub(super) fn steps(&mut self, from: &State, found: &mut Vec<Step>) {
        found.clear();
        let writers = usize::from(self.scope.writers);
        let mut steps = Steps { world: self, from: *from, found };
        if from.time < steps.world.scope.seconds {
            steps.try_add(Action::SecondPasses, |_, state| {
                state.time += 1;
                true
            });
        }
        (0..writers).for_each(|index| steps.of_writer(index));
        (0..from.operators.len()).for_each(|index| steps.of_operator(index));
        for place in 0..UNDER_WAY {
            if let Some(request) = from.under_way[place] {
                steps.add(Action::ArrivesLate(request), |world, state| {
                    state.under_way[place] = None;
                    state.under_way.sort_unstable();
                    Some(world.arrive(state, request).1)
                });
            }
        }
        if from.left.expiries > 0 && from.rows.0[LOCK] != 0 {
            steps.try_add(Action::LockExpires, |_, state| {
                state.left.expiries -= 1;
                state.rows.0[LOCK] = 0;
                true
            });
        }
        for place in (0..from.rows.0.len()).filter(|place| *place != LOCK) {
            steps.try_add(Action::RowExpires(place), |world, state| world.expire(state, place));
        }
        for how in [How::Soft, How::Hard, How::Tag] {
            steps.try_add(Action::Invalidate(how), |world, state| world.invalidate(state, how));
        }
        if from.operators[COLLECTOR] != Operator::Idle {
            steps.try_add(Action::DeleteBody, World::delete);
        }
        for body in (0..BODIES).filter_map(|body| u8::try_from(body).ok()) {
            steps.try_add(Action::RollBack(body), |world, state| world.roll_back(state, body));
            steps.try_add(Action::Collect(body), |world, state| world.collect(state, body));
            steps.try_add(Action::CollectOrphan(body), |world, state| world.collect_orphan(state, body));
        }
    }

    /// A row is deleted by its `ttl`. One that has none is not.
    fn expire(&self, state: &mut State, place: usize) -> bool {
        let row = &mut state.rows.0[place];
        if state.left.row_expiries == 0 || !self.expires(*row) {
            return false;
        }
        state.left.row_expiries -= 1;
        *row = 0;
        true
    }

    /// A page that went stale long ago, with one older version; or nothing.
    pub(super) fn beginning(&mut self) -> State {
        let mut rows = Rows::default();
        let mut there = Set::default();
        if !self.scope.empty {
            there = Set::of(&[OLD, SERVED]);
            for (body, generated_at) in [(OLD, -20), (SERVED, -10)] {
                let generation = protocol::rendered(self, body, generated_at);
                let mut meta = Meta::of(generation.clone());
                meta.version = Some(2);
                meta.current_sk = Some(self.key(version_place(body)).sk.clone());
                let version = Version { generation, ttl: None }.to_item();
                rows.0[version_place(body)] = self.settle(version_place(body), version);
                rows.0[META] = self.settle(META, meta.to_item());
            }
        }
        let operations = self.scope.operations;
        State {
            time: 0,
            rows,
            objects: there,
            written: there,
            spent: Set::default(),
            writers: Default::default(),
            operators: Default::default(),
            under_way: Default::default(),
            leases: 0,
            operations: 0,
            left: Budget {
                faults: self.scope.faults,
                crashes: self.scope.crashes,
                expiries: self.scope.expiries,
                row_expiries: self.scope.row_expiries,
                soft: operations.soft,
                hard: operations.hard,
                tag: operations.tag,
                roll_back: operations.roll_back,
                collect: operations.collect,
            },
            past: Past { begun: there, ..Past::default() },
        }
    }

    /// The number of a row that is there from the beginning, with its key as the table returns it.
    fn settle(&mut self, place: usize, mut item: tabletheory::Item) -> super::table::RowId {
        item.set("pk", self.key(place).pk.as_str());
        item.set("sk", self.key(place).sk.as_str());
        self.number(place, Some(&item))
    }
}
