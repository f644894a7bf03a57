//! The tenant of a request.

use http::HeaderMap;
use http::header::HeaderName;

use crate::http::router::rejection::Rejection;
use crate::protocol::key::Tenant;

/// How a route identifies the tenant of a request.
///
/// ```
/// use facetheory::{Policy, Route, Routes, TenantFrom};
/// use std::time::Duration;
///
/// let policy = Policy::every(Duration::from_secs(60));
/// Routes::new([
///     Route::new("/{*path}", policy).tenant(TenantFrom::Subdomain("example.com".into())),
///     Route::new("/t/{tenant}/{*path}", policy).tenant(TenantFrom::Param("tenant".into())),
///     Route::new("/api/{*path}", policy).tenant(TenantFrom::TrustedHeader("x-tenant-id".into())),
/// ])?;
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TenantFrom {
    /// The label of the host before this domain, in lower case: `acme` of `acme.example.com`.
    Subdomain(String),
    /// The path parameter with this name, byte for byte.
    Param(String),
    /// This header. A proxy in front must set it, and remove it from requests of clients.
    TrustedHeader(String),
}

impl TenantFrom {
    /// The tenant that a host names, if tenants are subdomains.
    ///
    /// ```
    /// use facetheory::TenantFrom;
    ///
    /// let from = TenantFrom::Subdomain("example.com".into());
    /// assert_eq!(from.of_host("acme.example.com").unwrap().as_str(), "acme");
    /// assert_eq!(from.of_host("cache.internal"), None);
    /// ```
    #[must_use]
    pub fn of_host(&self, host: &str) -> Option<Tenant> {
        match self {
            TenantFrom::Subdomain(domain) => of_host(host, domain).ok(),
            TenantFrom::Param(_) | TenantFrom::TrustedHeader(_) => None,
        }
    }
}

/// Headers that name a tenant. A route without tenants rejects them: the origin might use them, and then all tenants would
/// share one page.
pub(crate) const KNOWN_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-tenant-id"), HeaderName::from_static("x-facetheory-tenant")];

/// Rejects a request that names a tenant on a route without tenants.
pub(crate) fn reject_unexpected(headers: &HeaderMap, known: &[HeaderName]) -> Result<(), Rejection> {
    match known.iter().find(|name| headers.contains_key(*name)) {
        Some(name) => Err(Rejection::bad(format!(
            "the header {name} names a tenant, but this route has no tenants: remove the header, or configure the route \
             to trust it"
        ))),
        None => Ok(()),
    }
}

/// Returns the tenant that a host names before a domain.
pub(crate) fn of_host(host: &str, domain: &str) -> Result<Tenant, Rejection> {
    let host = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let at = host.len().checked_sub(domain.len() + 1);
    let label = at
        .filter(|at| host.is_char_boundary(*at) && host[*at..].starts_with('.'))
        .filter(|at| host[at + 1..].eq_ignore_ascii_case(domain))
        .map(|at| &host[..at])
        .filter(|label| !label.is_empty() && !label.contains('.'));
    let Some(label) = label else {
        return Err(Rejection::bad(format!("the host must be <tenant>.{domain}")));
    };
    checked(&label.to_ascii_lowercase())
}

/// Returns the tenant that a path parameter names. With escapes, one tenant would have several spellings.
pub(crate) fn of_part(part: &str) -> Result<Tenant, Rejection> {
    if part.contains('%') {
        return Err(Rejection::bad("the tenant in a path must not be percent-encoded"));
    }
    checked(part)
}

/// Returns the tenant that a trusted header names.
pub(crate) fn of_header(headers: &HeaderMap, name: &HeaderName) -> Result<Tenant, Rejection> {
    let mut lines = headers.get_all(name).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(Rejection::bad(format!("the header {name} must name one tenant")));
    };
    match line.to_str() {
        Ok(tenant) => checked(tenant),
        Err(_) => Err(Rejection::bad(format!("the header {name} has an invalid character"))),
    }
}

/// Validates a tenant. `::` ends the tenant in a cache key.
fn checked(name: &str) -> Result<Tenant, Rejection> {
    if name.contains("::") {
        return Err(Rejection::bad("a tenant must not contain `::`"));
    }
    Tenant::new(name).map_err(|error| Rejection::bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn name(found: Result<Tenant, Rejection>) -> Result<String, String> {
        found.map(|tenant| tenant.as_str().to_owned()).map_err(|rejection| rejection.text)
    }

    #[test]
    fn a_subdomain_names_a_tenant_by_one_label() {
        for host in ["acme.example.com", "ACME.Example.COM", "acme.example.com:8080"] {
            assert_eq!(name(of_host(host, "example.com")), Ok("acme".to_owned()), "{host}");
        }
        for host in [
            "example.com",
            ".example.com",
            "a.b.example.com",
            "acmeexample.com",
            "acme.example.com.evil.org",
            "acme.example.org",
            "x",
            "[::1]:80",
        ] {
            let error = Err("the host must be <tenant>.example.com".to_owned());
            assert_eq!(name(of_host(host, "example.com")), error, "{host}");
        }
    }

    #[test]
    fn a_path_or_a_trusted_header_names_one_tenant() {
        assert_eq!(name(of_part("acme")), Ok("acme".into()));
        assert_eq!(name(of_part("%61cme")), Err("the tenant in a path must not be percent-encoded".into()));
        assert_eq!(name(of_part("a::b")), Err("a tenant must not contain `::`".into()));
        let header = &KNOWN_HEADERS[0];
        let read = |values: &[&[u8]]| {
            let value = |bytes: &&[u8]| HeaderValue::from_bytes(bytes).expect("a value");
            let headers: HeaderMap = values.iter().map(|bytes| (header.clone(), value(bytes))).collect();
            name(of_header(&headers, header))
        };
        assert_eq!(read(&[b"acme"]), Ok("acme".into()));
        assert_eq!(read(&[]), Err("the header x-tenant-id must name one tenant".into()));
        assert_eq!(read(&[b"a", b"a"]), Err("the header x-tenant-id must name one tenant".into()));
        assert_eq!(read(&[b"\xff"]), Err("the header x-tenant-id has an invalid character".into()));
        assert_eq!(read(&[b""]), Err("a tenant has 0 bytes; it must have 1 to 128".into()));
        assert!(read(&[b"a#CACHE#b"]).is_err());
    }

    #[test]
    fn a_tenant_on_a_route_without_tenants_is_rejected() {
        let mut headers = HeaderMap::new();
        assert_eq!(reject_unexpected(&headers, &KNOWN_HEADERS), Ok(()));
        headers.insert("x-facetheory-tenant", HeaderValue::from_static(""));
        let rejection = reject_unexpected(&headers, &KNOWN_HEADERS).expect_err("a tenant");
        assert_eq!(rejection.status, http::StatusCode::BAD_REQUEST);
        assert_eq!(
            rejection.text,
            "the header x-facetheory-tenant names a tenant, but this route has no tenants: remove the header, or \
             configure the route to trust it"
        );
    }

    proptest! {
        #[test]
        fn any_host_is_parsed_without_panic(host in "\\PC{0,20}", domain in "\\PC{0,10}") {
            if let Ok(tenant) = of_host(&host, &domain) {
                prop_assert!(!tenant.as_str().contains("::"));
            }
        }
    }
}
