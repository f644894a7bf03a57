//! Invariants, and how one was violated.

use crate::named_enum::named_enum;

named_enum! {
    /// A statement that holds in every history.
    ///
    /// ```
    /// use facetheory_simulation::Invariant;
    ///
    /// assert!(Invariant::VersionRises.to_string().starts_with("`version` rises by one"));
    /// ```
    pub enum Invariant {
        OncePerToken = "a token publishes at most once, and only while it holds the lock",
        GrantOrder = "no publish by an earlier grant comes after a later one",
        VersionRises = "`version` rises by one and is never reused",
        AtomicPublish = "the rows of a publish appear together or not at all",
        StaysReadable = "an acknowledged publish stays readable with its digest until retention ends",
        NoMissingBody = "`META` never refers to a missing body, except after injected loss, which is repaired",
        SingleResult = "the same request key and hash gives one result, however often it is delivered",
        HashMismatch = "another hash under the same request key gives an error and no write",
        NotFreshAfterInvalidation = "no page rendered before an invalidation is fresh after it",
        Regenerated = "once faults stop, every stale page is regenerated and no lock or claim outlives its bound",
        TenantIsolation = "no tenant sees the body of another",
        TruthfulReport = "a publish is reported as published, and never as not published",
        FreshToClients = "a response marked as fresh was rendered after every invalidation that its process must know",
        HardInvalidated = "a hard-invalidated page is not served",
        StaleLimits = "a stale page is served only within the limits of its policy",
        SingleRender = "a process renders a page once at a time under a lease, and once at a time without one",
        RespondsInTime = "every client gets a response within a bound of time",
        ShutsDown = "a process shuts down in time and does nothing afterwards",
        RecoversOnce = "once faults stop, every page becomes fresh with one render",
        RetainedForReaders = "a replaced body is stored as long as a process may use the metadata that names it",
        EvictedUnused = "a page is not evicted while it is rendered or pinned",
        ServesDuringOutage = "while the table is down, pages in memory are served, marked as stale",
        NoPanic = "the production code does not panic",
    }
}

impl Invariant {
    /// Whether it concerns clients, and not workers.
    ///
    /// ```
    /// assert!(facetheory_simulation::Invariant::RespondsInTime.is_about_clients());
    /// ```
    #[must_use]
    pub fn is_about_clients(self) -> bool {
        (Invariant::FreshToClients..=Invariant::ServesDuringOutage).contains(&self)
    }
}

/// A violated invariant.
///
/// ```
/// use facetheory_simulation::{Mutant, Settings, simulate};
///
/// let settings = Settings { mutant: Some(Mutant::ForgottenBody), ..Settings::default() };
/// let violation = (0..50).find_map(|seed| simulate(seed, &settings).violation).expect("a violation");
/// assert!(!violation.events.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The observation that contradicts it.
    pub what: String,
    /// The events before the violation, oldest first.
    pub events: Vec<String>,
}
