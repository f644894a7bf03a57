//! How a request was served.

use std::fmt;

/// How a request was served: the value of the header `x-facetheory-isr`.
///
/// ```
/// assert_eq!(facetheory::State::WaitHit.to_string(), "wait-hit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// A fresh page from the cache.
    Hit,
    /// A stale page, which is regenerated in the background.
    Stale,
    /// A fresh page that was rendered for another request, for which this one waited.
    WaitHit,
    /// A page that was rendered for this request.
    Miss,
    /// Not served from the cache.
    Bypass,
    /// A stale page, because the render failed.
    StaleError,
    /// A page from memory, because the table or the bodies are unreachable; or a stale page that cannot be regenerated,
    /// because one of them refuses writes.
    StaleMetadataError,
}

impl State {
    /// All states, in the order of their declaration.
    pub(crate) const ALL: [State; 7] = [
        State::Hit,
        State::Stale,
        State::WaitHit,
        State::Miss,
        State::Bypass,
        State::StaleError,
        State::StaleMetadataError,
    ];

    /// The value in headers and metrics.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_states_are_listed_in_the_order_of_their_declaration() {
        assert!(State::ALL.iter().enumerate().all(|(index, state)| *state as usize == index));
    }
}
