//! Operators: one invalidates, one rolls back, one collects garbage and evicts.

use super::budget::Event;
use super::mutant::Mutant;
use super::network::Response;
use super::protocol::{self, InvalidationKind, MARGIN, Request, Target, body_of};
use super::state::{BODIES, Operator, Set, State};
use super::table::{LOCK, META, TAG, World, version_place};
use crate::protocol::invalidate::Found;
use crate::protocol::pointer::StoredMeta;
use crate::protocol::retention::Retention;
use crate::protocol::row::{Meta, Version};

pub(super) const INVALIDATOR: usize = 0;
pub(super) const ROLLER: usize = 1;
pub(super) const COLLECTOR: usize = 2;

impl State {
    /// Lets an operator begin an operation. Returns false if it waits for another one, or all are used up.
    fn begin(&mut self, operator: usize, operation: Event) -> bool {
        self.operators[operator] == Operator::Idle && self.left.take(operation)
    }

    /// Sends the request of an operator. Returns true: it was possible.
    fn send(&mut self, operator: usize, request: Request) -> bool {
        self.operations += 1;
        self.operators[operator] = Operator::Waiting(request);
        true
    }
}

impl World {
    /// Requests an invalidation. Returns false if it is not possible.
    pub(super) fn invalidate(&self, state: &mut State, how: InvalidationKind) -> bool {
        let event = match how {
            InvalidationKind::Soft => Event::Soft,
            InvalidationKind::Hard => Event::Hard,
        };
        if !state.begin(INVALIDATOR, event) {
            return false;
        }
        let now = protocol::at(state.wall());
        let seen = state.rows.0[META];
        let page = self.resolved(state);
        let target = match Found::of(self.whole(seen), page.as_ref(), now) {
            Found::Nothing => Target::Nothing,
            Found::Page => Target::Page,
            Found::PinEnded(_) => Target::PinEnded(seen),
            Found::Pinned if how == InvalidationKind::Soft => return false,
            Found::Pinned => Target::Pinned,
        };
        let request = Request::Invalidate { operation: state.operations, now: state.wall(), how, target };
        state.send(INVALIDATOR, request)
    }

    /// Requests an invalidation of the tag.
    pub(super) fn invalidate_tag(&self, state: &mut State, how: InvalidationKind) -> bool {
        let (event, row) = match how {
            InvalidationKind::Soft => (Event::Tag, 0),
            // It reads the row first.
            InvalidationKind::Hard => (Event::HardTag, state.rows.0[TAG]),
        };
        if !state.begin(INVALIDATOR, event) {
            return false;
        }
        state.past.tagged = state.past.begun;
        let request = Request::InvalidateTag { operation: state.operations, now: state.wall(), how, row };
        state.send(INVALIDATOR, request)
    }

    /// Requests an invalidation of the tag, as a service in another language does it that does not count.
    pub(super) fn put_tag(&self, state: &mut State) -> bool {
        if !state.begin(ROLLER, Event::PutTag) {
            return false;
        }
        let request = Request::PutTag { operation: state.operations, now: state.wall() };
        state.send(ROLLER, request)
    }

    /// The page as readers resolve it: the version that another service has swapped in, or the copy in `META`.
    fn resolved(&self, state: &State) -> Option<Meta> {
        let stored = StoredMeta::read(self.whole(state.rows.0[META])?).expect("META");
        let place = |sk: &str| (LOCK..state.rows.0.len()).find(|place| self.key(*place).sk == sk);
        let version = stored.unread().and_then(place).and_then(|place| self.version(state.rows.0[place]));
        Some(match version.cloned() {
            Some(version) => stored.follow(Some(version), None, MARGIN),
            None => stored.into_copy(MARGIN),
        })
    }

    /// Requests a rollback to a version.
    pub(super) fn roll_back(&self, state: &mut State, body: u8) -> bool {
        let (target, seen) = (state.rows.0[version_place(body)], state.rows.0[META]);
        if !state.begin(ROLLER, Event::RollBack) || self.whole(target).is_none() || self.whole(seen).is_none()
        {
            return false;
        }
        let request =
            Request::RollBack { operation: state.operations, now: state.wall(), body, target, seen };
        state.send(ROLLER, request)
    }

    /// Requests a swap of the pointer to a version, as a service in another language does it.
    pub(super) fn swap(&self, state: &mut State, body: u8) -> bool {
        if !state.begin(ROLLER, Event::Swap) || state.rows.0[version_place(body)] == 0 {
            return false;
        }
        state.send(ROLLER, Request::Swap { operation: state.operations, body })
    }

    /// Requests the deletion of a version that is not retained.
    pub(super) fn collect(&self, state: &mut State, body: u8) -> bool {
        if !state.begin(COLLECTOR, Event::Collect) || state.rows.0[version_place(body)] == 0 {
            return false;
        }
        let newest_first = (0..BODIES).rev().map(|body| version_place(u8::try_from(body).unwrap_or(0)));
        let versions: Vec<(String, Version)> = newest_first
            .filter_map(|place| {
                Some((self.key(place).sk.clone(), self.version(state.rows.0[place])?.clone()))
            })
            .collect();
        let current = self.meta(state.rows.0[META]).and_then(|meta| meta.current_sk.as_deref());
        let superfluous = Retention { versions: 0, oldest: None }.superfluous(&versions, current);
        if !superfluous.contains(&self.key(version_place(body)).sk.as_str()) {
            return false;
        }
        state.send(COLLECTOR, Request::Collect { operation: state.operations, body })
    }

    /// Deletes an orphaned object.
    ///
    /// A writer that has stored a body and can still publish it holds the lock, so checking the lock is enough, however late a
    /// publish is.
    pub(super) fn collect_orphan(&self, state: &mut State, body: u8) -> bool {
        let named = |s3_key: &str| body_of(s3_key) == body;
        let served = self.meta(state.rows.0[META]).is_some_and(|meta| named(&meta.generation.s3_key));
        let stored = state.rows.0[version_place(0)..]
            .iter()
            .any(|id| self.version(*id).is_some_and(|version| named(&version.generation.s3_key)));
        let locked = state.rows.0[LOCK] != 0;
        // The grace period, which is longer than any reader uses a pointer, is not modelled.
        if self.scope.early_deletion
            || !state.left.take(Event::Collect)
            || !state.objects.has(body)
            || served
            || stored
            || locked && !self.is(Mutant::GcWithoutLockCheck)
        {
            return false;
        }
        state.objects.delete(body);
        true
    }

    /// Requests the eviction of the page.
    pub(super) fn evict(&self, state: &mut State) -> bool {
        if !state.begin(COLLECTOR, Event::Evict) {
            return false;
        }
        let Some(deletion) = protocol::eviction(self, state.clock.time, state.rows) else { return false };
        let request = Request::Evict { operation: state.operations, now: state.clock.time, rows: state.rows };
        if self.is(Mutant::EvictionOfBodiesFirst) {
            deletion.s3_keys.iter().for_each(|s3_key| state.objects.delete(body_of(s3_key)));
        }
        state.send(COLLECTOR, request)
    }

    /// Receives the response to a request. An operator does not retry, but invalidates a tag in the way that its row allows.
    pub(super) fn receive_by_operator(&self, state: &mut State, index: usize, response: Response) {
        state.operators[index] = match (state.operators[index], response) {
            (Operator::Waiting(Request::Collect { body, .. }), Response::Applied)
                if self.scope.early_deletion =>
            {
                state.queue_replaced(body, None);
                Operator::Idle
            }
            (
                Operator::Waiting(Request::InvalidateTag { operation, now, how, row: 0 }),
                Response::Refused,
            ) if !self.is(Mutant::EarlierTimeIsNotCounted) => {
                let row = state.rows.0[TAG];
                Operator::Waiting(Request::InvalidateTag { operation, now, how, row })
            }
            (Operator::Waiting(Request::Collect { body, .. }), Response::Applied) => Operator::Deleting(body),
            (Operator::Waiting(Request::Evict { now, rows, .. }), Response::Applied) => {
                let deletion = protocol::eviction(self, now, rows).expect("it was requested");
                let bodies: Vec<u8> = deletion.s3_keys.iter().map(|s3_key| body_of(s3_key)).collect();
                Operator::Evicted(Set::of(&bodies))
            }
            _ => Operator::Idle,
        };
    }

    /// Deletes the body of a version that was deleted, or all bodies of a page that was evicted.
    pub(super) fn delete(&self, state: &mut State) -> bool {
        let bodies = match state.operators[COLLECTOR] {
            Operator::Deleting(body) => Set::of(&[body]),
            Operator::Evicted(bodies) => bodies,
            _ => return false,
        };
        state.operators[COLLECTOR] = Operator::Idle;
        (0..BODIES)
            .filter_map(|body| u8::try_from(body).ok())
            .filter(|body| bodies.has(*body))
            .for_each(|body| state.objects.delete(body));
        true
    }
}
