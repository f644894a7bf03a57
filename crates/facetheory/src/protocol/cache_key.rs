//! The default cache key: the parts of a request that select a page.

use std::borrow::Cow;

use crate::protocol::{Tenant, digest::sha256_hex, javascript};

/// The default cache key: the parts of a request that select a page.
///
/// The text is `{tenant}::{route}?{params and query}#auth=<24 hex>&cookies=<24 hex>`:
/// - the tenant is `default` if the page has none;
/// - route parameters come before the query, both sorted by the bytes of their names (values of one name stay in order),
///   and percent-encoded as by JavaScript's `encodeURIComponent`;
/// - `auth` and `cookies` are the first 24 hex digits of a SHA-256 over `name=values` lines sorted by name, the
///   values of one name joined by NUL and the lines by a line feed. An empty part is omitted, and `#` if both are empty.
///
/// [`CacheKey::facetheory_ts`] gives the key that FaceTheory's TypeScript services build by default.
///
/// ```
/// use facetheory::CacheKey;
///
/// let key = CacheKey::route("/posts/{slug}").param("slug", "hello world").query("page", "2");
/// assert_eq!(key.to_string(), "default::/posts/{slug}?slug=hello%20world&page=2");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheKey {
    tenant: Option<String>,
    route: String,
    params: Vec<(String, String)>,
    query: Vec<(String, String)>,
    auth: Vec<(String, String)>,
    cookies: Vec<(String, String)>,
    is_facetheory_ts: bool,
}

macro_rules! parts {
    ($($(#[$doc:meta])* $method:ident => $field:ident),* $(,)?) => {
        impl CacheKey {
            $($(#[$doc])*
            #[must_use]
            pub fn $method(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.$field.push((name.into(), value.into()));
                self
            })*
        }
    };
}

parts! {
    /// Adds a parameter of the route.
    ///
    /// ```
    /// let key = facetheory::CacheKey::route("/{a}").param("a", "1");
    /// assert_eq!(key.to_string(), "default::/{a}?a=1");
    /// ```
    param => params,
    /// Adds a parameter of the query.
    ///
    /// ```
    /// let key = facetheory::CacheKey::route("/").query("b", "2").query("a", "1");
    /// assert_eq!(key.to_string(), "default::/?a=1&b=2");
    /// ```
    query => query,
    /// Adds a header that identifies the client.
    ///
    /// ```
    /// let key = facetheory::CacheKey::route("/").auth("authorization", "Bearer x").to_string();
    /// assert!(key.starts_with("default::/?#auth=") && !key.contains("Bearer"));
    /// ```
    auth => auth,
    /// Adds a cookie that the page depends on.
    ///
    /// ```
    /// let key = facetheory::CacheKey::route("/").cookie("theme", "dark").to_string();
    /// assert!(key.starts_with("default::/?#cookies="));
    /// ```
    cookie => cookies,
}

impl CacheKey {
    /// The key of a route without parameters.
    ///
    /// ```
    /// assert_eq!(facetheory::CacheKey::route("/about").to_string(), "default::/about?");
    /// ```
    pub fn route(route: impl Into<String>) -> Self {
        CacheKey { route: route.into(), ..CacheKey::default() }
    }

    /// Sets the tenant.
    ///
    /// ```
    /// use facetheory::{CacheKey, Tenant};
    ///
    /// let key = CacheKey::route("/").tenant(&Tenant::new("acme")?);
    /// assert_eq!(key.to_string(), "acme::/?");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn tenant(mut self, tenant: &Tenant) -> Self {
        self.tenant = Some(tenant.as_str().to_owned());
        self
    }

    /// Sorts names as JavaScript's `localeCompare` does, and uses the last value of a cookie, as FaceTheory's TypeScript
    /// services do by default. Values are those that these services see: parameters of the query decoded, those of the
    /// path not decoded.
    ///
    /// ```
    /// use facetheory::CacheKey;
    ///
    /// let key = CacheKey::route("/news/{slug}").param("slug", "hello%20w").query("B", "1").query("a", "2");
    /// assert_eq!(key.clone().to_string(), "default::/news/{slug}?slug=hello%2520w&B=1&a=2");
    /// assert_eq!(key.facetheory_ts().to_string(), "default::/news/{slug}?slug=hello%2520w&a=2&B=1");
    /// ```
    #[must_use]
    pub fn facetheory_ts(mut self) -> Self {
        self.is_facetheory_ts = true;
        self
    }

    /// Sorts pairs by name; pairs of one name stay in order.
    fn sorted<'k>(&self, pairs: &'k [(String, String)]) -> Vec<(&'k str, &'k str)> {
        let mut pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if self.is_facetheory_ts {
            return javascript::sort_by_name(pairs);
        }
        pairs.sort_by_key(|(name, _)| *name);
        pairs
    }

    /// The cookies that are part of the key: those of one name, or the last of them.
    fn distinct_cookies(&self) -> Cow<'_, [(String, String)]> {
        if !self.is_facetheory_ts {
            return Cow::Borrowed(&self.cookies);
        }
        let is_last = |place: &usize| {
            let (name, _) = &self.cookies[*place];
            !self.cookies[place + 1..].iter().any(|(later, _)| later == name)
        };
        (0..self.cookies.len()).filter(is_last).map(|place| self.cookies[place].clone()).collect()
    }
}

impl std::fmt::Display for CacheKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut pairs = String::new();
        javascript::push_pairs(
            &mut pairs,
            self.sorted(&self.params).into_iter().chain(self.sorted(&self.query)),
        );
        let tenant = self.tenant.as_deref().unwrap_or("default");
        write!(f, "{tenant}::{}?{pairs}", self.route)?;
        let cookies = self.distinct_cookies();
        let variants: Vec<String> = [("auth", &self.auth[..]), ("cookies", &cookies)]
            .into_iter()
            .filter(|(_, pairs)| !pairs.is_empty())
            .map(|(name, pairs)| format!("{name}={}", digest(&self.sorted(pairs))))
            .collect();
        if variants.is_empty() { Ok(()) } else { write!(f, "#{}", variants.join("&")) }
    }
}

/// Hashes pairs that are sorted by name.
fn digest(pairs: &[(&str, &str)]) -> String {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, value) in pairs {
        match lines.last_mut() {
            Some((last, values)) if last == name => values.push(value),
            _ => lines.push((name, vec![value])),
        }
    }
    let lines: Vec<String> =
        lines.into_iter().map(|(name, values)| format!("{name}={}", values.join("\0"))).collect();
    sha256_hex(lines.join("\n").as_bytes())[..24].to_owned()
}

#[cfg(test)]
mod tests {
    use super::CacheKey;

    #[test]
    fn the_order_of_parameters_does_not_change_the_key() {
        let one =
            CacheKey::route("/{b}/{a}").param("b", "2").param("a", "1").query("z", "é").query("B", "&=");
        let other =
            CacheKey::route("/{b}/{a}").query("B", "&=").query("z", "é").param("a", "1").param("b", "2");
        assert_eq!(one.to_string(), "default::/{b}/{a}?a=1&b=2&B=%26%3D&z=%C3%A9");
        assert_eq!(one.to_string(), other.to_string());
    }

    #[test]
    fn values_of_one_name_stay_in_order() {
        let of =
            |values: [&str; 2]| CacheKey::route("/").query("a", values[0]).query("a", values[1]).to_string();
        assert_ne!(of(["1", "2"]), of(["2", "1"]));
    }

    #[test]
    fn credentials_and_cookies_select_a_page_and_are_hashed() {
        let key = CacheKey::route("/").auth("authorization", "secret").cookie("b", "2").cookie("a", "1");
        let text = key.to_string();
        let (page, variant) = text.split_once('#').expect("a variant");
        assert_eq!(page, "default::/?");
        let digests: Vec<&str> = variant.split('&').collect();
        assert!(digests[0].starts_with("auth=") && digests[0].len() == 5 + 24, "{variant}");
        assert!(digests[1].starts_with("cookies=") && digests[1].len() == 8 + 24, "{variant}");
        assert!(!text.contains("secret"));
        assert_ne!(text, CacheKey::route("/").auth("authorization", "other").cookie("a", "1").to_string());
        // SHA-256 of "a=1\nb=2", in whichever order the cookies were added.
        assert_eq!(
            CacheKey::route("/").cookie("a", "1").cookie("b", "2").to_string(),
            format!("default::/?#cookies={}", &crate::protocol::digest::sha256_hex(b"a=1\nb=2")[..24])
        );
    }
}
