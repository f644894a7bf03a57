//! Mutants: deliberate defects, at least one for each invariant, which show that its check can fail.

use crate::named_enum::named_enum;
use crate::violation::Invariant;

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $text:literal => $($invariant:ident)|+;)*) => {
        named_enum! {
            /// A deliberate defect of the protocol, the stores, the workers or the engines.
            ///
            /// ```
            /// use facetheory_simulation::{Invariant, Mutant};
            ///
            /// assert_eq!(Mutant::named("any-lock"), Some(Mutant::AnyLock));
            /// assert!(Mutant::AnyLock.breaks().contains(&Invariant::GrantOrder));
            /// ```
            pub enum Mutant { $($(#[$doc])* $name = $text,)* }
        }

        impl Mutant {
            /// The invariants that it violates, each in some history.
            ///
            /// ```
            /// # use facetheory_simulation::{Invariant, Mutant};
            /// assert_eq!(Mutant::HashIgnored.breaks(), [Invariant::HashMismatch]);
            /// ```
            #[must_use]
            pub fn breaks(self) -> &'static [Invariant] {
                match self { $(Mutant::$name => &[$(Invariant::$invariant),+]),* }
            }
        }
    };
}

mutants! {
    /// The table accepts a publish of any worker, whether or not it holds the lock.
    AnyLock = "any-lock" => OncePerToken | GrantOrder | NotFreshAfterInvalidation;
    /// The table ignores the condition under which an unchanged page is extended.
    BlindExtension = "blind-extension" => NotFreshAfterInvalidation;
    /// The table does not deduplicate client tokens, and executes an earlier publish again.
    Replay = "replay" => OncePerToken;
    /// The network delivers the put of a lease again after an invalidation has deleted the lease.
    RepeatedAcquire = "repeated-acquire" => NotFreshAfterInvalidation;
    /// The table executes half of a publish.
    HalfTransaction = "half-transaction" => AtomicPublish | TruthfulReport;
    /// The table does not increment the version.
    VersionStuck = "version-stuck" => VersionRises;
    /// The table acknowledges a publish without executing it.
    FalseAck = "false-ack" => TruthfulReport;
    /// The table deletes the row of a completed request.
    ForgottenResult = "forgotten-result" => SingleResult;
    /// An invalidation does not delete the lock of a running render.
    Unfenced = "unfenced" => NotFreshAfterInvalidation;
    /// The table acknowledges a tag invalidation without executing it.
    IgnoredTag = "ignored-tag" => NotFreshAfterInvalidation;
    /// An expired lock is never granted again.
    EternalLock = "eternal-lock" => Regenerated;
    /// The body store acknowledges a body without storing it.
    ForgottenBody = "forgotten-body" => NoMissingBody;
    /// The body store truncates bodies.
    TruncatedBody = "truncated-body" => StaysReadable;
    /// The body store returns another body of the same cache key.
    SwappedBody = "swapped-body" => StaysReadable;
    /// Gc deletes the current body.
    GcDeletesCurrent = "gc-deletes-current" => NoMissingBody;
    /// Gc retains fewer versions than configured.
    GcKeepsTooFew = "gc-keeps-too-few" => StaysReadable;
    /// A worker sends the same hash for every request.
    HashIgnored = "hash-ignored" => HashMismatch;
    /// The table does not raise the count of a tag that is invalidated.
    UncountedTag = "uncounted-tag" => NotFreshAfterInvalidation;
    /// A claim on a request lasts for a day.
    EndlessClaim = "endless-claim" => Regenerated;
    /// The key of a page does not contain its tenant.
    SharedPartition = "shared-partition" => TenantIsolation;
    /// A lost body is not replaced.
    NoRepair = "no-repair" => NoMissingBody;
    /// A worker panics.
    Panics = "panics" => NoPanic;
    /// Invalidations through an engine are written to the table behind its back.
    EngineBypassed = "engine-bypassed" => FreshToClients | HardInvalidated;
    /// Engines use metadata for a second, although the checker expects a read for each request.
    UndeclaredMaxAge = "undeclared-max-age" => FreshToClients;
    /// The table acknowledges entries of the change feed without storing them.
    LostFeedEntries = "lost-feed-entries" => FreshToClients;
    /// The table loses the mark of a hard invalidation.
    LostHardInvalidation = "lost-hard-invalidation" => HardInvalidated;
    /// Engines serve stale pages without limits.
    NoStaleLimits = "no-stale-limits" => StaleLimits;
    /// A process has two engines, and the table grants every lease.
    TwoEngines = "two-engines" => SingleRender;
    /// The table grants leases without writing them.
    UnrecordedLease = "unrecorded-lease" => RecoversOnce;
    /// The table takes a day to grant a lease, and engines let clients wait for it.
    HungTable = "hung-table" => RespondsInTime;
    /// Processes are not shut down.
    NoShutdown = "no-shutdown" => ShutsDown;
    /// Engines publish pages that are stale at once.
    AlwaysStale = "always-stale" => RecoversOnce;
    /// Engines delete replaced bodies after the shortest delay.
    EarlyDeletion = "early-deletion" => RetainedForReaders;
    /// The table deletes a page that is evicted, whether or not it is in use.
    UnguardedEviction = "unguarded-eviction" => EvictedUnused;
    /// The table acknowledges the deletion of a page that is evicted without executing it.
    FalseEviction = "false-eviction" => NoMissingBody;
    /// The table returns no rows to an engine that checks whether a replaced body is unused.
    BlindCheck = "blind-check" => NoMissingBody;
    /// The table returns no row where one is damaged.
    UndetectedDamage = "undetected-damage" => FreshToClients;
    /// Engines have no memory tier.
    NoMemory = "no-memory" => ServesDuringOutage;
}

impl Mutant {
    /// Whether it needs a history with clients.
    ///
    /// ```
    /// assert!(facetheory_simulation::Mutant::EngineBypassed.is_about_clients());
    /// ```
    #[must_use]
    pub fn is_about_clients(self) -> bool {
        matches!(self, Mutant::BlindCheck | Mutant::FalseEviction)
            || self.breaks().iter().any(|invariant| invariant.is_about_clients())
    }

    /// The mutant with this name.
    ///
    /// ```
    /// assert_eq!(facetheory_simulation::Mutant::named("unknown"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Mutant> {
        Mutant::ALL.iter().copied().find(|mutant| mutant.to_string() == name)
    }
}
