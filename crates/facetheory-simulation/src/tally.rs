//! How much happened.

use std::collections::BTreeMap;
use std::fmt;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident => $label:literal),* $(,)?) => {
        /// Something that is counted.
        ///
        /// ```
        /// assert_eq!(facetheory_simulation::Count::Granted.to_string(), "leases granted");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Count { $($(#[$doc])* $name),* }

        impl Count {
            /// All of them, in the order of a summary.
            ///
            /// ```
            /// assert_eq!(facetheory_simulation::Count::ALL[0], facetheory_simulation::Count::Granted);
            /// ```
            pub const ALL: &[Count] = &[$(Count::$name),*];
        }

        impl fmt::Display for Count {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Count::$name => $label),* })
            }
        }
    };
}

counts! {
    /// Leases that were granted.
    Granted => "leases granted",
    /// Renders that were published with a new body.
    Published => "renders published",
    /// Renders that came out the same.
    Unchanged => "renders unchanged",
    /// Publishes of which their worker never heard.
    Unheard => "publishes unheard of",
    /// Regenerations and requests that ended in vain.
    Denied => "renders in vain",
    /// Workers that died in the middle of a deed.
    Crashed => "crashes",
    /// Pages that were looked at and served.
    Served => "pages served",
    /// Of those, the ones that were fresh.
    ServedFresh => "pages served fresh",
    /// Soft and hard invalidations of a page.
    Invalidated => "invalidations",
    /// Invalidations of a tag.
    TagInvalidated => "tag invalidations",
    /// Rollbacks.
    RolledBack => "rollbacks",
    /// Pins that were taken off.
    Unpinned => "pins taken off",
    /// Requests that were begun.
    RequestStarted => "requests started",
    /// Requests that were finished with a publish.
    RequestCompleted => "requests completed",
    /// Requests that were given up.
    RequestFailed => "requests given up",
    /// Deliveries of a request that was done already.
    RequestReplayed => "requests replayed",
    /// Deliveries of a request that somebody works on.
    RequestInProgress => "requests in progress",
    /// Requests that were taken over from a worker that had vanished or given up.
    RequestTakenOver => "requests taken over",
    /// Deliveries of a known key with another hash.
    RequestMismatched => "requests mismatched",
    /// Versions that were collected.
    Collected => "versions collected",
    /// Rows that their `ttl` had deleted.
    Expired => "rows expired",
    /// Bodies that were stored.
    Stored => "bodies stored",
    /// Bodies that vanished.
    Lost => "bodies lost",
    /// Bodies whose bytes were changed.
    Damaged => "bodies damaged",
    /// Pages whose lost or damaged body was replaced.
    Healed => "pages healed",
    /// Renders that an engine began for a visitor.
    Rendered => "renders for visitors",
    /// Visitors who were served a fresh page.
    Hit => "visits: hit",
    /// Visitors who were served a stale page while it was renewed.
    Stale => "visits: stale",
    /// Visitors who waited for a render by somebody else.
    WaitHit => "visits: wait-hit",
    /// Visitors for whom a page was rendered.
    Miss => "visits: miss",
    /// Visitors who were given a page that nobody else is.
    Bypass => "visits: bypass",
    /// Visitors who were served a stale page because it could not be rendered.
    StaleError => "visits: stale-error",
    /// Visitors who were served from memory because the table could not be reached.
    StaleMetadataError => "visits: stale-metadata-error",
    /// Visitors who were told to ask the origin, or that the render had failed.
    TurnedAway => "visits: turned away",
}

impl Count {
    /// Those that only a world of visitors has.
    ///
    /// ```
    /// # use facetheory_simulation::Count;
    /// assert!(Count::OF_VISITORS.contains(&Count::Hit));
    /// ```
    pub const OF_VISITORS: &[Count] = &[
        Count::Rendered,
        Count::Hit,
        Count::Stale,
        Count::WaitHit,
        Count::Miss,
        Count::Bypass,
        Count::StaleError,
        Count::StaleMetadataError,
        Count::TurnedAway,
    ];
}

/// How often each thing happened.
///
/// ```
/// use facetheory_simulation::{Count, Tally};
///
/// let mut tally = Tally::default();
/// tally.add(Count::Granted, 2);
/// assert_eq!(tally.of(Count::Granted), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<Count, u64>);

impl Tally {
    /// So many more of this.
    ///
    /// ```
    /// # use facetheory_simulation::{Count, Tally};
    /// Tally::default().add(Count::Lost, 1);
    /// ```
    pub fn add(&mut self, count: Count, number: u64) {
        *self.0.entry(count).or_default() += number;
    }

    /// How many of this.
    ///
    /// ```
    /// # use facetheory_simulation::{Count, Tally};
    /// assert_eq!(Tally::default().of(Count::Lost), 0);
    /// ```
    #[must_use]
    pub fn of(&self, count: Count) -> u64 {
        self.0.get(&count).copied().unwrap_or(0)
    }

    /// All of another one, too.
    ///
    /// ```
    /// # use facetheory_simulation::Tally;
    /// let mut all = Tally::default();
    /// all.merge(&Tally::default());
    /// assert_eq!(all, Tally::default());
    /// ```
    pub fn merge(&mut self, other: &Tally) {
        for (count, number) in &other.0 {
            self.add(*count, *number);
        }
    }
}

/// A table with one line for each thing that happened.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut happened = Count::ALL.iter().filter(|count| self.of(**count) > 0);
        happened.try_for_each(|count| writeln!(f, "  {:<30} {:>10}", count.to_string(), self.of(*count)))
    }
}
