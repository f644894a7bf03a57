//! A writer: acquires the lease, reads `META` again, renders, publishes, and finds out what became of it.
//!
//! It does what `PageStore` does, one step at a time, with two attempts where `PageStore` has three.

use super::invariant::{self, Violation};
use super::mutant::Mutant;
use super::network::Response;
use super::protocol::{self, Request, body_for};
use super::scope::Recipe;
use super::state::{Phase, Render, Report, State, Writer};
use super::table::{LOCK, META, REQUEST, Rows, TAG, World};
use crate::protocol::publish::Published;
use crate::protocol::request::RequestStep;

/// The time of a writer's clock.
pub(super) fn clock(state: &State, writer: usize) -> i8 {
    state.wall() + [-1, 0, 1][writer]
}

impl World {
    /// Finds the page stale and requests the lease.
    pub(super) fn begin(&self, state: &mut State, index: usize) -> bool {
        let (now, lease) = (clock(state, index), state.leases);
        if state.writers[index].phase != Phase::Idle
            || lease >= self.scope.leases
            || invariant::is_fresh(self, state.rows, now)
        {
            return false;
        }
        let request = if self.scope.request {
            let (found, lock) = (state.rows.0[REQUEST], state.rows.0[LOCK]);
            if !matches!(protocol::next(self, lease, now, found, lock), RequestStep::Start(..)) {
                return false;
            }
            Request::Start { lease, now, found, lock }
        } else {
            Request::Acquire { lease, now }
        };
        state.leases += 1;
        state.writers[index] = Writer {
            phase: Phase::Acquiring { again: false },
            lease,
            seen: state.rows.0[META],
            request: Some(request),
            ..Writer::default()
        };
        true
    }

    /// Reads `LOCK` to find out what became of its put: it has the lease, another writer has it, or it tries once more with
    /// a new token.
    pub(super) fn read_lock(&self, state: &mut State, index: usize) {
        let now = clock(state, index);
        let held = self.lock(state.rows.0[LOCK]).is_some_and(|lock| lock.is_held(protocol::at(now)));
        let next = state.leases;
        let writer = &mut state.writers[index];
        if let Some(lease) = [Some(writer.lease), writer.given_up]
            .into_iter()
            .flatten()
            .find(|lease| self.holds(Some(*lease), state.rows))
        {
            (writer.lease, writer.given_up, writer.phase) = (lease, None, Phase::Granted);
        } else if held {
            *writer = Writer::default();
        } else if writer.given_up.is_none() && next < self.scope.leases {
            writer.given_up = Some(writer.lease);
            (writer.lease, writer.phase) = (next, Phase::Acquiring { again: false });
            writer.request = Some(Request::Acquire { lease: next, now });
            state.leases += 1;
        } else {
            writer.phase = Phase::Leaving;
            writer.request = Some(Request::Release { lease: writer.lease });
        }
    }

    /// Whether `LOCK` has the token of a lease.
    fn holds(&self, lease: Option<u8>, rows: Rows) -> bool {
        let holder = self.lock(rows.0[LOCK]).map(|lock| lock.lease_token.as_str());
        lease.is_some_and(|lease| holder == Some(protocol::token(lease).as_str()))
    }

    /// Reads `META` again under the lease, and renders if the page is still stale.
    pub(super) fn lookup_again(&self, state: &mut State, index: usize) -> Option<Violation> {
        let now = clock(state, index);
        let fresh = invariant::is_fresh(self, state.rows, now);
        let held = self.holds(Some(state.writers[index].lease), state.rows);
        let writer = &mut state.writers[index];
        let ignores_lock = self.is(Mutant::LookupWithoutLock) || self.is(Mutant::LostAcquireIsGranted);
        if !held && !ignores_lock {
            *writer = Writer::default();
            return None;
        }
        if !self.is(Mutant::NoSecondLookup) {
            writer.seen = state.rows.0[META];
            if fresh {
                writer.phase = Phase::Leaving;
                writer.request = Some(Request::Release { lease: writer.lease });
                return None;
            }
        }
        writer.phase = Phase::Rendering { refreshed: false };
        writer.render = Render { epoch: state.rows.0[TAG], generated_at: now };
        let lease = writer.lease;
        state.past.epochs[usize::from(lease)] = state.rows.0[TAG];
        state.past.begun.insert(body_for(self, lease));
        // Published before this lease was granted, so a second lookup must see it.
        let grant = |lease: u8| state.past.grants[usize::from(lease)];
        let mark = self.meta(state.rows.0[META]).and_then(|meta| meta.mark.clone());
        let earlier = (0..state.leases)
            .any(|other| mark == Some(protocol::token(other)) && grant(other) < grant(lease));
        (fresh && earlier && held).then_some(Violation::FreshPageRendered)
    }

    /// Refreshes the lease.
    pub(super) fn refresh(&self, state: &mut State, index: usize) {
        let now = clock(state, index);
        let writer = &mut state.writers[index];
        writer.phase = Phase::Refreshing;
        writer.request = Some(Request::Refresh { lease: writer.lease, now });
    }

    /// Stores the body and publishes it.
    pub(super) fn finish(&self, state: &mut State, index: usize) -> Option<Violation> {
        let now = clock(state, index);
        let writer = &mut state.writers[index];
        if self.is(Mutant::CountsReadAfterRender) {
            writer.render.epoch = state.rows.0[TAG];
        }
        let Writer { lease, seen, render: Render { epoch, generated_at }, .. } = *writer;
        let is_extension = protocol::extension(self, lease, now, seen, generated_at, epoch).is_some();
        (writer.phase, writer.request) = if is_extension {
            (
                Phase::Extending { again: false },
                Some(Request::Extend { lease, now, seen, generated_at, epoch }),
            )
        } else {
            (
                Phase::Publishing { again: false },
                Some(Request::Publish { lease, now, seen, generated_at, epoch }),
            )
        };
        if self.scope.recipe == Recipe::Unchanged && seen != 0 {
            return None;
        }
        let body = body_for(self, lease);
        state.objects.write(body).then_some(Violation::BodyRewritten)
    }

    /// Receives the response to its request, or learns that it was lost.
    pub(super) fn receive(&self, state: &mut State, index: usize, response: Response) {
        let writer = &mut state.writers[index];
        let lease = writer.lease;
        let sent = writer.request.take();
        let is_put = matches!(sent, Some(Request::Acquire { .. }));
        let release = Some(Request::Release { lease });
        if let Phase::Extending { again } = writer.phase {
            return self.receive_extension(state, index, sent, again, response);
        }
        let (phase, request) = match (writer.phase, response) {
            (Phase::Acquiring { .. }, Response::Applied) => (Phase::Granted, None),
            // A put that was lost before has arrived since.
            (Phase::Acquiring { .. }, Response::Refused) if self.holds(writer.given_up, state.rows) => {
                writer.lease = writer.given_up.take().unwrap_or(lease);
                (Phase::Granted, None)
            }
            (Phase::Acquiring { .. }, Response::Lost) if is_put && self.is(Mutant::LostAcquireIsGranted) => {
                (Phase::Granted, None)
            }
            // A transaction has a client token and may be sent again; a put is sent once.
            (Phase::Acquiring { again: false }, Response::Lost)
                if !is_put || self.is(Mutant::AcquireSentAgain) =>
            {
                (Phase::Acquiring { again: true }, sent)
            }
            (Phase::Acquiring { .. }, Response::Lost) if is_put => (Phase::ReadingLock, None),
            (Phase::Refreshing, Response::Applied | Response::Lost | Response::Rejected) => {
                (Phase::Rendering { refreshed: true }, None)
            }
            // The lease may still be held, and a request under way may still win, until the lease is released.
            (Phase::Publishing { .. }, Response::Refused) if !self.is(Mutant::RefusalIsFinal) => {
                (Phase::Resolving, release)
            }
            (Phase::Publishing { again: false }, Response::Lost) => (Phase::Publishing { again: true }, sent),
            (Phase::Publishing { again: true }, Response::Lost)
                if !self.is(Mutant::NoReleaseBeforeNotPublished) =>
            {
                (Phase::Resolving, release)
            }
            // The retry was rejected; the first attempt may have been applied.
            (Phase::Publishing { again: true }, Response::Rejected)
                if !self.is(Mutant::RejectedRetryIsFinal) =>
            {
                (Phase::Resolving, release)
            }
            (Phase::Resolving, Response::Refused | Response::LeaseLost) => (Phase::ReadingBack, None),
            (phase, response) => {
                let report = self.conclusion(phase, response);
                let writer = std::mem::take(writer);
                if let Some(report) = report {
                    self.queue_unused(state, &writer, report);
                    state.report(lease, report);
                }
                return;
            }
        };
        writer.phase = phase;
        writer.request = request;
    }

    /// Receives the response to the update of an unchanged page.
    fn receive_extension(
        &self,
        state: &mut State,
        index: usize,
        sent: Option<Request>,
        again: bool,
        response: Response,
    ) {
        let writer = &mut state.writers[index];
        let lease = writer.lease;
        let report = match (response, sent) {
            (Response::Applied, _) => Report::Done,
            // The row is not as it was read: the transaction decides.
            (
                Response::Refused | Response::LeaseLost,
                Some(Request::Extend { lease, now, seen, generated_at, epoch }),
            ) if !again => {
                writer.phase = Phase::Publishing { again: false };
                writer.request = Some(Request::Publish { lease, now, seen, generated_at, epoch });
                return;
            }
            (Response::Lost, sent) if !again => {
                (writer.phase, writer.request) = (Phase::Extending { again: true }, sent);
                return;
            }
            (Response::Rejected, _) if !again => Report::NotPublished,
            _ if self.is(Mutant::UnknownExtensionIsFinal) => Report::NotPublished,
            _ => Report::Open,
        };
        (writer.phase, writer.request) = (Phase::Leaving, Some(Request::Release { lease }));
        state.report(lease, report);
    }

    /// The report of a writer that stops about its publish.
    fn conclusion(&self, phase: Phase, response: Response) -> Option<Report> {
        Some(match (phase, response) {
            (Phase::Publishing { .. }, Response::Applied) => Report::Done,
            (Phase::Publishing { .. }, _) => Report::NotPublished,
            (Phase::Resolving, Response::Applied) => Report::NotPublished,
            (Phase::Resolving, Response::Rejected) if self.is(Mutant::RejectedReleaseIsFinal) => {
                Report::NotPublished
            }
            (Phase::Resolving, _) => Report::Open,
            _ => return None,
        })
    }

    /// Reads `META` to find out what became of its publish.
    pub(super) fn read_back(&self, state: &mut State, index: usize) {
        let writer = std::mem::take(&mut state.writers[index]);
        let lease = protocol::lease(self, writer.lease, 0);
        let page = protocol::rendered(
            self,
            body_for(self, writer.lease),
            writer.render.generated_at,
            writer.render.epoch,
        );
        let published =
            Published::resolve(&lease, &page, self.meta(writer.seen), self.meta(state.rows.0[META]));
        let report = match published {
            Published::Done => Report::Done,
            Published::Lost => Report::NotPublished,
            Published::Superseded => Report::Open,
        };
        self.queue_unused(state, &writer, report);
        state.report(writer.lease, report);
    }
}
