//! Early deletion of replaced bodies: a writer queues what its publish has left unused, and deletes it after a delay, unless
//! a row names it. A reader has read `META` some time ago.

use super::mutant::Mutant;
use super::protocol::{self, body_for, body_of};
use super::state::{BODIES, Reader, Replaced, Report, State, Writer};
use super::table::{LOCK, META, World, version_place};
use crate::error::{Error, Kind};
use crate::pages::replaced::{Unused, unused};
use crate::protocol::publish::Published;

/// How many seconds a reader may use `META` after reading it.
const READER_SECONDS: i8 = 1;
/// How many seconds a replaced body stays.
const DELAY: i8 = 2;

impl State {
    /// Queues a body that was replaced now. The publish under `lease` has an unknown outcome.
    pub(super) fn queue_replaced(&mut self, body: u8, lease: Option<u8>) {
        self.replaced[usize::from(body)] = Replaced::Waiting { since: self.clock.time, lease };
    }

    /// Deletes a replaced body that was checked.
    pub(super) fn delete_replaced(&mut self, body: u8) -> bool {
        let replaced = &mut self.replaced[usize::from(body)];
        let is_unused = *replaced == Replaced::Unused;
        if is_unused {
            *replaced = Replaced::No;
            self.objects.delete(body);
        }
        is_unused
    }

    /// The reader has read the body, or no longer uses the pointer.
    pub(super) fn end_late_read(&mut self) {
        self.reader = self.reader.filter(|reader| self.clock.time - reader.since <= READER_SECONDS);
    }
}

impl World {
    /// Queues the bodies that a publish with this report has left unused.
    pub(super) fn queue_unused(&self, state: &mut State, writer: &Writer, report: Report) {
        if !self.scope.early_deletion {
            return;
        }
        let outcome = match report {
            Report::Nothing => return,
            Report::Done => Ok(Published::Done),
            Report::NotPublished => Ok(Published::Lost),
            Report::Open => Err(Error::new(Kind::Unknown, "no response")),
        };
        let page = protocol::rendered(
            self,
            body_for(self, writer.lease),
            writer.render.generated_at,
            writer.render.epoch,
        );
        for Unused { s3_key, in_doubt } in unused(&outcome, &page, self.meta(writer.seen)) {
            state.queue_replaced(body_of(s3_key), in_doubt.then_some(writer.lease));
        }
    }

    /// Reads all rows of the page, to decide whether a replaced body is unused.
    pub(super) fn check_replaced(&self, state: &mut State, body: u8) -> bool {
        let Replaced::Waiting { since, lease } = state.replaced[usize::from(body)] else { return false };
        let is_due = state.clock.time - since >= DELAY || self.is(Mutant::NoDelayBeforeDeletion);
        let holder = self.lock(state.rows.0[LOCK]).map(|lock| lock.lease_token.as_str());
        let may_be_published = lease.is_some_and(|lease| holder == Some(protocol::token(lease).as_str()));
        if !is_due || (may_be_published && !self.is(Mutant::DeletionWithoutLock)) {
            return false;
        }
        let has = |s3_key: &str| body_of(s3_key) == body;
        let is_current = self.meta(state.rows.0[META]).is_some_and(|meta| has(&meta.generation.s3_key));
        let places = (0..BODIES).filter_map(|body| u8::try_from(body).ok()).map(version_place);
        let versions = places.filter_map(|place| self.version(state.rows.0[place]));
        let is_named = is_current || versions.into_iter().any(|version| has(&version.generation.s3_key));
        state.replaced[usize::from(body)] = if is_named && !self.is(Mutant::DeletionWithoutRows) {
            Replaced::No
        } else if lease.is_some() && !self.is(Mutant::DeletionRightAfterDoubt) {
            Replaced::Waiting { since: state.clock.time, lease: None }
        } else {
            Replaced::Unused
        };
        true
    }

    /// A reader reads `META`.
    pub(super) fn read_meta(&self, state: &mut State) -> bool {
        let Some(meta) = self.meta(state.rows.0[META]).filter(|_| state.reader.is_none()) else {
            return false;
        };
        state.reader = Some(Reader { body: body_of(&meta.generation.s3_key), since: state.clock.time });
        true
    }
}
