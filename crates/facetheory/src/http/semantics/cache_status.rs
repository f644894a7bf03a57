//! What responses tell of how they came to be: `Cache-Status` (RFC 9211) and `x-request-id`.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue, StatusCode};
use tabletheory::Random;

use crate::engine::state::State;
use crate::http::headers::REQUEST_ID;

/// How an answer came to be, as `Cache-Status` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheStatus<'a> {
    pub(crate) state: State,
    /// Why the origin was asked, in a word of the standard, where there is a better one than that it had to be.
    pub(crate) forward: Option<&'static str>,
    /// For how many more seconds the page is fresh; less than zero for how long it has been stale.
    pub(crate) ttl: Option<i64>,
    /// What the renderer answered, where it was asked.
    pub(crate) rendered: Option<StatusCode>,
    /// Whether its answer was stored.
    pub(crate) stored: bool,
    /// Under which key the page is kept, where that is told.
    pub(crate) key: Option<&'a str>,
    /// Why the cache had no part in it, in a word.
    pub(crate) detail: Option<&'static str>,
}

impl CacheStatus<'_> {
    pub(crate) fn of(state: State) -> Self {
        CacheStatus {
            state,
            forward: None,
            ttl: None,
            rendered: None,
            stored: false,
            key: None,
            detail: None,
        }
    }

    /// The value of the header.
    pub(crate) fn value(&self) -> HeaderValue {
        let (how, word) = match self.state {
            State::Hit | State::Stale => ("hit", None),
            State::StaleError => ("hit", Some("render-failed")),
            State::StaleMetadataError => ("hit", Some("table-unreachable")),
            State::WaitHit => ("fwd=miss; collapsed", None),
            State::Miss => ("fwd=miss", None),
            State::Bypass if self.detail == Some("method") => ("fwd=method", None),
            State::Bypass => ("fwd=bypass", None),
        };
        let mut text = match self.forward.filter(|_| how != "hit") {
            Some(why) if self.state == State::WaitHit => format!("FaceTheory; fwd={why}; collapsed"),
            Some(why) => format!("FaceTheory; fwd={why}"),
            None => format!("FaceTheory; {how}"),
        };
        // A hit went nowhere, as far as the standard is concerned.
        if let Some(status) = self.rendered.filter(|_| how != "hit") {
            let _ = write!(text, "; fwd-status={}", status.as_u16());
        }
        if self.stored {
            text.push_str("; stored");
        }
        if let Some(ttl) = self.ttl {
            let _ = write!(text, "; ttl={}", ttl.clamp(-MAX_INTEGER, MAX_INTEGER));
        }
        if let Some(key) = self.key.filter(|key| is_told(key)) {
            let key = key.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = write!(text, "; key=\"{key}\"");
        }
        if let Some(word) = self.detail.or(word) {
            let _ = write!(text, "; detail={word}");
        }
        // Words, digits, separators and plain letters always make a header value.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("FaceTheory"))
    }
}

/// The longest key that is told: it is for those who look for a mistake, and sent with every answer.
const MAX_TOLD_KEY_BYTES: usize = 256;

/// Whether a key is short enough to be told, and of letters that a string of a structured field may have (RFC 8941 §3.3.3).
fn is_told(key: &str) -> bool {
    key.len() <= MAX_TOLD_KEY_BYTES && key.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// The largest integer of a structured field: fifteen digits (RFC 8941 §3.3.1).
const MAX_INTEGER: i64 = 999_999_999_999_999;

/// The longest id of a request that is taken over.
pub(crate) const MAX_REQUEST_ID_BYTES: usize = 128;

/// The id that a visitor or a proxy gave the request, if it is plain enough to be logged and sent on.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(REQUEST_ID).iter();
    let (Some(id), None) = (lines.next()?.to_str().ok(), lines.next()) else { return None };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    ((1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.bytes().all(plain)).then_some(id)
}

/// Ids for requests that come without one: no two of a process are the same, and hardly two of all processes. A number
/// from the system for each would cost more than all else that is done for a hit.
#[derive(Debug)]
pub(crate) struct RequestIds {
    seed: u64,
    count: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(random: &dyn Random) -> Self {
        RequestIds { seed: random.next_u64(), count: AtomicU64::new(0) }
    }

    /// The next one.
    pub(crate) fn next(&self) -> HeaderValue {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut id = mixed(self.seed.wrapping_add(self.count.fetch_add(1, Ordering::Relaxed)));
        let mut text = [0; 16];
        for digit in text.iter_mut().rev() {
            *digit = DIGITS[(id & 15) as usize];
            id >>= 4;
        }
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
    }
}

/// Another number for each number, of which no bit tells much about the other bits (the finalizer of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_sixteen_digits_and_no_two_are_the_same() {
        let ids = RequestIds::new(&tabletheory::SeededRandom::new(1));
        let made: std::collections::BTreeSet<String> =
            (0..10_000).map(|_| ids.next().to_str().expect("digits").to_owned()).collect();
        assert_eq!(made.len(), 10_000);
        assert!(made.iter().all(|id| id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit())));
    }

    #[test]
    fn every_state_is_told_in_the_words_of_the_standard() {
        let plain = |state| CacheStatus::of(state);
        for (status, expected) in [
            (CacheStatus { ttl: Some(30), ..plain(State::Hit) }, "FaceTheory; hit; ttl=30"),
            (CacheStatus { ttl: Some(-5), ..plain(State::Stale) }, "FaceTheory; hit; ttl=-5"),
            (
                CacheStatus { ttl: Some(60), ..plain(State::WaitHit) },
                "FaceTheory; fwd=miss; collapsed; ttl=60",
            ),
            (
                CacheStatus {
                    ttl: Some(60),
                    rendered: Some(StatusCode::OK),
                    stored: true,
                    ..plain(State::Miss)
                },
                "FaceTheory; fwd=miss; fwd-status=200; stored; ttl=60",
            ),
            (plain(State::Bypass), "FaceTheory; fwd=bypass"),
            (
                CacheStatus { detail: Some("method"), ..plain(State::Bypass) },
                "FaceTheory; fwd=method; detail=method",
            ),
            (
                CacheStatus { ttl: Some(-9), ..plain(State::StaleError) },
                "FaceTheory; hit; ttl=-9; detail=render-failed",
            ),
            (plain(State::StaleMetadataError), "FaceTheory; hit; detail=table-unreachable"),
        ] {
            assert_eq!(status.value(), expected);
        }
    }

    #[test]
    fn a_key_is_told_as_a_string_if_it_is_short_and_plain() {
        let told = |key: &str| CacheStatus { key: Some(key), ..CacheStatus::of(State::Hit) }.value();
        assert_eq!(told("a::b/c?d=e#vary=00"), "FaceTheory; hit; key=\"a::b/c?d=e#vary=00\"");
        assert_eq!(told("a\"b\\c"), r#"FaceTheory; hit; key="a\"b\\c""#);
        for untold in ["ü", "a\nb", &"x".repeat(MAX_TOLD_KEY_BYTES + 1)] {
            assert_eq!(told(untold), "FaceTheory; hit", "{untold}");
        }
    }

    #[test]
    fn an_id_is_taken_over_only_if_it_is_plain() {
        let read = |values: &[&[u8]]| {
            let value = |bytes: &&[u8]| HeaderValue::from_bytes(bytes).expect("a header value");
            let headers: HeaderMap = values.iter().map(|bytes| (REQUEST_ID, value(bytes))).collect();
            request_id(&headers).map(str::to_owned)
        };
        assert_eq!(read(&[b"a-1_B.2:3"]).as_deref(), Some("a-1_B.2:3"));
        let long = [b'x'; MAX_REQUEST_ID_BYTES + 1];
        assert_eq!(read(&[&long[1..]]).map(|id| id.len()), Some(MAX_REQUEST_ID_BYTES));
        let wrong: [&[&[u8]]; 7] =
            [&[], &[b""], &[b"a b"], &[b"a\"b"], &[b"caf\xe9"], &[b"a", b"b"], &[&long]];
        for wrong in wrong {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn the_value_is_always_one_item_with_parameters(
            state in proptest::sample::select(State::ALL.to_vec()), ttl: Option<i64>, status in 100u16..600, stored: bool,
        ) {
            let told = CacheStatus {
                ttl, stored, rendered: StatusCode::from_u16(status).ok(), ..CacheStatus::of(state)
            };
            let value = told.value();
            let text = value.to_str().expect("a text");
            let mut parts = text.split("; ");
            prop_assert_eq!(parts.next(), Some("FaceTheory"));
            let token = |text: &str| !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            for part in parts {
                let (name, value) = part.split_once('=').unwrap_or((part, "-"));
                prop_assert!(token(name) && token(value) && value.len() <= 17, "{}", text);
            }
            prop_assert_eq!(text.contains("; hit"), !text.contains("; fwd="));
        }
    }
}
