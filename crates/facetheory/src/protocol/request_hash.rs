//! The hash of a request to regenerate, which services in all languages compute alike.

use crate::protocol::digest::sha256_hex;

/// Returns the hash of a request to regenerate a page: the `request_hash` of its `REQ#` row, and its idempotency key if the
/// client sent none.
///
/// It is the lower-case hex SHA-256 of `<cache key>|<deployment>|<policy version>`. An absent deployment or policy version is
/// the empty string. In these two, `%` is written as `%25` and `|` as `%7C`, so that different requests never give the same
/// text. A new deployment or policy version makes a new request, so a retry from before a deploy does not replay the old body.
///
/// ```
/// use facetheory::protocol::request_hash;
///
/// let hash = request_hash("default::/about?", Some("2026-11-16.1"), None);
/// assert_eq!(hash, "300c6aaf8c1fedcf7829fc9cdf4f0a52b668753249af40109c7b33c094cc83ca");
/// assert_ne!(hash, request_hash("default::/about?", Some("2026-11-16.2"), None));
/// ```
#[must_use]
pub fn request_hash(cache_key: &str, deployment: Option<&str>, policy_version: Option<&str>) -> String {
    let escaped = |part: Option<&str>| part.unwrap_or_default().replace('%', "%25").replace('|', "%7C");
    sha256_hex(format!("{cache_key}|{}|{}", escaped(deployment), escaped(policy_version)).as_bytes())
}
