//! `Cache-Status` (RFC 9211) and `x-request-id`.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue, StatusCode};
use tabletheory::Random;

use crate::engine::state::State;
use crate::http::headers::REQUEST_ID;

/// The contents of `Cache-Status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStatus<'a> {
    /// Why the request was forwarded, as a token of the standard, where it is more precise than the state.
    pub(crate) forward: Option<&'static str>,
    /// How many more seconds the page is fresh; negative if it is stale.
    pub(crate) ttl: Option<i64>,
    /// The status of the origin's response.
    pub(crate) rendered: Option<StatusCode>,
    /// Whether the origin's response was stored.
    pub(crate) stored: bool,
    /// The cache key of the page.
    pub(crate) key: Option<&'a str>,
    /// Whether the request shared the response to another one, where the state does not say so.
    pub(crate) collapsed: bool,
    /// Why the cache was bypassed, or which store failed.
    pub(crate) detail: Option<&'static str>,
}

impl CacheStatus<'_> {
    /// The value of the header for a response in this state.
    pub(crate) fn value(&self, state: State) -> HeaderValue {
        let (how, word) = match state {
            State::Hit | State::Stale => ("hit", None),
            State::StaleError => ("hit", Some("render-failed")),
            State::StaleMetadataError => ("hit", Some("table-unreachable")),
            State::WaitHit => ("fwd=miss; collapsed", None),
            State::Miss => ("fwd=miss", None),
            State::Bypass if self.detail == Some("method") => ("fwd=method", None),
            State::Bypass => ("fwd=bypass", None),
        };
        let mut text = match self.forward.filter(|_| how != "hit") {
            Some(why) if state == State::WaitHit => format!("FaceTheory; fwd={why}; collapsed"),
            Some(why) => format!("FaceTheory; fwd={why}"),
            None => format!("FaceTheory; {how}"),
        };
        if self.collapsed && how != "hit" {
            text.push_str("; collapsed");
        }
        // A hit was not forwarded.
        if let Some(status) = self.rendered.filter(|_| how != "hit") {
            let _ = write!(text, "; fwd-status={}", status.as_u16());
        }
        if self.stored {
            text.push_str("; stored");
        }
        if let Some(ttl) = self.ttl {
            let _ = write!(text, "; ttl={}", ttl.clamp(-MAX_INTEGER, MAX_INTEGER));
        }
        if let Some(key) = self.key.filter(|key| is_sent(key)) {
            let key = key.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = write!(text, "; key=\"{key}\"");
        }
        if let Some(word) = self.detail.or(word) {
            let _ = write!(text, "; detail={word}");
        }
        // Tokens, numbers and visible ASCII are always a valid header value.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("FaceTheory"))
    }
}

/// The longest key that is sent: it is for debugging, and sent with every response.
const MAX_KEY_BYTES: usize = 256;

/// Whether a key is short enough, and valid as a string of a structured field (RFC 8941 §3.3.3).
fn is_sent(key: &str) -> bool {
    key.len() <= MAX_KEY_BYTES && key.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// The largest integer of a structured field: fifteen digits (RFC 8941 §3.3.1).
const MAX_INTEGER: i64 = 999_999_999_999_999;

/// The longest request id that is accepted from a client.
pub(crate) const MAX_REQUEST_ID_BYTES: usize = 128;

/// Returns the request id of a client or a proxy, if it is safe to log and to forward.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(REQUEST_ID).iter();
    let (Some(id), None) = (lines.next()?.to_str().ok(), lines.next()) else { return None };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    ((1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.bytes().all(plain)).then_some(id)
}

/// Generates request ids: unique within a process, and most likely across processes. A random number from the system for
/// each would cost more than the rest of a hit.
#[derive(Debug)]
pub(crate) struct RequestIds {
    seed: u64,
    count: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(random: &dyn Random) -> Self {
        RequestIds { seed: random.next_u64(), count: AtomicU64::new(0) }
    }

    /// Returns the next id.
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

/// The finalizer of SplitMix64, a bijection.
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
    fn ids_have_sixteen_digits_and_are_unique() {
        let ids = RequestIds::new(&tabletheory::SeededRandom::new(1));
        let made: std::collections::BTreeSet<String> =
            (0..10_000).map(|_| ids.next().to_str().expect("digits").to_owned()).collect();
        assert_eq!(made.len(), 10_000);
        assert!(made.iter().all(|id| id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit())));
    }

    #[test]
    fn every_state_has_a_valid_cache_status() {
        let plain = CacheStatus::default();
        for (state, status, expected) in [
            (State::Hit, CacheStatus { ttl: Some(30), ..plain }, "FaceTheory; hit; ttl=30"),
            (State::Stale, CacheStatus { ttl: Some(-5), ..plain }, "FaceTheory; hit; ttl=-5"),
            (
                State::WaitHit,
                CacheStatus { ttl: Some(60), ..plain },
                "FaceTheory; fwd=miss; collapsed; ttl=60",
            ),
            (
                State::Miss,
                CacheStatus { ttl: Some(60), rendered: Some(StatusCode::OK), stored: true, ..plain },
                "FaceTheory; fwd=miss; fwd-status=200; stored; ttl=60",
            ),
            (State::Bypass, plain, "FaceTheory; fwd=bypass"),
            (
                State::Bypass,
                CacheStatus { detail: Some("method"), ..plain },
                "FaceTheory; fwd=method; detail=method",
            ),
            (
                State::StaleError,
                CacheStatus { ttl: Some(-9), ..plain },
                "FaceTheory; hit; ttl=-9; detail=render-failed",
            ),
            (State::StaleMetadataError, plain, "FaceTheory; hit; detail=table-unreachable"),
        ] {
            assert_eq!(status.value(state), expected);
        }
    }

    #[test]
    fn a_key_is_sent_as_a_string_if_it_is_short_and_printable() {
        let value = |key: &str| CacheStatus { key: Some(key), ..CacheStatus::default() }.value(State::Hit);
        assert_eq!(value("a::b/c?d=e#vary=00"), "FaceTheory; hit; key=\"a::b/c?d=e#vary=00\"");
        assert_eq!(value("a\"b\\c"), r#"FaceTheory; hit; key="a\"b\\c""#);
        for hidden in ["ü", "a\nb", &"x".repeat(MAX_KEY_BYTES + 1)] {
            assert_eq!(value(hidden), "FaceTheory; hit", "{hidden}");
        }
    }

    #[test]
    fn a_request_id_is_accepted_only_if_it_is_safe() {
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
            state in proptest::sample::select(State::ALL.to_vec()), ttl: Option<i64>, code in 100u16..600, stored: bool,
        ) {
            let status = CacheStatus {
                ttl, stored, rendered: StatusCode::from_u16(code).ok(), ..CacheStatus::default()
            };
            let value = status.value(state);
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
