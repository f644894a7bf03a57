//! `[gc]`: when garbage collection runs.

use std::time::Duration;

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use super::section::Section;
use super::units::{format_duration, serialize_duration};
use super::value::duration_from;

/// The shortest interval between two runs.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The interval that `"auto"` stands for in the embedded store.
const AUTO_INTERVAL: Duration = Duration::from_secs(86_400);
/// The value of `interval` that stands for the default.
const AUTO: &str = "auto";
/// How long unreferenced bodies are retained by default.
const DEFAULT_GRACE: Duration = Duration::from_secs(86_400);

/// When expired rows and unreferenced bodies are deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Gc {
    /// The time between two runs.
    pub(crate) interval: Interval,
    /// How long an unreferenced body is retained.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) grace: Duration,
}

/// The time between two runs of garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    /// Once a day in the embedded store, never in any other. Where table and bodies are configured separately, several
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

impl Default for Gc {
    fn default() -> Self {
        Gc { interval: Interval::Auto, grace: DEFAULT_GRACE }
    }
}

impl Gc {
    /// Reads the table. A grace period below `min_grace` is an error.
    pub(crate) fn read(mut section: Section<'_>, min_grace: Duration) -> Gc {
        let mut gc = Gc { interval: Interval::Auto, grace: DEFAULT_GRACE.max(min_grace) };
        section.set("interval", &mut gc.interval, |value| match value {
            DeValue::Boolean(false) => Ok(Interval::Never),
            DeValue::String(word) if word == AUTO => Ok(Interval::Auto),
            other => duration_from(MIN_INTERVAL)(other).map(Interval::Every).map_err(|error| {
                format!("{error}; write \"{AUTO}\" for the default, or `false` to disable gc")
            }),
        });
        section.set("grace", &mut gc.grace, |value| {
            duration_from(min_grace)(value).map_err(|error| {
                format!(
                    "{error}: the longest lease, `metadata_max_age` and ten minutes for requests in progress"
                )
            })
        });
        section.finish();
        gc
    }
}
