//! What happens to a request between its sender and the table, and what it does there.

use super::invariant::{self, Broken};
use super::protocol::{How, Request, body_for, body_of};
use super::scope::Recipe;
use super::state::State;
use super::table::{META, World};

/// What a sender hears of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    /// No, and the lease is lost for good.
    Gone,
    /// Nothing: it may have been applied, or be applied later.
    Lost,
    /// It was turned away, and certainly not applied.
    Denied,
}

impl World {
    /// A request arrives at the table.
    pub(super) fn arrive(&mut self, state: &mut State, request: Request) -> (Answer, Option<Broken>) {
        let token = request.client_token(self);
        if token.is_some_and(|token| state.spent.has(token)) {
            return (Answer::Yes, None);
        }
        let before = *state;
        let verdict = self.commit(state.rows, request);
        if let Request::Invalidate { how: How::Tag, .. } = request {
            // A refusal means that the epoch is late enough already.
            state.past.outdated.extend(state.past.tagged);
        }
        if !verdict.applied {
            return (verdict.answer, None);
        }
        state.rows = verdict.rows;
        token.into_iter().for_each(|token| state.spent.insert(token));
        let broken = invariant::of_write(self, &before, state, request);
        self.remember(state, request);
        (verdict.answer, broken)
    }

    fn remember(&self, state: &mut State, request: Request) {
        let past = &mut state.past;
        match request {
            Request::Acquire { lease, .. } | Request::Start { lease, .. } => {
                let grant = &mut past.grants[usize::from(lease)];
                if *grant == 0 {
                    past.granted += 1;
                    *grant = past.granted;
                }
            }
            Request::Publish { lease, .. } => {
                past.published.insert(lease);
                past.last = past.grants[usize::from(lease)];
                let served = self.meta(state.rows.0[META]).map(|meta| body_of(&meta.generation.s3_key));
                if let Some(served) = served
                    && self.scope.recipe == Recipe::Unchanged
                    && !past.outdated.has(body_for(self, lease))
                {
                    // It was rendered again after the invalidation, and is the same.
                    past.outdated.remove(served);
                }
            }
            Request::Invalidate { how: How::Tag, .. } => {}
            Request::Invalidate { .. } => past.outdated.extend(past.begun),
            Request::Refresh { .. }
            | Request::Release { .. }
            | Request::RollBack { .. }
            | Request::Collect { .. } => {}
        }
    }
}
