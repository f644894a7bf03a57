//! The invariants of states and of writes.

use std::fmt;

use super::budget::Event;
use super::damage;
use super::mutant::Mutant;
use super::protocol::{self, CLOCK_STEP, MARGIN, Request, body_of};
use super::scope::Recipe;
use super::state::{BODIES, Report, State};
use super::table::{LOCK, META, REQUEST, Rows, TAG, World, version_place};
use crate::protocol::freshness::Freshness;
use crate::protocol::generation::Generation;
use crate::protocol::row::{Meta, RequestStatus};

/// The violation of an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    PublishedWithoutLock,
    PublishedTwice,
    PublishedAfterLaterGrant,
    FalseDone,
    FalseNotPublished,
    VersionNotNext,
    VersionRewritten,
    ServedVersionMissing,
    ServedBodyMissing,
    ReadBodyMissing,
    BodyRewritten,
    OutdatedIsFresh,
    ExpiredIsServable,
    CurrentIsOutdated,
    UnseenPageRolledBack,
    UnseenPageExtended,
    FreshPageRendered,
    ResultReplaced,
    UnseenPageEvicted,
    LeasedPageEvicted,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Violation::PublishedWithoutLock => "a token published while the lock was not its own",
            Violation::PublishedTwice => "a token published twice",
            Violation::PublishedAfterLaterGrant => "an earlier grant published after a later one",
            Violation::FalseDone => "a publish that did not happen is reported as done",
            Violation::FalseNotPublished => "a publish that happened is reported as not published",
            Violation::VersionNotNext => "the version of META is not the next one",
            Violation::VersionRewritten => "a version was rewritten",
            Violation::ServedVersionMissing => "META points at a version that does not exist",
            Violation::ServedBodyMissing => "META names a body that does not exist",
            Violation::ReadBodyMissing => "a body was deleted while somebody with an older META may read it",
            Violation::BodyRewritten => "a body was rewritten",
            Violation::OutdatedIsFresh => "a page that was rendered before an invalidation is fresh after it",
            Violation::ExpiredIsServable => {
                "a page that was rendered before a hard invalidation may be served after it"
            }
            Violation::CurrentIsOutdated => {
                "a page that was rendered after every invalidation is stale at once"
            }
            Violation::UnseenPageRolledBack => "a rollback replaced a page that its operator had not seen",
            Violation::UnseenPageExtended => "a writer extended a page that it had not seen",
            Violation::FreshPageRendered => {
                "a page was rendered although another writer had just published it"
            }
            Violation::ResultReplaced => "the result of a request was replaced",
            Violation::UnseenPageEvicted => "a page was evicted after it had changed",
            Violation::LeasedPageEvicted => "a page was evicted while a writer held its lease",
        })
    }
}

/// The freshness of the page for a reader with this clock; `None` if there is no page.
pub(super) fn freshness(world: &World, rows: Rows, now: i8) -> Option<Freshness> {
    let margin = if world.is(Mutant::TagWithoutMargin) { std::time::Duration::ZERO } else { MARGIN };
    let mut epochs = world.epochs(rows);
    if world.is(Mutant::ExpiredCountIgnored) {
        epochs.iter_mut().flat_map(|(_, epoch)| epoch).for_each(|epoch| epoch.expired_seq = None);
    }
    let freshness = |meta: &Meta| meta.freshness_with(&epochs, protocol::at(now), margin);
    let meta = world.meta(rows.0[META])?;
    if world.is(Mutant::CountsIgnored) {
        let generation = Generation { epochs: None, ..meta.generation.clone() };
        return Some(freshness(&Meta { generation, ..meta.clone() }));
    }
    Some(freshness(meta))
}

/// Whether the page is fresh for a reader with this clock.
pub(super) fn is_fresh(world: &World, rows: Rows, now: i8) -> bool {
    freshness(world, rows, now) == Some(Freshness::Fresh)
}

/// The times of the clocks of readers, which differ like those of writers. Some were set, and others not yet.
fn reader_clocks(world: &World, state: &State) -> impl Iterator<Item = i8> {
    let steps: &[i8] =
        if world.scope.budget.has(Event::ClockStep) { &[-CLOCK_STEP, 0, CLOCK_STEP] } else { &[0] };
    let time = state.clock.time;
    steps.iter().flat_map(move |step| [time - 1, time, time + 1].map(|time| time + step))
}

/// Checks the invariants of a state.
pub(super) fn of_state(world: &World, state: &State) -> Option<Violation> {
    for lease in 0..state.leases {
        match state.past.reports[usize::from(lease)] {
            Report::Done if !state.past.published.has(lease) => return Some(Violation::FalseDone),
            Report::NotPublished if state.past.published.has(lease) => {
                return Some(Violation::FalseNotPublished);
            }
            _ => {}
        }
    }
    if state.reader.is_some_and(|reader| !state.objects.has(reader.body)) {
        return Some(Violation::ReadBodyMissing);
    }
    if let Some(violation) = damage::of_state(world, state) {
        return Some(violation);
    }
    let meta = world.meta(state.rows.0[META])?;
    let body = body_of(&meta.generation.s3_key);
    if !state.objects.has(body) {
        return Some(Violation::ServedBodyMissing);
    }
    if let Some(sk) = &meta.current_sk {
        let there = (0..BODIES)
            .map(|body| version_place(u8::try_from(body).unwrap_or(u8::MAX)))
            .any(|place| state.rows.0[place] != 0 && world.key(place).sk == *sk);
        if !there {
            return Some(Violation::ServedVersionMissing);
        }
    }
    let fresh = |now: &i8| is_fresh(world, state.rows, *now) && !meta.is_pinned(protocol::at(*now));
    if state.past.outdated.has(body) && reader_clocks(world, state).any(|now| fresh(&now)) {
        return Some(Violation::OutdatedIsFresh);
    }
    let is_servable = |now| freshness(world, state.rows, now) != Some(Freshness::MustNotServe);
    if state.past.expired.has(body) && reader_clocks(world, state).any(is_servable) {
        return Some(Violation::ExpiredIsServable);
    }
    None
}

/// Checks the invariants of a write that the table has applied.
pub(super) fn of_write(world: &World, before: &State, after: &State, request: Request) -> Option<Violation> {
    if let Request::Publish { lease, .. } | Request::Extend { lease, .. } = request {
        let holder = world.lock(before.rows.0[LOCK]).map(|lock| lock.lease_token.as_str());
        let is_holder = holder == Some(protocol::token(lease).as_str());
        match request {
            // It needs no lock, because it writes nothing but the times of the row that was read under the lock.
            Request::Extend { seen, .. } if before.rows.0[META] != seen => {
                return Some(Violation::UnseenPageExtended);
            }
            Request::Publish { .. } if !is_holder && !world.ignore_lock_ownership => {
                return Some(Violation::PublishedWithoutLock);
            }
            _ => {}
        }
        // The row of the tag is the one that the render has seen, so nothing was invalidated since.
        let is_current = before.past.epochs[usize::from(lease)] == after.rows.0[TAG] && world.scope.counts;
        let epochs = [(world.tag.clone(), world.epoch(after.rows.0[TAG]).copied())];
        let outdated = |meta: &Meta| {
            epochs[0].1.is_none_or(|epoch| !epoch.has_uncounted_time()) && meta.is_outdated(&epochs, MARGIN)
        };
        if is_current && world.meta(after.rows.0[META]).is_some_and(outdated) {
            return Some(Violation::CurrentIsOutdated);
        }
        if before.past.published.has(lease) {
            return Some(Violation::PublishedTwice);
        }
        if before.past.grants[usize::from(lease)] <= before.past.last {
            return Some(Violation::PublishedAfterLaterGrant);
        }
    }
    if let Request::Evict { now, rows, .. } = request {
        let is_held = world.lock(before.rows.0[LOCK]).is_some_and(|lock| lock.is_held(protocol::at(now)));
        // It ends the page, with its versions and requests.
        return match before.rows.0[META] {
            meta if meta != rows.0[META] => Some(Violation::UnseenPageEvicted),
            _ if is_held => Some(Violation::LeasedPageEvicted),
            _ => None,
        };
    }
    let (old, new) = (world.meta(before.rows.0[META]), world.meta(after.rows.0[META]));
    if let Request::RollBack { seen, .. } = request {
        let seen = world.meta(seen);
        let pointer = |meta: Option<&Meta>| meta.map(|meta| meta.generation.s3_key.clone());
        if pointer(old) != pointer(seen) {
            return Some(Violation::UnseenPageRolledBack);
        }
    }
    let moves = match request {
        Request::Publish { .. } => old.is_none() || world.scope.recipe != Recipe::Unchanged,
        Request::RollBack { .. } => true,
        _ => false,
    };
    let version = |meta: Option<&Meta>| meta.and_then(|meta| meta.version);
    let next = match (version(old), moves) {
        (None, true) if version(new).is_none() => None,
        (old, true) => Some(old.unwrap_or(0) + 1),
        (old, false) => old,
    };
    // After damage, versions are counted from the start.
    let counts = !world.is_damaged(before.rows.0[META]);
    if counts && version(new) != next {
        return Some(Violation::VersionNotNext);
    }
    let versions = version_place(0)..;
    // Its `ttl` may change.
    let generation = |id: u16| world.version(id).map(|version| &version.generation);
    let rewritten = |(old, new): (&u16, &u16)| *old != 0 && *new != 0 && generation(*old) != generation(*new);
    if before.rows.0[versions.clone()].iter().zip(&after.rows.0[versions]).any(rewritten) {
        return Some(Violation::VersionRewritten);
    }
    let completed = world
        .request(before.rows.0[REQUEST])
        .is_some_and(|request| request.status == RequestStatus::Completed);
    if completed && before.rows.0[REQUEST] != after.rows.0[REQUEST] {
        return Some(Violation::ResultReplaced);
    }
    None
}
