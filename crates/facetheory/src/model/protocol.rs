//! Builds the transaction that production would send for a request, without the guard that a mutant lacks.

use std::time::Duration;

use tabletheory::{Timestamp, Txn, Update, Write};

use super::budget::Event;
use super::mutant::Mutant;
use super::scope::Recipe;
use super::state::{FIRST, LEASES};
use super::table::{LOCK, META, REQUEST, RowId, Rows, TAG, World, version_place};
use crate::protocol::attribute as name;
use crate::protocol::epoch::Epoch;
use crate::protocol::eviction::{self, Deletion, Eviction};
use crate::protocol::extend::Witness;
use crate::protocol::generation::Generation;
use crate::protocol::invalidate::{self, Found, InvalidationMode, RowOfTag, TagInvalidation};
use crate::protocol::lease::{Lease, LeaseTerms};
use crate::protocol::pointer;
use crate::protocol::publish::{Guards, Publication};
use crate::protocol::request::{Claim, RequestDecision, RequestStep, RequestTerms};
use crate::protocol::retention;
use crate::protocol::rollback::Rollback;
use crate::protocol::row::Meta;
use crate::protocol::seen_epochs::SeenEpochs;

/// The start time, in epoch seconds.
const START: i64 = 1_700_000_000;
/// How long a page is fresh, a lease is held, and a request counts as in progress.
const INTERVAL: i64 = 2;
/// Clocks differ by one second either way.
pub(super) const MARGIN: Duration = Duration::from_secs(2);

/// By how many seconds the wall clocks are set: more than the interval of a page and the margin.
pub(super) const CLOCK_STEP: i8 = 6;

/// The kind of an invalidation of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum InvalidationKind {
    Soft,
    Hard,
}

impl InvalidationKind {
    pub(super) fn mode(self) -> InvalidationMode {
        match self {
            InvalidationKind::Soft => InvalidationMode::Soft,
            InvalidationKind::Hard => InvalidationMode::Hard,
        }
    }
}

/// The state of the page that an invalidation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    Nothing,
    Page,
    /// Another service has ended the pin in this row.
    PinEnded(RowId),
    Pinned,
}

/// A request to the table: everything from which its transaction is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Request {
    Acquire {
        lease: u8,
        now: i8,
    },
    Start {
        lease: u8,
        now: i8,
        found: RowId,
        lock: RowId,
    },
    Refresh {
        lease: u8,
        now: i8,
    },
    Release {
        lease: u8,
    },
    Publish {
        lease: u8,
        now: i8,
        seen: RowId,
        generated_at: i8,
        epoch: RowId,
    },
    Extend {
        lease: u8,
        now: i8,
        seen: RowId,
        generated_at: i8,
        epoch: RowId,
    },
    Invalidate {
        operation: u8,
        now: i8,
        how: InvalidationKind,
        target: Target,
    },
    /// Counts an invalidation of the tag, whose row was read, or has refused an earlier attempt.
    InvalidateTag {
        operation: u8,
        now: i8,
        how: InvalidationKind,
        row: RowId,
    },
    /// Another service invalidates the tag.
    PutTag {
        operation: u8,
        now: i8,
    },
    RollBack {
        operation: u8,
        now: i8,
        body: u8,
        target: RowId,
        seen: RowId,
    },
    Collect {
        operation: u8,
        body: u8,
    },
    Swap {
        operation: u8,
        body: u8,
    },
    Evict {
        operation: u8,
        now: i8,
        rows: Rows,
    },
    /// A reader replaces the damaged row of the tag.
    ReplaceTag {
        now: i8,
    },
}

impl Request {
    /// The client token of the request: retries have the same token, other requests do not.
    pub(super) fn client_token(self, world: &World) -> Option<u8> {
        let leases = u8::try_from(LEASES).expect("few leases");
        match self {
            // A plain put, which is sent once.
            Request::Acquire { .. } => None,
            Request::Publish { .. } if world.is(Mutant::PublishWithoutClientToken) => None,
            Request::Start { lease, .. } => Some(lease),
            Request::Publish { lease, .. } => Some(leases + lease),
            // Applied again, it counts again.
            Request::InvalidateTag { .. } | Request::PutTag { .. } => None,
            Request::Invalidate { operation, .. }
            | Request::RollBack { operation, .. }
            | Request::Collect { operation, .. }
            | Request::Swap { operation, .. }
            | Request::Evict { operation, .. } => Some(2 * leases + operation),
            Request::Refresh { .. }
            | Request::Release { .. }
            | Request::Extend { .. }
            | Request::ReplaceTag { .. } => None,
        }
    }
}

pub(super) fn terms() -> LeaseTerms {
    let mut terms = LeaseTerms::lasting(Duration::from_secs(INTERVAL.unsigned_abs()));
    terms.ttl_buffer = Duration::ZERO;
    terms
}

pub(super) fn at(now: i8) -> Timestamp {
    Timestamp::from_seconds(START + i64::from(now))
}

pub(super) fn token(lease: u8) -> String {
    format!("token-{lease}")
}

/// The ids of versions sort by age.
pub(super) fn version_id(body: usize) -> String {
    format!("{body:02}")
}

pub(super) fn body_key(body: u8) -> String {
    format!("body-{body}")
}

/// The body that a key names.
pub(super) fn body_of(s3_key: &str) -> u8 {
    s3_key.rsplit('-').next().and_then(|number| number.parse().ok()).expect("a body of this model")
}

/// The body that a lease renders.
pub(super) fn body_for(world: &World, lease: u8) -> u8 {
    if world.is(Mutant::SharedBody) { FIRST } else { FIRST + lease }
}

pub(super) fn lease(world: &World, lease: u8, now: i8) -> Lease {
    Lease::starting(world.page.clone(), token(lease), at(now), &world.terms)
}

/// A generation that has seen this row of the tag. The initial ones were rendered long ago, before the tag was invalidated.
pub(super) fn rendered(world: &World, body: u8, generated_at: i8, epoch: RowId) -> Generation {
    let mut page = Generation::new(body_key(body), START + i64::from(generated_at), INTERVAL);
    if world.scope.counts {
        let mut seen = SeenEpochs::of_render_at(page.generated_at);
        seen.insert(&world.tag, world.epoch(epoch).map_or(0, Epoch::count));
        page.epochs = Some(seen);
    }
    if world.scope.recipe == Recipe::Unchanged {
        page.content.digest = Some("sha256:same".to_owned());
    }
    page
}

/// The next step for the request that all writers execute.
pub(super) fn next(world: &World, number: u8, now: i8, found: RowId, lock: RowId) -> RequestStep {
    let in_progress = Duration::from_secs(INTERVAL.unsigned_abs());
    let terms = RequestTerms { in_progress, ..RequestTerms::default() };
    let decision = RequestDecision {
        key: world.key(REQUEST),
        hash: "hash",
        found: world.request(found),
        lock: world.lock(lock),
        lease_terms: &world.terms,
        terms: &terms,
        now: at(now),
    };
    decision.next(&lease(world, number, now))
}

fn claim(world: &World, lease: u8, now: i8) -> Option<Claim> {
    match next(world, lease, now, 0, 0) {
        RequestStep::Start(_, claim) if world.scope.request => Some(claim),
        _ => None,
    }
}

pub(super) fn transaction(world: &World, rows: Rows, request: Request) -> Txn {
    match request {
        Request::Acquire { lease: number, now } => lease(world, number, now).acquire(at(now), &world.terms),
        Request::Start { lease, now, found, lock } => match next(world, lease, now, found, lock) {
            RequestStep::Start(txn, _) => *txn,
            other => unreachable!("a request is started only if that is possible: {other:?}"),
        },
        Request::Refresh { lease: number, now } => lease(world, number, now).refresh(at(now), &world.terms).1,
        Request::Release { lease: number } => lease(world, number, 0).release(),
        Request::Publish { lease, now, seen, generated_at, epoch } => {
            let page = rendered(world, body_for(world, lease), generated_at, epoch);
            let txn = publish(world, lease, now, world.meta(seen), &page);
            let is_own = world.is(Mutant::DamagedLockIsOwn) && world.is_damaged(rows.0[LOCK]);
            without(txn, is_own, &world.key(LOCK).sk)
        }
        Request::Extend { lease, now, seen, generated_at, epoch } => {
            extension(world, lease, now, seen, generated_at, epoch).expect("a page that can be extended")
        }
        Request::Invalidate { now, how, target, .. } => invalidation(world, now, how, target),
        Request::InvalidateTag { operation, now, how, row } => {
            let random = if world.is(Mutant::SameBase) { 0 } else { 100 * u64::from(operation) };
            let invalidation =
                TagInvalidation::new(world.key(TAG).clone(), how.mode(), at(now), None, random);
            if world.is(Mutant::ExpiryOfUnseenCount) {
                return Txn::from(invalidation.update(RowOfTag(world.item(row))));
            }
            invalidation.txn(world.item(row))
        }
        Request::PutTag { now, .. } => {
            Txn::from(Write::put(world.key(TAG).clone(), Epoch::at(at(now).seconds()).to_item()))
        }
        Request::RollBack { now, body, target, seen, .. } => {
            let seen = if world.is(Mutant::RollbackOfUnseenPage) { rows.0[META] } else { seen };
            let txn = Rollback {
                page: &world.page,
                target_sk: &world.key(version_place(body)).sk,
                target: world.version(target).expect("a version was read"),
                seen: world.meta(seen).expect("META was read"),
                pin: Duration::from_secs(world.scope.pin),
                ttl: ttl(world, now),
                superseded_ttl: ttl(world, now),
                epochs: SeenEpochs::default(),
                now: at(now),
            }
            .txn();
            let txn = if world.is(Mutant::RollbackToExpiring) {
                only_check(txn, &world.key(version_place(body)).sk)
            } else {
                txn
            };
            let txn = without(txn, world.is(Mutant::RollbackToMissing), &world.key(version_place(body)).sk);
            without(txn, world.is(Mutant::RollbackWithoutFence), &world.key(LOCK).sk)
        }
        Request::Collect { body, .. } => {
            let txn = retention::delete_version(&world.page.meta(), &world.key(version_place(body)).sk);
            without(txn, world.is(Mutant::GcDeletesCurrent), &world.key(META).sk)
        }
        Request::Evict { now, rows, .. } => {
            let txn = eviction(world, now, rows).expect("a page that was not leased").txn;
            let without_condition = |mutant, place: usize| {
                let key = world.key(place).clone();
                move |write: Write| {
                    if world.is(mutant) && *write.key() == key { Write::delete(key.clone()) } else { write }
                }
            };
            let writes = txn.writes().iter().cloned();
            let writes = writes.map(without_condition(Mutant::EvictionOfUnseenPage, META));
            Txn::new(writes.map(without_condition(Mutant::EvictionOfLeasedPage, LOCK)))
        }
        Request::ReplaceTag { now } => {
            if world.is(Mutant::ReplacedTagIsOld) {
                let old = Write::put(world.key(TAG).clone(), Epoch::at(0).to_item());
                return Txn::from(old.when(name::PK.absent()));
            }
            // Another number than that of any operation.
            TagInvalidation::new(world.key(TAG).clone(), InvalidationMode::Soft, at(now), None, 50)
                .of_absent_row()
        }
        // As the recipe of other languages describes it.
        Request::Swap { body, .. } => {
            let pointer = Update::new([name::CURRENT_SK.set(world.key(version_place(body)).sk.as_str())]);
            Txn::new([
                Write::update(world.page.meta(), pointer).when(name::PK.exists()),
                Write::delete(world.page.lock()),
            ])
        }
    }
}

/// The deletion of the page with these rows, if production would send it.
pub(super) fn eviction(world: &World, now: i8, rows: Rows) -> Option<Deletion> {
    let of_page = rows.0.iter().enumerate().filter(|(place, _)| *place != TAG);
    let items: Vec<_> = of_page.filter_map(|(_, id)| world.item(*id).cloned()).collect();
    match eviction::plan(world.key(META), &items, at(now))? {
        Eviction::Delete(deletion) => Some(deletion),
        Eviction::Defer(_) => None,
    }
}

/// The update that extends an unchanged page, if production would send it.
pub(super) fn extension(
    world: &World,
    number: u8,
    now: i8,
    seen: RowId,
    generated_at: i8,
    epoch: RowId,
) -> Option<Txn> {
    let missing = match world.mutant {
        Some(Mutant::ExtensionWithoutPointer) => Some(Witness::Pointer),
        Some(Mutant::ExtensionWithoutInterval) => Some(Witness::Interval),
        Some(Mutant::ExtensionWithoutPublish) => Some(Witness::Publish),
        _ => None,
    };
    let witnesses: Vec<Witness> =
        Witness::ALL.into_iter().filter(|witness| Some(*witness) != missing).collect();
    let page = match world.meta(seen) {
        Some(meta) if world.scope.recipe == Recipe::Unchanged => {
            let page = rendered(world, body_of(&meta.generation.s3_key), generated_at, epoch);
            match (world.mutant, &meta.generation.epochs) {
                (Some(Mutant::ExtensionKeepsCounts), Some(seen)) => {
                    Generation { epochs: Some(seen.clone().of_copy_at(page.generated_at)), ..page }
                }
                (Some(Mutant::ExtensionDropsCounts), _) => Generation { epochs: None, ..page },
                _ => page,
            }
        }
        _ => return None,
    };
    let lease = lease(world, number, now);
    let claim = claim(world, number, now);
    let publication = publication(world, &lease, &page, world.meta(seen), claim.as_ref(), now);
    let extension = publication.extension();
    let is_possible = extension.is_some() || world.is(Mutant::ExtensionOfInvalidated);
    publication.seen.filter(|_| is_possible).map(|seen| publication.extend_if(seen, &witnesses))
}

fn publication<'a>(
    world: &World,
    lease: &'a Lease,
    page: &'a Generation,
    seen: Option<&'a Meta>,
    request: Option<&'a Claim>,
    now: i8,
) -> Publication<'a> {
    let guards = Guards { newer: world.is(Mutant::RisingForToken), ..Guards::default() };
    let ttl = ttl(world, now);
    let superseded_ttl = ttl;
    Publication { seen, ttl, superseded_ttl, request, guards, ..Publication::new(lease, page, at(now)) }
}

fn publish(world: &World, number: u8, now: i8, seen: Option<&Meta>, page: &Generation) -> Txn {
    let lease = lease(world, number, now);
    let claim = claim(world, number, now);
    let publication = publication(world, &lease, page, seen, claim.as_ref(), now);
    let txn = match (world.scope.recipe, seen) {
        (Recipe::Versioned, _) => publication.versioned(&version_id(usize::from(body_for(world, number)))),
        (Recipe::Unchanged, Some(current)) => publication.unchanged(current),
        (Recipe::InPlace | Recipe::Unchanged, _) => publication.in_place(),
    };
    let lock = Write::delete(world.key(LOCK).clone());
    let lock = match world.mutant {
        Some(Mutant::NoToken | Mutant::RisingForToken) => lock,
        Some(Mutant::ExpiryForToken) => lock.when(name::LEASE_EXPIRES_AT.gt(at(now).seconds())),
        _ => return txn,
    };
    let sk = &world.key(LOCK).sk;
    Txn::new(txn.writes().iter().filter(|write| write.key().sk != *sk).cloned().chain([lock]))
}

/// The `ttl` of rows in scopes where rows expire: they may expire at once.
fn ttl(world: &World, now: i8) -> Option<i64> {
    world.scope.budget.has(Event::RowExpiry).then(|| at(now).seconds())
}

/// The transaction in which the write to a row is replaced by a check that it exists.
fn only_check(txn: Txn, sk: &str) -> Txn {
    Txn::new(txn.writes().iter().map(|write| match write.key() {
        key if key.sk == sk => Write::check(key.clone(), name::PK.exists()),
        _ => write.clone(),
    }))
}

fn invalidation(world: &World, now: i8, how: InvalidationKind, target: Target) -> Txn {
    let found = match target {
        Target::Nothing => Found::Nothing,
        Target::Page => Found::Page,
        Target::PinEnded(seen) => {
            Found::PinEnded(pointer::decides_pin_as_in(world.item(seen).expect("META was read")))
        }
        Target::Pinned => Found::Pinned,
    };
    let txn = invalidate::page(&world.page, found, how.mode(), at(now)).expect("there is something to do");
    without(txn, world.is(Mutant::InvalidateWithoutFence), &world.key(LOCK).sk)
}

/// The transaction without the write to a row, if a mutant omits it.
fn without(txn: Txn, left_out: bool, sk: &str) -> Txn {
    if left_out { Txn::new(txn.writes().iter().filter(|write| write.key().sk != sk).cloned()) } else { txn }
}
