//! Damaged rows: any row may become unreadable at any time, and readers replace the row of a tag.

use tabletheory::Item;

use super::budget::Event;
use super::invariant::Violation;
use super::mutant::Mutant;
use super::protocol::body_of;
use super::state::State;
use super::table::{META, RowId, Rows, TAG, World};
use crate::protocol::epoch::Epoch;
use crate::protocol::tag::Tag;

impl World {
    /// Damages a row.
    pub(super) fn damage(&mut self, state: &mut State, place: usize) -> bool {
        let row = state.rows.0[place];
        if row == 0 || self.is_damaged(row) || !state.left.take(Event::Damage) {
            return false;
        }
        if place == META {
            state.past.damaged_meta = row;
        }
        state.rows.0[place] = self.damaged(place);
        true
    }

    /// The attributes of a row that is not damaged.
    pub(super) fn whole(&self, id: RowId) -> Option<&Item> {
        self.item(id).filter(|item| !item.is_damaged())
    }

    /// The epoch of the tag, as a reader sees it: if the row is damaged, the tag may have been invalidated at any time.
    pub(super) fn epochs(&self, rows: Rows) -> [(Tag, Option<Epoch>); 1] {
        let row = rows.0[TAG];
        let is_unknown = self.is_damaged(row) && !self.is(Mutant::DamagedTagIsAbsent);
        let epoch = if is_unknown { Some(Epoch::at(i64::MAX)) } else { self.epoch(row).copied() };
        [(self.tag.clone(), epoch)]
    }
}

/// Checks that a page is not served after its `META` was damaged: the row may have been invalidated.
pub(super) fn of_state(world: &World, state: &State) -> Option<Violation> {
    let trusts = world.is(Mutant::DamagedMetaIsFresh) && world.is_damaged(state.rows.0[META]);
    let served = world.meta(state.past.damaged_meta).filter(|_| trusts)?;
    let is_outdated = state.past.outdated.has(body_of(&served.generation.s3_key));
    is_outdated.then_some(Violation::OutdatedIsFresh)
}
