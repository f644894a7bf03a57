//! Delivers requests to the table.

use super::invariant::{self, Violation};
use super::mutant::Mutant;
use super::protocol::{InvalidationKind, Request, body_for, body_of};
use super::scope::Recipe;
use super::state::State;
use super::table::{META, World};

/// The response to a request, as its sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    Applied,
    Refused,
    /// Refused, and the lease is lost for good.
    LeaseLost,
    /// No response: the request may have been applied, or be applied later.
    Lost,
    /// The request was rejected, and certainly not applied.
    Rejected,
}

impl World {
    /// Applies a request that arrives at the table.
    pub(super) fn arrive(&mut self, state: &mut State, request: Request) -> (Response, Option<Violation>) {
        let token = request.client_token(self);
        if token.is_some_and(|token| state.spent.has(token)) {
            return (Response::Applied, None);
        }
        let before = *state;
        let result = self.commit(state.rows, request);
        // Its sender is told that the tag was invalidated.
        let is_acknowledged = result.written.is_some() || self.is(Mutant::EarlierTimeIsNotCounted);
        if let (Request::InvalidateTag { how, .. }, true) = (request, is_acknowledged) {
            state.past.outdated.extend(state.past.tagged);
            if how == InvalidationKind::Hard {
                state.past.expired.extend(state.past.tagged);
            }
        }
        let Some(rows) = result.written else { return (result.response, None) };
        state.rows = rows;
        token.into_iter().for_each(|token| state.spent.insert(token));
        let violation = invariant::of_write(self, &before, state, request);
        self.remember(state, request);
        (result.response, violation)
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
            Request::Publish { lease, .. } | Request::Extend { lease, .. } => {
                past.published.insert(lease);
                past.last = past.grants[usize::from(lease)];
                let served = self.meta(state.rows.0[META]).map(|meta| body_of(&meta.generation.s3_key));
                if let Some(served) = served
                    && self.scope.recipe == Recipe::Unchanged
                    && !past.outdated.has(body_for(self, lease))
                {
                    // It was rendered again after the invalidation, and did not change.
                    past.outdated.remove(served);
                }
            }
            Request::Invalidate { .. } => past.outdated.extend(past.begun),
            Request::Refresh { .. }
            | Request::Release { .. }
            | Request::RollBack { .. }
            | Request::Collect { .. }
            | Request::InvalidateTag { .. }
            | Request::PutTag { .. }
            | Request::Swap { .. }
            | Request::Evict { .. }
            | Request::ReplaceTag { .. } => {}
        }
    }
}
