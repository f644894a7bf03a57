//! The default cache key: the parts of a request that select a page.

use crate::protocol::{Tenant, digest::sha256_hex};

/// The default cache key: the parts of a request that select a page.
///
/// The text is `{tenant}::{route}?{params and query}#auth=<24 hex>&cookies=<24 hex>`:
/// - the tenant is `default` if the page has none;
/// - route parameters come before the query, both sorted by the bytes of their names (values of one name stay in order),
///   and percent-encoded as by JavaScript's `encodeURIComponent`;
/// - `auth` and `cookies` are the first 24 hex digits of a SHA-256 over `name=values` lines sorted by name, the
///   values of one name joined by NUL and the lines by a line feed. An empty part is omitted, and `#` if both are empty.
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
}

impl std::fmt::Display for CacheKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs: Vec<String> = sorted(&self.params)
            .into_iter()
            .chain(sorted(&self.query))
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        let tenant = self.tenant.as_deref().unwrap_or("default");
        write!(f, "{tenant}::{}?{}", self.route, pairs.join("&"))?;
        let variants: Vec<String> = [("auth", &self.auth), ("cookies", &self.cookies)]
            .into_iter()
            .filter(|(_, pairs)| !pairs.is_empty())
            .map(|(name, pairs)| format!("{name}={}", digest(pairs)))
            .collect();
        if variants.is_empty() { Ok(()) } else { write!(f, "#{}", variants.join("&")) }
    }
}

/// Sorts by the bytes of the names; pairs of one name stay in order.
fn sorted(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    let mut pairs: Vec<(&str, &str)> =
        pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    pairs.sort_by_key(|(name, _)| *name);
    pairs
}

fn digest(pairs: &[(String, String)]) -> String {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, value) in sorted(pairs) {
        match lines.last_mut() {
            Some((last, values)) if *last == name => values.push(value),
            _ => lines.push((name, vec![value])),
        }
    }
    let lines: Vec<String> =
        lines.into_iter().map(|(name, values)| format!("{name}={}", values.join("\0"))).collect();
    sha256_hex(lines.join("\n").as_bytes())[..24].to_owned()
}

/// Percent-encodes as JavaScript's `encodeURIComponent` does.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
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
