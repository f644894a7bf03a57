//! How a page is renewed, and what visitors get meanwhile.

use std::time::Duration;

use crate::protocol::publish::History;

/// How a page is renewed, and what visitors get meanwhile.
///
/// ```
/// use facetheory::{History, Mode, Policy};
/// use std::time::Duration;
///
/// let policy = Policy::every(Duration::from_secs(60)).with_history(History::Versions).blocking();
/// assert_eq!(policy.revalidate, Duration::from_secs(60));
/// assert_eq!(policy.mode, Mode::Blocking);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// For how long a render is fresh.
    pub revalidate: Duration,
    /// Which generations are kept.
    pub history: History,
    /// What a visitor of a stale page gets.
    pub mode: Mode,
    /// For how long after it went stale a page may be served while it is renewed; none sets no limit.
    pub stale_while_revalidate: Option<Duration>,
    /// For how long after it went stale a page may be served because it cannot be renewed; none sets no limit.
    pub stale_if_error: Option<Duration>,
    /// What a visitor gets who would have to wait for a renewal by another process.
    pub contention: Contention,
    /// How long a visitor waits for a renewal by another process at most.
    pub wait: Duration,
    /// How long a render may take.
    pub render_timeout: Duration,
    /// How long after a failed render the next one is tried; this doubles with each failure up to a limit.
    pub backoff: Duration,
    /// How eagerly a page that is often visited is renewed before it goes stale: the more, the earlier; 1 is usual.
    pub early_refresh: Option<f64>,
    /// For how long a page is fresh that says that there is none (404 and 410).
    pub negative_ttl: Duration,
    /// What becomes of a page that another deployment rendered.
    pub other_deployment: OtherDeployment,
    /// How long a lease on these pages is held unless it is refreshed; none leaves that to the store.
    pub lease: Option<Duration>,
    /// How many versions besides the one that is served are left when another is published; none leaves all of them
    /// to a collection.
    pub versions: Option<usize>,
}

/// What a visitor of a stale page gets.
///
/// ```
/// assert_eq!(facetheory::Mode::default(), facetheory::Mode::Swr);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The stale page at once; it is renewed in the background.
    #[default]
    Swr,
    /// The new page, once it is rendered.
    Blocking,
}

/// What a visitor gets who would have to wait for a renewal by another process.
///
/// ```
/// assert_eq!(facetheory::Contention::default(), facetheory::Contention::Wait);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contention {
    /// The new page, if it comes in time.
    #[default]
    Wait,
    /// The stale page, if there is one that may be served.
    ServeStale,
}

/// What becomes of a page that another deployment rendered.
///
/// ```
/// assert_eq!(facetheory::OtherDeployment::default(), facetheory::OtherDeployment::Stale);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherDeployment {
    /// It is stale: served while the new one is rendered.
    #[default]
    Stale,
    /// It is as good as missing.
    Missing,
}

impl Policy {
    /// Fresh for this long after a render; only the latest is kept; served stale while it is renewed.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// assert_eq!(facetheory::Policy::every(Duration::from_secs(5)).revalidate.as_secs(), 5);
    /// ```
    #[must_use]
    pub fn every(revalidate: Duration) -> Self {
        Policy {
            revalidate,
            history: History::Latest,
            mode: Mode::Swr,
            stale_while_revalidate: None,
            stale_if_error: None,
            contention: Contention::Wait,
            wait: Duration::from_secs(10),
            render_timeout: Duration::from_secs(30),
            backoff: Duration::from_secs(1),
            early_refresh: None,
            negative_ttl: Duration::from_secs(10),
            other_deployment: OtherDeployment::Stale,
            lease: None,
            versions: None,
        }
    }

    /// The same, keeping these generations.
    ///
    /// ```
    /// use facetheory::{History, Policy};
    /// use std::time::Duration;
    ///
    /// assert_eq!(Policy::every(Duration::ZERO).with_history(History::Versions).history, History::Versions);
    /// ```
    #[must_use]
    pub fn with_history(mut self, history: History) -> Self {
        self.history = history;
        self
    }

    /// The same, where a visitor of a stale page waits for the new one.
    ///
    /// ```
    /// use facetheory::{Mode, Policy};
    /// use std::time::Duration;
    ///
    /// assert_eq!(Policy::every(Duration::ZERO).blocking().mode, Mode::Blocking);
    /// ```
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.mode = Mode::Blocking;
        self
    }
}
