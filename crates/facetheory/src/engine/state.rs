//! How a visitor was served.

use std::fmt;

/// How a visitor was served, as `x-facetheory-isr` says it.
///
/// ```
/// assert_eq!(facetheory::State::WaitHit.to_string(), "wait-hit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// With a fresh page.
    Hit,
    /// With a stale page, which is being renewed.
    Stale,
    /// With a fresh page that somebody else rendered meanwhile.
    WaitHit,
    /// With a page that was rendered for this visitor.
    Miss,
    /// Without the cache.
    Bypass,
    /// With a stale page, because it could not be rendered.
    StaleError,
    /// With what was in memory, because the table could not be asked.
    StaleMetadataError,
}

impl State {
    /// All of them.
    pub(crate) const ALL: [State; 7] = [
        State::Hit,
        State::Stale,
        State::WaitHit,
        State::Miss,
        State::Bypass,
        State::StaleError,
        State::StaleMetadataError,
    ];

    /// The word on the wire.
    ///
    /// ```
    /// assert_eq!(facetheory::State::StaleMetadataError.as_str(), "stale-metadata-error");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Hit => "hit",
            State::Stale => "stale",
            State::WaitHit => "wait-hit",
            State::Miss => "miss",
            State::Bypass => "bypass",
            State::StaleError => "stale-error",
            State::StaleMetadataError => "stale-metadata-error",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
