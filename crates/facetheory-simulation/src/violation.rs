//! What must hold, and how it was broken.

use std::fmt;

/// What must hold in every history.
///
/// ```
/// use facetheory_simulation::Invariant;
///
/// assert!(Invariant::VersionRises.to_string().starts_with("`version` rises by one"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Invariant {
    /// A token publishes at most once, and only while it is the lock's.
    OncePerToken,
    /// No publish by an earlier grant after a later one.
    GrantOrder,
    /// The version of a page rises by one and is never reused.
    VersionRises,
    /// The rows of a publish appear together or not at all.
    Together,
    /// An acknowledged publish stays readable, digest-true, until retention ends.
    StaysReadable,
    /// `META` never names a missing body, except by injected loss, which heals.
    NoMissingBody,
    /// The same request key and hash gives one result.
    OneResult,
    /// Another hash gives an error and no write.
    OtherHash,
    /// Nothing rendered before an invalidation is fresh after it.
    NotFreshAfterInvalidation,
    /// Once faults stop, every stale page is renewed and no lock or claim outlives its bound.
    Renewed,
    /// No tenant sees another's body.
    TenantsApart,
    /// What is reported as published was, and what is reported as not published never is.
    TruthfulReport,
    /// What visitors are shown as fresh was rendered after every invalidation that their process knows or should know.
    ShownFresh,
    /// What was forbidden is not served, whatever the state.
    Forbidden,
    /// A fresh page is within its interval, and a stale one within the limits of its policy.
    WithinLimits,
    /// A process renders a page once at a time, and only under a lease.
    OneRender,
    /// Every visitor is answered within a bound of time.
    Answered,
    /// A process ends in time, and nothing of it goes on after that.
    Ends,
    /// Once faults stop, every page is fresh again with one render.
    Recovers,
    /// While the table is down, pages in memory are served, marked.
    OutlivesTable,
    /// The production code does not panic.
    NoPanic,
}

impl Invariant {
    /// All of them.
    ///
    /// ```
    /// assert!(facetheory_simulation::Invariant::ALL.len() > 10);
    /// ```
    pub const ALL: &[Invariant] = &[
        Invariant::OncePerToken,
        Invariant::GrantOrder,
        Invariant::VersionRises,
        Invariant::Together,
        Invariant::StaysReadable,
        Invariant::NoMissingBody,
        Invariant::OneResult,
        Invariant::OtherHash,
        Invariant::NotFreshAfterInvalidation,
        Invariant::Renewed,
        Invariant::TenantsApart,
        Invariant::TruthfulReport,
        Invariant::ShownFresh,
        Invariant::Forbidden,
        Invariant::WithinLimits,
        Invariant::OneRender,
        Invariant::Answered,
        Invariant::Ends,
        Invariant::Recovers,
        Invariant::OutlivesTable,
        Invariant::NoPanic,
    ];
}

impl Invariant {
    /// Whether it is about visitors, and not about workers.
    ///
    /// ```
    /// assert!(facetheory_simulation::Invariant::Answered.is_about_visitors());
    /// ```
    #[must_use]
    pub fn is_about_visitors(self) -> bool {
        (Invariant::ShownFresh..=Invariant::OutlivesTable).contains(&self)
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Invariant::OncePerToken => "a token publishes at most once, and only while it is the lock's",
            Invariant::GrantOrder => "no publish by an earlier grant comes after a later one",
            Invariant::VersionRises => "`version` rises by one and is never reused",
            Invariant::Together => "the rows of a publish appear together or not at all",
            Invariant::StaysReadable => {
                "an acknowledged publish stays readable, digest-true, until retention ends"
            }
            Invariant::NoMissingBody => {
                "`META` never names a missing body, except by injected loss, which heals"
            }
            Invariant::OneResult => {
                "the same request key and hash gives one result, however often it is delivered"
            }
            Invariant::OtherHash => "another hash under the same request key gives an error and no write",
            Invariant::NotFreshAfterInvalidation => {
                "nothing rendered before an invalidation is ever fresh after it"
            }
            Invariant::Renewed => {
                "once faults stop, every stale page is renewed and no lock or STARTED outlives its bound"
            }
            Invariant::TenantsApart => "no tenant sees another's body",
            Invariant::TruthfulReport => {
                "what is reported as published was, and what is reported as not published never is"
            }
            Invariant::ShownFresh => {
                "what visitors are shown as fresh was rendered after every invalidation that their process knows of"
            }
            Invariant::Forbidden => "what was forbidden is not served",
            Invariant::WithinLimits => "a stale page is served within the limits of its policy only",
            Invariant::OneRender => "a process renders a page once at a time, and only under a lease",
            Invariant::Answered => "every visitor is answered within a bound of time",
            Invariant::Ends => "a process ends in time, and nothing of it goes on after that",
            Invariant::Recovers => "once faults stop, every page is fresh again with one render",
            Invariant::OutlivesTable => "while the table is down, pages in memory are served, marked",
            Invariant::NoPanic => "the production code does not panic",
        })
    }
}

/// An invariant that was broken.
///
/// ```
/// use facetheory_simulation::{Mutant, Settings, simulate};
///
/// let broken = Settings { mutant: Some(Mutant::ForgottenBody), ..Settings::default() };
/// let violation = (0..50).find_map(|seed| simulate(seed, &broken).violation).expect("it is noticed");
/// assert!(!violation.events.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// What should have held.
    pub invariant: Invariant,
    /// What was seen instead.
    pub what: String,
    /// What happened last before that, oldest first.
    pub events: Vec<String>,
}
