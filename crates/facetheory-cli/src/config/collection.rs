//! `[collection]`: when what nothing names any more is deleted.

use std::time::Duration;

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use super::section::Section;
use super::value::duration_from;
use super::{duration as text, print_duration};

/// The shortest time between two runs.
const SHORTEST: Duration = Duration::from_secs(1);
/// The time between two runs in a store that is nobody else's, unless the file says otherwise.
const USUAL: Duration = Duration::from_secs(86_400);
/// The word for what is done where the file says nothing.
const USUAL_WORD: &str = "usual";
/// For how long bodies stay that nothing names, unless the file says otherwise.
const GRACE: Duration = Duration::from_secs(86_400);

/// When what nothing names any more is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Collection {
    /// How often.
    pub(crate) every: Every,
    /// For how long bodies stay that nothing names.
    #[serde(serialize_with = "print_duration")]
    pub(crate) grace: Duration,
}

/// How often what nothing names any more is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Every {
    /// Once a day in the embedded store. Where table and bodies are named apart from each other, others may keep bodies in the same
    /// place, and what this table does not name may be theirs: there somebody has to say so.
    Usual,
    /// Everything stays where it is.
    Never,
    /// Once in this time.
    Time(Duration),
}

impl Every {
    /// The time between two runs, if there are any, in a store that is embedded or is not.
    pub(crate) fn time(self, is_embedded: bool) -> Option<Duration> {
        match self {
            Every::Usual => is_embedded.then_some(USUAL),
            Every::Never => None,
            Every::Time(time) => Some(time),
        }
    }
}

impl Serialize for Every {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Every::Usual => serializer.serialize_str(USUAL_WORD),
            Every::Never => serializer.serialize_bool(false),
            Every::Time(time) => serializer.serialize_str(&text::print(*time)),
        }
    }
}

impl Default for Collection {
    fn default() -> Self {
        Collection { every: Every::Usual, grace: GRACE }
    }
}

impl Collection {
    /// What the table says, where a grace period that is shorter than this is not safe.
    pub(crate) fn read(mut section: Section<'_>, least: Duration) -> Collection {
        let usual = Collection::default();
        let every = |value: &DeValue<'_>| match value {
            DeValue::Boolean(false) => Ok(Every::Never),
            DeValue::String(word) if word == USUAL_WORD => Ok(Every::Usual),
            other => duration_from(SHORTEST)(other)
                .map(Every::Time)
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
