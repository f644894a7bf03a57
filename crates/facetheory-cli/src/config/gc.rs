//! `[gc]`: when garbage collection runs.

use std::time::Duration;

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use super::section::Section;
use super::units::{format_duration, serialize_duration};
use super::value::duration_from;

/// The shortest interval between two runs.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The interval that `"auto"` stands for in the embedded store. A run reads all rows and lists all bodies, and finds what
/// processes have left that were killed.
const AUTO_INTERVAL: Duration = Duration::from_secs(3600);
/// The value of `interval` and of `grace` that stands for the default.
const AUTO: &str = "auto";
/// How long unreferenced bodies are retained by default in the embedded store, whose processes share one clock.
const EMBEDDED_GRACE: Duration = Duration::from_secs(15 * 60);
/// How long they are retained by default in other stores.
const SHARED_GRACE: Duration = Duration::from_secs(86_400);
/// How long a body is retained by default after another one replaced it.
const DEFAULT_REPLACED: Duration = Duration::from_secs(600);

/// When expired rows and unreferenced bodies are deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Gc {
    /// The time between two runs.
    pub(crate) interval: Interval,
    /// How long an unreferenced body is retained.
    pub(crate) grace: Grace,
    /// How long a body is retained after another one replaced it; `None` leaves it to garbage collection.
    #[serde(serialize_with = "serialize_replaced")]
    pub(crate) replaced: Option<Duration>,
}

/// How long garbage collection retains an unreferenced body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grace {
    /// A quarter of an hour in the embedded store, a day in any other, and never less than is safe.
    Auto,
    /// This time.
    For(Duration),
}

impl Grace {
    /// Returns the grace period, of which the shortest safe one is `least`.
    pub(super) fn resolve(self, is_embedded: bool, least: Duration) -> Duration {
        match self {
            Grace::Auto => least.max(if is_embedded { EMBEDDED_GRACE } else { SHARED_GRACE }),
            Grace::For(grace) => grace,
        }
    }
}

impl Serialize for Grace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Grace::Auto => serializer.serialize_str(AUTO),
            Grace::For(grace) => serialize_duration(grace, serializer),
        }
    }
}

#[expect(clippy::ref_option, reason = "the signature that serde requires")]
fn serialize_replaced<S: Serializer>(replaced: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match replaced {
        Some(replaced) => serialize_duration(replaced, serializer),
        None => serializer.serialize_bool(false),
    }
}

/// The time between two runs of garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    /// Once an hour in the embedded store, never in any other. Where table and bodies are configured separately, several
    /// tables may share one bucket, and a body that this table does not reference may belong to another one. Deleting
    /// there must be enabled explicitly.
    Auto,
    /// Garbage collection is disabled.
    Never,
    /// Once in this time.
    Every(Duration),
}

impl Interval {
    /// Returns the time between two runs, or `None` if garbage collection does not run.
    pub(crate) fn resolve(self, is_embedded: bool) -> Option<Duration> {
        match self {
            Interval::Auto => is_embedded.then_some(AUTO_INTERVAL),
            Interval::Never => None,
            Interval::Every(interval) => Some(interval),
        }
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Interval::Auto => serializer.serialize_str(AUTO),
            Interval::Never => serializer.serialize_bool(false),
            Interval::Every(interval) => serializer.serialize_str(&format_duration(*interval)),
        }
    }
}

/// The shortest times for which bodies are safely retained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinRetention {
    pub(crate) grace: Duration,
    pub(crate) replaced: Duration,
}

impl Default for Gc {
    fn default() -> Self {
        Gc { interval: Interval::Auto, grace: Grace::Auto, replaced: Some(DEFAULT_REPLACED) }
    }
}

impl Gc {
    /// Reads the table. A time below its minimum is an error.
    pub(crate) fn read(mut section: Section<'_>, least: MinRetention) -> Gc {
        let mut gc = Gc { replaced: Some(DEFAULT_REPLACED.max(least.replaced)), ..Gc::default() };
        section.set("interval", &mut gc.interval, |value| match value {
            DeValue::Boolean(false) => Ok(Interval::Never),
            DeValue::String(word) if word == AUTO => Ok(Interval::Auto),
            other => duration_from(MIN_INTERVAL)(other).map(Interval::Every).map_err(|error| {
                format!("{error}; write \"{AUTO}\" for the default, or `false` to disable gc")
            }),
        });
        section.set("grace", &mut gc.grace, |value| match value {
            DeValue::String(word) if word == AUTO => Ok(Grace::Auto),
            other => duration_from(least.grace)(other).map(Grace::For).map_err(|error| {
                format!(
                    "{error}: the longest lease, `metadata_max_age` and ten minutes for requests in progress"
                )
            }),
        });
        section.set("replaced", &mut gc.replaced, |value| match value {
            DeValue::Boolean(false) => Ok(None),
            other => duration_from(least.replaced)(other).map(Some).map_err(|error| {
                format!(
                    "{error}: the longest lease, `metadata_max_age` and the timeouts of table and bodies; write `false` to \
                     leave replaced bodies to gc"
                )
            }),
        });
        section.finish();
        gc
    }
}
