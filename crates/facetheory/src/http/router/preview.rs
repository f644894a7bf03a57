//! Preview: a signed cookie lets an editor past the cache.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha2::Sha256;
use tabletheory::Timestamp;

use crate::error::{Error, Result};
use crate::http::router::cookie::cookies;

/// Lets editors see preview: whoever has a cookie that was signed with this secret is served by the renderer itself,
/// with all that the visit has, and nothing of it is stored.
///
/// ```
/// use facetheory::Preview;
/// use tabletheory::Timestamp;
///
/// let preview = Preview::new("a secret of at least 32 bytes, please")?;
/// // What a CMS sends to an editor who opens the preview of a page:
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

/// What is signed begins with this, so that no other signature under the same secret is one of ours.
const PURPOSE: &[u8] = b"facetheory-draft-v1\n";

/// Longer cookies are none of ours.
const MAX_COOKIE_BYTES: usize = 4096;

impl Preview {
    /// The name of the cookie.
    pub const COOKIE: &str = "facetheory-draft";
    /// The shortest secret, in bytes.
    pub const MIN_SECRET_BYTES: usize = 32;

    /// Preview under this secret, which the CMS and all servers share.
    ///
    /// ```
    /// assert_eq!(
    ///     facetheory::Preview::new("short").unwrap_err().to_string(),
    ///     "the secret of preview has 5 bytes; it must have 32 or more: make one with `openssl rand -hex 32`"
    /// );
    /// ```
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self> {
        let secret = secret.as_ref();
        if secret.len() < Self::MIN_SECRET_BYTES {
            return Err(Error::invalid(format!(
                "the secret of preview has {} bytes; it must have {} or more: make one with `openssl rand -hex 32`",
                secret.len(),
                Self::MIN_SECRET_BYTES
            )));
        }
        let signer = Hmac::new_from_slice(secret)
            .map_err(|error| Error::invalid("the secret of preview cannot be used").caused_by(error))?;
        Ok(Preview { signer })
    }

    /// The value of a cookie that is good until then, everywhere or at a path and below it.
    ///
    /// It is `<base64url of what is signed>.<base64url of HMAC-SHA256>`, where `<expiry in epoch seconds> <path>` is
    /// signed after the line `facetheory-draft-v1`.
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

    /// Whether a cookie of this value lets a visitor see the preview at a path now.
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

    /// Whether a visitor sees the preview at a path now. A cookie that came twice counts if either is good, since
    /// browsers send one for each path and domain that it was set for.
    pub(crate) fn let_in(&self, headers: &HeaderMap, path: &str, now: Timestamp) -> bool {
        /// The most cookies of our name that are checked.
        const MAX_CHECKED: usize = 4;
        cookies(headers)
            .filter(|(name, _)| *name == Self::COOKIE.as_bytes())
            .take(MAX_CHECKED)
            .filter_map(|(_, value)| std::str::from_utf8(value).ok())
            .any(|value| self.verify(value, path, now))
    }

    /// What a cookie says, if we have signed it: until when it is good, and where.
    fn claim(&self, value: &str) -> Option<(i64, String)> {
        if value.len() > MAX_COOKIE_BYTES {
            return None;
        }
        let (claim, signature) = value.split_once('.')?;
        let claim = URL_SAFE_NO_PAD.decode(claim).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // Takes the same time however much of it is right.
        self.signed(&claim).verify_slice(&signature).ok()?;
        let claim = String::from_utf8(claim).ok()?;
        let (expires, path) = claim.split_once(' ')?;
        Some((expires.parse().ok()?, path.to_owned()))
    }

    fn signed(&self, claim: &[u8]) -> Hmac<Sha256> {
        self.signer.clone().chain_update(PURPOSE).chain_update(claim)
    }
}

/// Without the secret.
impl std::fmt::Debug for Preview {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preview").finish_non_exhaustive()
    }
}

/// Whether a path is this one or below it; everything is below the empty one.
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
    fn a_cookie_is_good_for_its_path_and_its_time() {
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
    fn what_we_have_not_signed_lets_nobody_in() {
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
        let visit = |cookie: String| -> HeaderMap {
            [(COOKIE, HeaderValue::try_from(cookie).expect("a value"))].into_iter().collect()
        };
        let let_in = |cookie: String| preview().let_in(&visit(cookie), "/", NOW);
        assert!(let_in(format!("a=1; facetheory-draft={value}; b=2")));
        assert!(let_in(format!("facetheory-draft=stale; facetheory-draft={value}")));
        assert!(!let_in(format!("other={value}")));
        assert!(!let_in(format!("Facetheory-Draft={value}")), "names of cookies have a case");
        assert!(!preview().let_in(&HeaderMap::new(), "/", NOW));
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", preview()), "Preview { .. }");
    }

    proptest! {
        #[test]
        fn one_changed_byte_spoils_it(index in 0usize..60, byte in "[A-Za-z0-9_.-]") {
            let good = preview().cookie(LATER, Some("/a"));
            let index = index % good.len();
            let mut changed = good.clone();
            changed.replace_range(index..=index, &byte);
            prop_assert_eq!(preview().verify(&changed, "/a", NOW), changed == good);
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,60}", path in "\\PC{0,20}") {
            prop_assert!(!preview().verify(&text, &path, NOW));
        }
    }
}
