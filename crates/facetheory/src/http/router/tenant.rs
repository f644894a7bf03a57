//! Whose page is asked for.

use http::HeaderMap;
use http::header::HeaderName;

use crate::http::router::rejection::Rejection;
use crate::protocol::key::Tenant;

/// How a route tells tenants apart.
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
    /// The one label of the host before this domain: `acme` of `acme.example.com`, in lower case.
    Subdomain(String),
    /// The parameter of the path with this name, byte for byte.
    Param(String),
    /// This header, which something in front of us sets, and removes from what visitors send.
    TrustedHeader(String),
}

/// Headers that name a tenant. On a route that does not tell tenants apart they are refused: the renderer might
/// believe them, and then all tenants would share one page.
pub(crate) const KNOWN_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-tenant-id"), HeaderName::from_static("x-facetheory-tenant")];

/// Refuses a request that names a tenant where nobody asked.
pub(crate) fn refuse_uninvited(headers: &HeaderMap, known: &[HeaderName]) -> Result<(), Rejection> {
    match known.iter().find(|name| headers.contains_key(*name)) {
        Some(name) => Err(Rejection::bad(format!(
            "the header {name} names a tenant, and this route does not tell tenants apart: leave it out, or let the \
             route say that it is trusted"
        ))),
        None => Ok(()),
    }
}

/// The tenant that a host names before a domain.
pub(crate) fn of_host(host: &str, domain: &str) -> Result<Tenant, Rejection> {
    let host = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let at = host.len().checked_sub(domain.len() + 1);
    let label = at
        .filter(|at| host.is_char_boundary(*at) && host[*at..].starts_with('.'))
        .filter(|at| host[at + 1..].eq_ignore_ascii_case(domain))
        .map(|at| &host[..at])
        .filter(|label| !label.is_empty() && !label.contains('.'));
    let Some(label) = label else {
        return Err(Rejection::bad(format!("the host names no tenant; it must be <tenant>.{domain}")));
    };
    checked(&label.to_ascii_lowercase())
}

/// The tenant that a part of the path names. An escape in it could spell one tenant in two ways.
pub(crate) fn of_part(part: &str) -> Result<Tenant, Rejection> {
    if part.contains('%') {
        return Err(Rejection::bad("the tenant of a path may not be percent-encoded"));
    }
    checked(part)
}

/// The tenant that a trusted header names, once.
pub(crate) fn of_header(headers: &HeaderMap, name: &HeaderName) -> Result<Tenant, Rejection> {
    let mut lines = headers.get_all(name).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(Rejection::bad(format!("the header {name} must name one tenant")));
    };
    match line.to_str() {
        Ok(tenant) => checked(tenant),
        Err(_) => Err(Rejection::bad(format!("the header {name} has a character that no tenant has"))),
    }
}

/// A tenant of the keys' own rules, without `::`, which ends it in a cache key.
fn checked(name: &str) -> Result<Tenant, Rejection> {
    if name.contains("::") {
        return Err(Rejection::bad("a tenant may not contain `::`"));
    }
    Tenant::new(name).map_err(|error| Rejection::bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn name(found: Result<Tenant, Rejection>) -> Result<String, String> {
        found.map(|tenant| tenant.as_str().to_owned()).map_err(|refusal| refusal.text)
    }

    #[test]
    fn a_host_names_a_tenant_by_one_label() {
        for (host, expected) in [
            ("acme.example.com", Some("acme")),
            ("ACME.Example.COM", Some("acme")),
            ("acme.example.com:8080", Some("acme")),
            ("example.com", None),
            (".example.com", None),
            ("a.b.example.com", None),
            ("acmeexample.com", None),
            ("acme.example.com.evil.org", None),
            ("acme.example.org", None),
            ("x", None),
            ("[::1]:80", None),
        ] {
            let expected = expected
                .map(str::to_owned)
                .ok_or_else(|| "the host names no tenant; it must be <tenant>.example.com".to_owned());
            assert_eq!(name(of_host(host, "example.com")), expected, "{host}");
        }
    }

    #[test]
    fn a_path_or_a_trusted_header_names_one_tenant() {
        assert_eq!(name(of_part("acme")), Ok("acme".into()));
        assert_eq!(name(of_part("%61cme")), Err("the tenant of a path may not be percent-encoded".into()));
        assert_eq!(name(of_part("a::b")), Err("a tenant may not contain `::`".into()));
        let header = &KNOWN_HEADERS[0];
        let read = |values: &[&[u8]]| {
            let value = |bytes: &&[u8]| HeaderValue::from_bytes(bytes).expect("a value");
            let headers: HeaderMap = values.iter().map(|bytes| (header.clone(), value(bytes))).collect();
            name(of_header(&headers, header))
        };
        assert_eq!(read(&[b"acme"]), Ok("acme".into()));
        assert_eq!(read(&[]), Err("the header x-tenant-id must name one tenant".into()));
        assert_eq!(read(&[b"a", b"a"]), Err("the header x-tenant-id must name one tenant".into()));
        assert_eq!(read(&[b"\xff"]), Err("the header x-tenant-id has a character that no tenant has".into()));
        assert_eq!(read(&[b""]), Err("a tenant has 0 bytes; it must have 1 to 128".into()));
        assert!(read(&[b"a#CACHE#b"]).is_err());
    }

    #[test]
    fn a_tenant_that_nobody_asked_for_is_refused() {
        let mut headers = HeaderMap::new();
        assert_eq!(refuse_uninvited(&headers, &KNOWN_HEADERS), Ok(()));
        headers.insert("x-facetheory-tenant", HeaderValue::from_static(""));
        let refusal = refuse_uninvited(&headers, &KNOWN_HEADERS).expect_err("a tenant");
        assert_eq!(refusal.status, http::StatusCode::BAD_REQUEST);
        assert_eq!(
            refusal.text,
            "the header x-facetheory-tenant names a tenant, and this route does not tell tenants apart: leave it \
             out, or let the route say that it is trusted"
        );
    }

    proptest! {
        #[test]
        fn no_host_is_too_strange(host in "\\PC{0,20}", domain in "\\PC{0,10}") {
            if let Ok(tenant) = of_host(&host, &domain) {
                prop_assert!(!tenant.as_str().contains("::"));
            }
        }
    }
}
