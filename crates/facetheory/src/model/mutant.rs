//! Mutants: the protocol without one of its guards. The model checker must detect each of them.

use super::scope::Scope;

/// A guard that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// A publish deletes the lock without checking its token.
    NoToken,
    /// A publish checks only that some lease is held.
    ExpiryForToken,
    /// A publish checks only that it is newer than the current page.
    RisingForToken,
    /// Two attempts write the same object.
    SharedBody,
    /// A rollback does not check whether the pointer has moved since it was read.
    RollbackOfUnseenPage,
    /// A rollback does not check whether its target still exists.
    RollbackToMissing,
    /// A rollback does not remove the `ttl` of its target.
    RollbackToExpiring,
    /// A rollback does not delete the lock of a render under way.
    RollbackWithoutFence,
    /// Garbage collection does not check whether a version is current.
    GcDeletesCurrent,
    /// Garbage collection deletes orphans without checking the lock.
    GcWithoutLockCheck,
    /// An invalidation does not delete the lock of a render under way.
    InvalidateWithoutFence,
    /// The epoch of a tag has no margin for clock skew.
    TagWithoutMargin,
    /// Times are compared, although the row has counts.
    CountsIgnored,
    /// A page has the counts from after its render.
    CountsReadAfterRender,
    /// The update of an unchanged page leaves the counts of the earlier render.
    ExtensionKeepsCounts,
    /// The update of an unchanged page removes the counts, so times are compared.
    ExtensionDropsCounts,
    /// An invalidation of a tag whose row has a later time is not counted.
    EarlierTimeIsNotCounted,
    /// Every row of a tag begins to count at the same number.
    SameBase,
    /// A hard invalidation of a tag does not check the count that it has read.
    ExpiryOfUnseenCount,
    /// Times are compared to find out whether a page is from before a hard invalidation of its tag.
    ExpiredCountIgnored,
    /// `META` is not read again after the lease was acquired.
    NoSecondLookup,
    /// A publish whose response was lost is retried without its client token.
    PublishWithoutClientToken,
    /// A put of `LOCK` whose response was lost is sent again with the same token.
    AcquireSentAgain,
    /// A put of `LOCK` whose response was lost is taken for granted, and the row is not read, not even by the second lookup.
    LostAcquireIsGranted,
    /// The rejection of a retry is taken for the result of the first attempt.
    RejectedRetryIsFinal,
    /// A publish with an unknown outcome is reported as not published if the release was rejected.
    RejectedReleaseIsFinal,
    /// A refused publish is reported as not published, although the lease may still be held.
    RefusalIsFinal,
    /// A publish with an unknown outcome is reported as not published, without releasing the lease.
    NoReleaseBeforeNotPublished,
    /// The second lookup does not check whether the lock is still there.
    LookupWithoutLock,
    /// The update of an unchanged page does not check the pointer.
    ExtensionWithoutPointer,
    /// The update of an unchanged page does not check the interval, which an invalidation sets to zero.
    ExtensionWithoutInterval,
    /// The update of an unchanged page does not check whether another writer has published.
    ExtensionWithoutPublish,
    /// A page that was invalidated is extended without a transaction.
    ExtensionOfInvalidated,
    /// The update of an unchanged page with an unknown outcome is reported as not published.
    UnknownExtensionIsFinal,
    /// A replaced body is deleted at once.
    NoDelayBeforeDeletion,
    /// A replaced body is deleted after the delay although a row names it.
    DeletionWithoutRows,
    /// A body that a publish with an unknown outcome concerns is deleted although its lock exists.
    DeletionWithoutLock,
    /// Such a body is deleted as soon as the lock is gone.
    DeletionRightAfterDoubt,
    /// An eviction does not check whether the page has changed since it was read.
    EvictionOfUnseenPage,
    /// An eviction does not check whether a lease is held.
    EvictionOfLeasedPage,
    /// An eviction deletes the bodies before the rows.
    EvictionOfBodiesFirst,
    /// A tag whose row is damaged counts as never invalidated.
    DamagedTagIsAbsent,
    /// The row that replaces a damaged one of a tag says that the tag was invalidated long ago.
    ReplacedTagIsOld,
    /// A page whose `META` is damaged is served as it was before.
    DamagedMetaIsFresh,
    /// A publish takes a damaged `LOCK` for that of its own lease.
    DamagedLockIsOwn,
}

impl Mutant {
    /// All mutants, each with the smallest scope in which it is detected.
    pub(super) const ALL: [(Mutant, Scope); 45] = [
        (Mutant::NoToken, Scope::RACE),
        (Mutant::ExpiryForToken, Scope::RACE),
        (Mutant::RisingForToken, Scope::RACE),
        (Mutant::SharedBody, Scope::RACE),
        (Mutant::RollbackOfUnseenPage, Scope::HISTORY),
        (Mutant::RollbackToMissing, Scope::HISTORY),
        (Mutant::RollbackToExpiring, Scope::EXPIRY),
        (Mutant::RollbackWithoutFence, Scope::FENCE),
        (Mutant::GcDeletesCurrent, Scope::HISTORY),
        (Mutant::GcWithoutLockCheck, Scope::HISTORY),
        (Mutant::InvalidateWithoutFence, Scope::FENCE),
        (Mutant::TagWithoutMargin, Scope::TAG),
        (Mutant::CountsIgnored, Scope::CLOCKS),
        (Mutant::CountsReadAfterRender, Scope::CLOCKS),
        (Mutant::ExtensionKeepsCounts, Scope::CLOCKS_UNCHANGED),
        (Mutant::ExtensionDropsCounts, Scope::CLOCKS_UNCHANGED),
        (Mutant::EarlierTimeIsNotCounted, Scope::CLOCKS),
        (Mutant::SameBase, Scope::REPLACED_TAG),
        (Mutant::ExpiryOfUnseenCount, Scope::HARD_TAG),
        (Mutant::ExpiredCountIgnored, Scope::HARD_TAG),
        (Mutant::NoSecondLookup, Scope::RACE),
        (Mutant::PublishWithoutClientToken, Scope::ALONE_IN_PLACE),
        (Mutant::AcquireSentAgain, Scope::FENCE),
        (Mutant::LostAcquireIsGranted, Scope::FENCE),
        (Mutant::RejectedRetryIsFinal, Scope::ALONE),
        (Mutant::RejectedReleaseIsFinal, Scope::ALONE),
        (Mutant::RefusalIsFinal, Scope::ALONE),
        (Mutant::NoReleaseBeforeNotPublished, Scope::ALONE),
        (Mutant::LookupWithoutLock, Scope::LATE_LOOKUP),
        (Mutant::ExtensionWithoutPointer, Scope::EXTENSION),
        (Mutant::ExtensionWithoutInterval, Scope::EXTENSION),
        (Mutant::ExtensionWithoutPublish, Scope::UNCHANGED),
        (Mutant::ExtensionOfInvalidated, Scope::INVALIDATED_TWICE),
        (Mutant::UnknownExtensionIsFinal, Scope::ALONE_UNCHANGED),
        (Mutant::NoDelayBeforeDeletion, Scope::EARLY_DELETION),
        (Mutant::DeletionWithoutRows, Scope::EARLY_DELETION_ALONE),
        (Mutant::DeletionWithoutLock, Scope::EARLY_DELETION_ALONE),
        (Mutant::DeletionRightAfterDoubt, Scope::EARLY_DELETION_ALONE),
        (Mutant::EvictionOfUnseenPage, Scope::EVICTION),
        (Mutant::EvictionOfLeasedPage, Scope::EVICTION),
        (Mutant::EvictionOfBodiesFirst, Scope::EVICTION),
        (Mutant::DamagedTagIsAbsent, Scope::DAMAGED_TAG),
        (Mutant::ReplacedTagIsOld, Scope::DAMAGED_TAG),
        (Mutant::DamagedMetaIsFresh, Scope::DAMAGE),
        (Mutant::DamagedLockIsOwn, Scope::DAMAGE),
    ];
}
