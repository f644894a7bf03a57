//! The time, from an injected [`Clock`], so that tests and simulations control it. Only this file reads the system clock.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time, in milliseconds since the Unix epoch. Rows store whole seconds.
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
    /// Creates a timestamp from milliseconds since the Unix epoch.
    ///
    /// ```
    /// assert_eq!(tabletheory::Timestamp::from_millis(1500).millis(), 1500);
    /// ```
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Timestamp { millis }
    }

    /// Creates a timestamp from seconds since the Unix epoch.
    ///
    /// ```
    /// assert_eq!(tabletheory::Timestamp::from_seconds(2).millis(), 2000);
    /// ```
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Timestamp { millis: seconds.saturating_mul(1000) }
    }

    /// Returns the milliseconds since the Unix epoch.
    ///
    /// ```
    /// assert_eq!(tabletheory::Timestamp::from_seconds(2).millis(), 2000);
    /// ```
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.millis
    }

    /// Returns whole seconds since the Unix epoch, rounded down. Rows store the current time in this form.
    ///
    /// ```
    /// assert_eq!(tabletheory::Timestamp::from_millis(1999).seconds(), 1);
    /// ```
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.millis.div_euclid(1000)
    }

    /// Returns whole seconds since the Unix epoch, rounded up. Rows store expiry times in this form.
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

/// A source of the current time.
///
/// ```
/// use tabletheory::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::at(Timestamp::from_seconds(100));
/// assert_eq!(clock.now().seconds(), 100);
/// ```
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the current time. It may jump back or forward, as wall clocks do.
    fn now(&self) -> Timestamp;
}

/// The wall clock of the operating system.
///
/// ```
/// use tabletheory::{Clock, SystemClock};
///
/// assert!(SystemClock.now().seconds() > 1_700_000_000);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        let now = SystemTime::now();
        let millis = match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
        };
        Timestamp::from_millis(millis)
    }
}

/// A clock for tests, which changes only by [`advance`](ManualClock::advance) and [`set`](ManualClock::set).
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
    /// Creates a clock that shows `now`.
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

    /// Moves the clock forward.
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

    /// Sets the clock, forward or back.
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
