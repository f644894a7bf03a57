//! Preview: a signed cookie lets an editor bypass the cache.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha2::Sha256;
use tabletheory::Timestamp;

use crate::error::{Error, Result};
use crate::http::router::cookie::cookies;

/// Lets editors preview pages: requests with a cookie that was signed with this secret are forwarded to the origin unchanged,
/// and the responses are not cached.
///
/// ```
/// use facetheory::Preview;
/// use tabletheory::Timestamp;
///
/// let preview = Preview::new("a secret of at least 32 bytes, please")?;
/// // A CMS sends this cookie to an editor who opens the preview of a page:
/// let value = preview.cookie(Timestamp::from_seconds(1_700_003_600), Some("/news"));
/// let set_cookie = format!("{}={value}; Path=/; Secure; HttpOnly; SameSite=Lax", Preview::COOKIE);
///
/// let now = Timestamp::from_seconds(1_700_000_000);
/// assert!(preview.verify(&value, "/news/today", now));
/// assert!(!preview.verify(&value, "/admin", now), "another path");
/// assert!(!preview.verify(&value, "/news/today", Timestamp::from_seconds(1_700_003_600)), "expired");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone)]
pub struct Preview {
    signer: Hmac<Sha256>,
}

/// The start of the signed text, so that signatures for other purposes with the same secret are not valid here.
const PURPOSE: &[u8] = b"facetheory-draft-v1\n";

/// Longer cookies are ignored.
const MAX_COOKIE_BYTES: usize = 4096;

impl Preview {
    /// The name of the cookie.
    pub const COOKIE: &str = "facetheory-draft";
    /// The shortest secret, in bytes.
    pub const MIN_SECRET_BYTES: usize = 32;

    /// Creates a verifier with a secret that the CMS and all servers share.
    ///
    /// ```
    /// assert_eq!(
    ///     facetheory::Preview::new("short").unwrap_err().to_string(),
    ///     "the preview secret has 5 bytes; it must have 32 or more: make one with `openssl rand -hex 32`"
    /// );
    /// ```
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self> {
        let secret = secret.as_ref();
        if secret.len() < Self::MIN_SECRET_BYTES {
            return Err(Error::invalid(format!(
                "the preview secret has {} bytes; it must have {} or more: make one with `openssl rand -hex 32`",
                secret.len(),
                Self::MIN_SECRET_BYTES
            )));
        }
        let signer = Hmac::new_from_slice(secret)
            .map_err(|error| Error::invalid("the preview secret cannot be used").caused_by(error))?;
        Ok(Preview { signer })
    }

    /// Returns a cookie value that is valid until `expires`, for all paths or for a path and the paths below it.
    ///
    /// It is `<base64url of the claim>.<base64url of HMAC-SHA256>`. The claim is `<expiry in epoch seconds> <path>`; the line
    /// `facetheory-draft-v1` and the claim are signed.
    ///
    /// ```
    /// # let preview = facetheory::Preview::new([7; 32])?;
    /// let value = preview.cookie(tabletheory::Timestamp::from_seconds(1_700_000_000), None);
    /// assert!(value.starts_with("MTcwMDAwMDAwMCA."));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn cookie(&self, expires: Timestamp, path: Option<&str>) -> String {
        let claim = format!("{} {}", expires.seconds(), path.unwrap_or_default());
        let signature = self.signed(claim.as_bytes()).finalize().into_bytes();
        format!("{}.{}", URL_SAFE_NO_PAD.encode(claim), URL_SAFE_NO_PAD.encode(signature))
    }

    /// Whether a cookie value permits the preview of a path at the time `now`.
    ///
    /// ```
    /// # let preview = facetheory::Preview::new([7; 32])?;
    /// let now = tabletheory::Timestamp::from_seconds(1_700_000_000);
    /// assert!(!preview.verify("anything", "/", now));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn verify(&self, value: &str, path: &str, now: Timestamp) -> bool {
        self.claim(value).is_some_and(|(expires, prefix)| expires > now.seconds() && is_below(path, &prefix))
    }

    /// Whether a request permits the preview of a path. One valid cookie is enough, since browsers send one for each path and
    /// domain that it was set for.
    pub(crate) fn is_permitted(&self, headers: &HeaderMap, path: &str, now: Timestamp) -> bool {
        /// The most cookies of this name that are verified.
        const MAX_CHECKED: usize = 4;
        cookies(headers)
            .filter(|(name, _)| *name == Self::COOKIE.as_bytes())
            .take(MAX_CHECKED)
            .filter_map(|(_, value)| std::str::from_utf8(value).ok())
            .any(|value| self.verify(value, path, now))
    }

    /// Returns the expiry and the path of a cookie with a valid signature.
    fn claim(&self, value: &str) -> Option<(i64, String)> {
        if value.len() > MAX_COOKIE_BYTES {
            return None;
        }
        let (claim, signature) = value.split_once('.')?;
        let claim = URL_SAFE_NO_PAD.decode(claim).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // Compares in constant time.
        self.signed(&claim).verify_slice(&signature).ok()?;
        let claim = String::from_utf8(claim).ok()?;
        let (expires, path) = claim.split_once(' ')?;
        Some((expires.parse().ok()?, path.to_owned()))
    }

    fn signed(&self, claim: &[u8]) -> Hmac<Sha256> {
        self.signer.clone().chain_update(PURPOSE).chain_update(claim)
    }
}

/// Hides the secret.
impl std::fmt::Debug for Preview {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preview").finish_non_exhaustive()
    }
}

/// Whether a path equals the prefix or is below it. All paths are below the empty prefix.
fn is_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http::header::COOKIE;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
    const LATER: Timestamp = Timestamp::from_seconds(1_700_000_001);

    fn preview() -> Preview {
        Preview::new([7; 32]).expect("a secret")
    }

    #[test]
    fn a_cookie_is_valid_for_its_path_until_it_expires() {
        let value = preview().cookie(LATER, Some("/news/"));
        for (path, expected) in
            [("/news", true), ("/news/", true), ("/news/a/b", true), ("/newsroom", false), ("/", false)]
        {
            assert_eq!(preview().verify(&value, path, NOW), expected, "{path}");
        }
        assert!(!preview().verify(&value, "/news", LATER), "expired");
        let everywhere = preview().cookie(LATER, None);
        assert!(preview().verify(&everywhere, "/", NOW) && preview().verify(&everywhere, "/a/b", NOW));
    }

    #[test]
    fn a_forged_cookie_is_invalid() {
        let good = preview().cookie(LATER, None);
        let (claim, signature) = good.split_once('.').expect("two parts");
        let longer = URL_SAFE_NO_PAD.encode("9999999999 ");
        let other = Preview::new([8; 32]).expect("a secret").cookie(LATER, None);
        for forged in [
            String::new(),
            ".".into(),
            "a.b.c".into(),
            claim.to_owned(),
            format!("{claim}."),
            format!(".{signature}"),
            format!("{longer}.{signature}"),
            format!("{claim}.{}", &signature[..10]),
            format!("{good}="),
            format!("{good}.{signature}"),
            other,
            "x".repeat(100_000),
        ] {
            assert!(!preview().verify(&forged, "/", NOW), "{forged}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let value = preview().cookie(LATER, None);
        let request = |cookie: String| -> HeaderMap {
            [(COOKIE, HeaderValue::try_from(cookie).expect("a value"))].into_iter().collect()
        };
        let is_permitted = |cookie: String| preview().is_permitted(&request(cookie), "/", NOW);
        assert!(is_permitted(format!("a=1; facetheory-draft={value}; b=2")));
        assert!(is_permitted(format!("facetheory-draft=stale; facetheory-draft={value}")));
        assert!(!is_permitted(format!("other={value}")));
        assert!(!is_permitted(format!("Facetheory-Draft={value}")), "cookie names are case-sensitive");
        assert!(!preview().is_permitted(&HeaderMap::new(), "/", NOW));
    }

    #[test]
    fn debug_output_hides_the_secret() {
        assert_eq!(format!("{:?}", preview()), "Preview { .. }");
    }

    proptest! {
        #[test]
        fn a_changed_byte_invalidates_a_cookie(index in 0usize..60, byte in "[A-Za-z0-9_.-]") {
            let good = preview().cookie(LATER, Some("/a"));
            let index = index % good.len();
            let mut changed = good.clone();
            changed.replace_range(index..=index, &byte);
            prop_assert_eq!(preview().verify(&changed, "/a", NOW), changed == good);
        }

        #[test]
        fn any_text_is_rejected_without_panic(text in "\\PC{0,60}", path in "\\PC{0,20}") {
            prop_assert!(!preview().verify(&text, &path, NOW));
        }
    }
}
