//! Mutants: the protocol with one guard taken out. A check that does not notice is no check.

use super::scope::Scope;

/// A guard that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// A publish deletes the lock, whoever's it is.
    NoToken,
    /// A publish asks only whether some lease is held.
    ExpiryForToken,
    /// A publish asks only whether it is newer than what is served.
    RisingForToken,
    /// Two attempts write the same object.
    SharedBody,
    /// A rollback does not ask whether the pointer has moved since it was read.
    RollbackOfUnseen,
    /// A rollback does not ask whether its target is still there.
    RollbackToMissing,
    /// A rollback leaves its target the `ttl` that it got when it was superseded.
    RollbackToExpiring,
    /// A rollback leaves the lock to a render in flight.
    RollbackWithoutFence,
    /// A collection does not ask whether the version is served.
    CollectServed,
    /// Objects are collected as soon as no row names them.
    CollectAtOnce,
    /// An invalidation leaves the lock to a render in flight.
    InvalidateWithoutFence,
    /// The epoch of a tag leaves no margin for clocks that differ.
    TagWithoutMargin,
    /// What was read before the lease was taken is believed after it.
    NoSecondLook,
    /// A publish without an answer is repeated as if it were new.
    PublishWithoutClientToken,
    /// An acquisition without an answer is repeated as if it were new.
    AcquireWithoutClientToken,
    /// A repetition that was turned away speaks for the first attempt.
    DeniedSpeaksForLost,
    /// A publish without an answer is not published if giving the lease up was turned away.
    DeniedSpeaksForUnknown,
    /// A publish is not published once it is refused, although the lease may be its own still.
    RefusalIsFinal,
    /// A publish without an answer is said to have failed, without giving the lease up.
    NoReleaseBeforeNo,
}

impl Mutant {
    /// All of them, each with the smallest scope in which it shows.
    pub(super) const ALL: [(Mutant, Scope); 19] = [
        (Mutant::NoToken, Scope::RACE),
        (Mutant::ExpiryForToken, Scope::RACE),
        (Mutant::RisingForToken, Scope::RACE),
        (Mutant::SharedBody, Scope::RACE),
        (Mutant::RollbackOfUnseen, Scope::HISTORY),
        (Mutant::RollbackToMissing, Scope::HISTORY),
        (Mutant::RollbackToExpiring, Scope::EXPIRY),
        (Mutant::RollbackWithoutFence, Scope::FENCE),
        (Mutant::CollectServed, Scope::HISTORY),
        (Mutant::CollectAtOnce, Scope::HISTORY),
        (Mutant::InvalidateWithoutFence, Scope::FENCE),
        (Mutant::TagWithoutMargin, Scope::TAG),
        (Mutant::NoSecondLook, Scope::RACE),
        (Mutant::PublishWithoutClientToken, Scope::ALONE_IN_PLACE),
        (Mutant::AcquireWithoutClientToken, Scope::FENCE),
        (Mutant::DeniedSpeaksForLost, Scope::ALONE),
        (Mutant::DeniedSpeaksForUnknown, Scope::ALONE),
        (Mutant::RefusalIsFinal, Scope::ALONE),
        (Mutant::NoReleaseBeforeNo, Scope::ALONE),
    ];
}
