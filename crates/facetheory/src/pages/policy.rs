//! The policy of a page: when it is regenerated, and which response clients get meanwhile.

use std::time::Duration;

use crate::protocol::publish::History;

/// The policy of a page: when it is regenerated, and which response clients get meanwhile.
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
    /// How long a render is fresh.
    pub revalidate: Duration,
    /// Which generations are stored.
    pub history: History,
    /// Which response a client gets for a stale page.
    pub mode: Mode,
    /// How long after it went stale a page may be served while it is regenerated; `None` sets no limit.
    pub stale_while_revalidate: Option<Duration>,
    /// How long after it went stale a page may be served because its regeneration failed; `None` sets no limit.
    pub stale_if_error: Option<Duration>,
    /// Which response a client gets while another process regenerates the page.
    pub contention: Contention,
    /// How long a request waits for a regeneration by another process.
    pub wait: Duration,
    /// How long a render may take.
    pub render_timeout: Duration,
    /// How long after a failed render the next one is tried; doubles with each failure up to a limit.
    pub backoff: Duration,
    /// How early a page that is often requested is regenerated before it goes stale: greater is earlier, 1 is usual.
    pub early_refresh: Option<f64>,
    /// How long a 404 or 410 response is fresh.
    pub negative_ttl: Duration,
    /// How a page that another deployment rendered is treated.
    pub other_deployment: OtherDeployment,
    /// How long a lease on these pages is held unless it is refreshed; `None` uses the terms of the store.
    pub lease: Option<Duration>,
    /// How many versions besides the current one are retained when another is published; `None` leaves all of them to garbage
    /// collection.
    pub versions: Option<usize>,
    /// How long a page that is no longer used is stored, at least as long as it is fresh; `None` uses the
    /// [`Ttls`](crate::protocol::Ttls) of the store.
    pub retention: Option<Duration>,
}

/// Which response a client gets for a stale page.
///
/// ```
/// assert_eq!(facetheory::Mode::default(), facetheory::Mode::Swr);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The stale page at once; it is regenerated in the background.
    #[default]
    Swr,
    /// The new page, once it is rendered.
    Blocking,
}

/// Which response a client gets while another process regenerates the page.
///
/// ```
/// assert_eq!(facetheory::Contention::default(), facetheory::Contention::Wait);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contention {
    /// The new page, if it is published in time.
    #[default]
    Wait,
    /// The stale page, if it may be served.
    ServeStale,
}

/// How a page that another deployment rendered is treated.
///
/// ```
/// assert_eq!(facetheory::OtherDeployment::default(), facetheory::OtherDeployment::Stale);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherDeployment {
    /// As stale: it is served while it is regenerated.
    #[default]
    Stale,
    /// As missing.
    Missing,
}

impl Policy {
    /// Pages are fresh for this long, only the latest generation is stored, and stale pages are served while they are
    /// regenerated.
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
            retention: None,
        }
    }

    /// Sets which generations are stored.
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

    /// Lets requests for a stale page wait for the new one.
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
