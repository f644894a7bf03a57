//! Mutants: deliberate defects, at least one for each invariant, which show that its check can fail.

use crate::named_enum::named_enum;
use crate::violation::Invariant::{self, *};

named_enum! {
    /// A deliberate defect of the protocol, the stores, the workers or the engines.
    ///
    /// ```
    /// use facetheory_simulation::{Invariant, Mutant};
    ///
    /// assert_eq!(Mutant::named("any-lock"), Some(Mutant::AnyLock));
    /// assert!(Mutant::AnyLock.breaks().contains(&Invariant::GrantOrder));
    /// ```
    pub enum Mutant {
        /// The table accepts a publish of any worker, whether or not it holds the lock.
        AnyLock = "any-lock",
        /// The table does not deduplicate client tokens, and executes an earlier publish again.
        Replay = "replay",
        /// The table executes half of a publish.
        HalfTransaction = "half-transaction",
        /// The table does not increment the version.
        VersionStuck = "version-stuck",
        /// The table acknowledges a publish without executing it.
        FalseAck = "false-ack",
        /// The table deletes the row of a completed request.
        ForgottenResult = "forgotten-result",
        /// An invalidation does not delete the lock of a running render.
        Unfenced = "unfenced",
        /// The table acknowledges a tag invalidation without executing it.
        IgnoredTag = "ignored-tag",
        /// An expired lock is never granted again.
        EternalLock = "eternal-lock",
        /// The body store acknowledges a body without storing it.
        ForgottenBody = "forgotten-body",
        /// The body store truncates bodies.
        TruncatedBody = "truncated-body",
        /// The body store returns another body of the same cache key.
        SwappedBody = "swapped-body",
        /// Gc deletes the current body.
        GcDeletesCurrent = "gc-deletes-current",
        /// Gc retains fewer versions than configured.
        GcKeepsTooFew = "gc-keeps-too-few",
        /// A worker sends the same hash for every request.
        HashIgnored = "hash-ignored",
        /// A worker compares times without a margin for clock skew.
        NoSkewMargin = "no-skew-margin",
        /// A claim on a request lasts for a day.
        EndlessClaim = "endless-claim",
        /// The key of a page does not contain its tenant.
        SharedPartition = "shared-partition",
        /// A lost body is not replaced.
        NoRepair = "no-repair",
        /// A worker panics.
        Panics = "panics",
        /// Invalidations through an engine are written to the table behind its back.
        EngineBypassed = "engine-bypassed",
        /// Engines use metadata for a second, although the checker expects a read for each request.
        UndeclaredMaxAge = "undeclared-max-age",
        /// The table loses the mark of a hard invalidation.
        LostHardInvalidation = "lost-hard-invalidation",
        /// Engines serve stale pages without limits.
        NoStaleLimits = "no-stale-limits",
        /// A process has two engines, and the table grants every lease.
        TwoEngines = "two-engines",
        /// The table grants leases without writing them.
        UnrecordedLease = "unrecorded-lease",
        /// The table takes a day to grant a lease, and engines let clients wait for it.
        HungTable = "hung-table",
        /// Processes are not shut down.
        NoShutdown = "no-shutdown",
        /// Engines publish pages that are stale at once.
        AlwaysStale = "always-stale",
        /// Engines have no memory tier.
        NoMemory = "no-memory",
    }
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
        match self {
            Mutant::AnyLock => &[OncePerToken, GrantOrder, NotFreshAfterInvalidation],
            Mutant::Replay => &[OncePerToken],
            Mutant::HalfTransaction => &[AtomicPublish, TruthfulReport],
            Mutant::VersionStuck => &[VersionRises],
            Mutant::FalseAck => &[TruthfulReport],
            Mutant::ForgottenResult => &[SingleResult],
            Mutant::Unfenced | Mutant::IgnoredTag | Mutant::NoSkewMargin => &[NotFreshAfterInvalidation],
            Mutant::EternalLock | Mutant::EndlessClaim => &[Regenerated],
            Mutant::ForgottenBody | Mutant::GcDeletesCurrent | Mutant::NoRepair => &[NoMissingBody],
            Mutant::TruncatedBody | Mutant::SwappedBody | Mutant::GcKeepsTooFew => &[StaysReadable],
            Mutant::HashIgnored => &[HashMismatch],
            Mutant::SharedPartition => &[TenantIsolation],
            Mutant::Panics => &[NoPanic],
            Mutant::EngineBypassed => &[FreshToClients, HardInvalidated],
            Mutant::UndeclaredMaxAge => &[FreshToClients],
            Mutant::LostHardInvalidation => &[HardInvalidated],
            Mutant::NoStaleLimits => &[StaleLimits],
            Mutant::TwoEngines | Mutant::UnrecordedLease => &[SingleRender],
            Mutant::HungTable => &[RespondsInTime],
            Mutant::NoShutdown => &[ShutsDown],
            Mutant::AlwaysStale => &[RecoversOnce],
            Mutant::NoMemory => &[ServesDuringOutage],
        }
    }

    /// Whether it needs a history with clients.
    ///
    /// ```
    /// assert!(facetheory_simulation::Mutant::EngineBypassed.is_about_clients());
    /// ```
    #[must_use]
    pub fn is_about_clients(self) -> bool {
        self.breaks().iter().any(|invariant| invariant.is_about_clients())
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
