//! The time, from an injected [`Clock`], so that tests and simulations control it. Only this file reads the system clock.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment, to the millisecond, since 1970; rows carry whole seconds.
///
/// ```
/// use std::time::Duration;
/// use tabletheory::Timestamp;
///
/// let start = Timestamp::from_millis(1_700_000_000_250);
/// assert_eq!(start.seconds(), 1_700_000_000);
/// assert_eq!((start + Duration::from_secs(30)).seconds_rounded_up(), 1_700_000_031);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    millis: i64,
}

impl Timestamp {
    /// The moment so many milliseconds after 1970 began.
    ///
    /// ```
    /// assert_eq!(tabletheory::Timestamp::from_millis(1500).millis(), 1500);
    /// ```
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Timestamp { millis }
    }

    /// The moment so many seconds after 1970 began.
    ///
    /// ```
    /// assert_eq!(tabletheory::Timestamp::from_seconds(2).millis(), 2000);
    /// ```
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Timestamp { millis: seconds.saturating_mul(1000) }
    }

    /// Milliseconds since 1970 began.
    ///
    /// ```
    /// assert_eq!(tabletheory::Timestamp::from_seconds(2).millis(), 2000);
    /// ```
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.millis
    }

    /// Whole seconds since 1970 began, rounded down: what a row says of "now".
    ///
    /// ```
    /// assert_eq!(tabletheory::Timestamp::from_millis(1999).seconds(), 1);
    /// ```
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.millis.div_euclid(1000)
    }

    /// Whole seconds since 1970 began, rounded up: what a row says of an expiry.
    ///
    /// ```
    /// assert_eq!(tabletheory::Timestamp::from_millis(1001).seconds_rounded_up(), 2);
    /// ```
    #[must_use]
    pub const fn seconds_rounded_up(self) -> i64 {
        let floor = self.seconds();
        if self.millis.rem_euclid(1000) == 0 { floor } else { floor + 1 }
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.millis.saturating_add(millis))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, duration: Duration) -> Timestamp {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.millis.saturating_sub(millis))
    }
}

/// Says what time it is.
///
/// ```
/// use tabletheory::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::at(Timestamp::from_seconds(100));
/// assert_eq!(clock.now().seconds(), 100);
/// ```
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time now. It may jump back or forward, as wall clocks do.
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock.
///
/// ```
/// use tabletheory::{Clock, SystemClock};
///
/// assert!(SystemClock.now().seconds() > 1_700_000_000);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        let now = SystemTime::now();
        let millis = match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
        };
        Timestamp::from_millis(millis)
    }
}

/// A clock that stands still until it is told to move, for tests.
///
/// ```
/// use std::time::Duration;
/// use tabletheory::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::at(Timestamp::from_seconds(100));
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now().seconds(), 160);
/// ```
#[derive(Debug)]
pub struct ManualClock {
    millis: AtomicI64,
}

impl ManualClock {
    /// A clock that says this time.
    ///
    /// ```
    /// use tabletheory::{Clock, ManualClock, Timestamp};
    ///
    /// assert_eq!(ManualClock::at(Timestamp::from_seconds(7)).now().seconds(), 7);
    /// ```
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        ManualClock { millis: AtomicI64::new(now.millis()) }
    }

    /// Moves it forward.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::{Clock, ManualClock, Timestamp};
    ///
    /// let clock = ManualClock::at(Timestamp::from_seconds(7));
    /// clock.advance(Duration::from_millis(1500));
    /// assert_eq!(clock.now().millis(), 8500);
    /// ```
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Sets it, forward or back.
    ///
    /// ```
    /// use tabletheory::{Clock, ManualClock, Timestamp};
    ///
    /// let clock = ManualClock::at(Timestamp::from_seconds(7));
    /// clock.set(Timestamp::from_seconds(3));
    /// assert_eq!(clock.now().seconds(), 3);
    /// ```
    pub fn set(&self, now: Timestamp) {
        self.millis.store(now.millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::SeqCst))
    }
}
