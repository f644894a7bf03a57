//! Helpers for unit tests.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// Headers with these lower-case names and values.
pub(crate) fn header_map(lines: &[(&'static str, &str)]) -> HeaderMap {
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).expect("a valid value");
    lines.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect()
}
