//! `[collection]`: when what nothing names any more is deleted.

use std::time::Duration;

use serde::Serialize;
use toml::de::DeValue;

use super::section::Section;
use super::timeout::print_limit;
use super::value::duration_from;
use super::{duration as text, print_duration};

/// The shortest time between two runs.
const SHORTEST: Duration = Duration::from_secs(1);
/// For how long bodies stay that nothing names, unless the file says otherwise.
const GRACE: Duration = Duration::from_secs(86_400);

/// When what nothing names any more is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Collection {
    /// How often; none leaves everything where it is.
    #[serde(serialize_with = "print_limit")]
    pub(crate) every: Option<Duration>,
    /// For how long bodies stay that nothing names.
    #[serde(serialize_with = "print_duration")]
    pub(crate) grace: Duration,
}

impl Default for Collection {
    fn default() -> Self {
        Collection { every: Some(Duration::from_secs(86_400)), grace: GRACE }
    }
}

impl Collection {
    /// What the table says, where a grace period that is shorter than this is not safe.
    pub(crate) fn read(mut section: Section<'_>, least: Duration) -> Collection {
        let usual = Collection::default();
        let every = |value: &DeValue<'_>| match value {
            DeValue::Boolean(false) => Ok(None),
            other => duration_from(SHORTEST)(other)
                .map(Some)
                .map_err(|fault| format!("{fault}; `false` leaves everything where it is")),
        };
        let grace = |value: &DeValue<'_>| {
            duration_from(least)(value).map_err(|fault| {
                let least = text::print(least);
                format!("{fault}: {least} is the longest lease, `believe` and ten minutes for readers on their way")
            })
        };
        let collection = Collection {
            every: section.read("every", every).unwrap_or(usual.every),
            grace: section.read("grace", grace).unwrap_or(usual.grace.max(least)),
        };
        section.finish();
        collection
    }
}
