//! Deliberate breaks: for every invariant something that it must notice. A check that nothing can fail is none.

use std::fmt;

use crate::violation::Invariant;

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident, $text:literal => $($invariant:ident)|+);* $(;)?) => {
        /// A deliberate break of the protocol or of the stores beneath it.
        ///
        /// ```
        /// use facetheory_simulation::{Invariant, Mutant};
        ///
        /// assert_eq!(Mutant::named("any-lock"), Some(Mutant::AnyLock));
        /// assert!(Mutant::AnyLock.breaks().contains(&Invariant::GrantOrder));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Mutant { $($(#[$doc])* $name),* }

        impl Mutant {
            /// All of them.
            ///
            /// ```
            /// assert!(facetheory_simulation::Mutant::ALL.len() > 10);
            /// ```
            pub const ALL: &[Mutant] = &[$(Mutant::$name),*];

            /// The invariants that it breaks, each in some history.
            ///
            /// ```
            /// # use facetheory_simulation::{Invariant, Mutant};
            /// assert_eq!(Mutant::HashIgnored.breaks(), [Invariant::OtherHash]);
            /// ```
            #[must_use]
            pub fn breaks(self) -> &'static [Invariant] {
                match self { $(Mutant::$name => &[$(Invariant::$invariant),+]),* }
            }
        }

        impl fmt::Display for Mutant {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Mutant::$name => $text),* })
            }
        }
    };
}

mutants! {
    /// A publish is let through whoever holds the lock.
    AnyLock, "any-lock" => OncePerToken | GrantOrder | NotFreshAfterInvalidation;
    /// The table forgets which transactions it has done, and does an earlier publish again.
    Replay, "replay" => OncePerToken;
    /// The table does half of a publish.
    HalfTransaction, "half-transaction" => Together | TruthfulReport;
    /// The table forgets to raise the version.
    VersionStuck, "version-stuck" => VersionRises;
    /// The table acknowledges a publish that it has not done.
    HollowAnswer, "hollow-answer" => TruthfulReport;
    /// The table forgets that a request was done.
    ForgottenResult, "forgotten-result" => OneResult;
    /// An invalidation leaves the lock of a render in flight.
    Unfenced, "unfenced" => NotFreshAfterInvalidation;
    /// The invalidation of a tag is acknowledged and not done.
    DeafTag, "deaf-tag" => NotFreshAfterInvalidation;
    /// A lock that has expired is never given to anyone else.
    EternalLock, "eternal-lock" => Renewed;
    /// The store of bodies acknowledges a body that it has not kept.
    ForgottenBody, "forgotten-body" => NoMissingBody;
    /// The store of bodies keeps other bytes than it was given.
    ShortBody, "short-body" => StaysReadable;
    /// The store of bodies gives out another body of the same cache key.
    SwappedBody, "swapped-body" => StaysReadable;
    /// A collector deletes the body that is served.
    EagerCollector, "eager-collector" => NoMissingBody;
    /// A collector keeps fewer versions than it was told to.
    ShortMemory, "short-memory" => StaysReadable;
    /// A worker sends the same hash whatever was asked for.
    HashIgnored, "hash-ignored" => OtherHash;
    /// A worker believes that clocks do not differ.
    NoMargin, "no-margin" => NotFreshAfterInvalidation;
    /// A claim on a request lasts for a day.
    EndlessClaim, "endless-claim" => Renewed;
    /// The key of a page forgets its tenant.
    SharedPartition, "shared-partition" => TenantsApart;
    /// Nobody heals a page whose body got lost.
    Unhealed, "unhealed" => NoMissingBody;
    /// A worker panics.
    Panics, "panics" => NoPanic;
    /// Operators go past the engine that they seem to use, which goes on metadata_max_age what it knows.
    NoDoubt, "no-doubt" => ShownFresh | Forbidden;
    /// Engines believe for a second what they are said to ask for each time.
    Credulous, "credulous" => ShownFresh;
    /// The table forgets that a page may not be served.
    Lenient, "lenient" => Forbidden;
    /// Engines are told that a stale page may be served for ever.
    NoLimits, "no-limits" => WithinLimits;
    /// A process has two engines, and the table gives every lease to whoever asks.
    Twins, "twins" => OneRender;
    /// The table grants leases that it does not write down.
    HollowLease, "hollow-lease" => OneRender;
    /// The table takes a day to answer whoever wants a lease, and engines are told to let visitors wait for it.
    MuteTable, "mute-table" => Answered;
    /// Processes are not told to end.
    Undead, "undead" => Ends;
    /// Engines are told that what they render is stale at once.
    StillBorn, "still-born" => Recovers;
    /// Engines keep nothing in memory.
    NoMemory, "no-memory" => OutlivesTable;
}

impl Mutant {
    /// Whether it is at work in a world of visitors, and not of workers.
    ///
    /// ```
    /// assert!(facetheory_simulation::Mutant::NoDoubt.is_about_visitors());
    /// ```
    #[must_use]
    pub fn is_about_visitors(self) -> bool {
        self.breaks().iter().any(|invariant| invariant.is_about_visitors())
    }

    /// The one with this name.
    ///
    /// ```
    /// assert_eq!(facetheory_simulation::Mutant::named("none-such"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Mutant> {
        Mutant::ALL.iter().copied().find(|mutant| mutant.to_string() == name)
    }
}
