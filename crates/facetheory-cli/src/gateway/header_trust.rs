//! From whom the gateway accepts a header of a request.
//!
//! Origins believe many headers from any sender, because they expect a proxy in front that removes them. A client could so
//! name another user, path or method than the one by which a page is cached.

use http::header::HeaderName;

/// From whom a header is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptedFrom {
    Anyone,
    /// It says what a proxy in front knows better than the gateway: who and where the user is, and where the site is mounted.
    TrustedProxies,
    /// The gateway says it itself in one form, or it overrides what the cache key contains. Also proxies in front pass these
    /// headers of their clients on.
    Nobody,
}

/// Users, their groups, certificates and countries, and the path below which a proxy has mounted the site. Sorted.
const OF_PROXIES: [&str; 18] = [
    "cf-ipcountry",
    "x-arr-clientcert",
    "x-authenticated-email",
    "x-authenticated-groups",
    "x-authenticated-user",
    "x-authenticated-userid",
    "x-client-dn",
    "x-client-verify",
    "x-credential-identifier",
    "x-forwarded-access-token",
    "x-forwarded-client-cert",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-forwarded-prefix",
    "x-forwarded-user",
    "x-script-name",
    "x-userinfo",
];
/// How the names of such headers begin.
const OF_PROXIES_FAMILIES: [&str; 24] = [
    "cf-access-",
    "client-cert",
    "cloudfront-viewer-",
    "remote-",
    "ssl-client-",
    "tls-client-",
    "x-amzn-mtls-",
    "x-amzn-oidc-",
    "x-appengine-",
    "x-auth-request-",
    "x-authentik-",
    "x-azure-",
    "x-client-cert",
    "x-consumer-",
    "x-forwarded-tls-client-",
    "x-goog-authenticated-user-",
    "x-goog-iap-",
    "x-ms-client-principal",
    "x-ms-token-",
    "x-pomerium-",
    "x-remote-",
    "x-ssl-client-",
    "x-vouch-",
    "x-webauth-",
];

/// Other forms of the client's address, host, scheme and port, other targets and methods, tenants, instructions to servers
/// behind the gateway, and internal headers of frameworks. Sorted.
const OF_NOBODY: [&str; 34] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-visitor",
    "client-ip",
    "cloudfront-forwarded-proto",
    "fastly-client-ip",
    "fastly-ssl",
    "fly-client-ip",
    "forwarded",
    "front-end-https",
    "path-info",
    // CGI programs get it as HTTP_PROXY, the proxy for their own requests (CVE-2016-5385).
    "proxy",
    "proxy-client-ip",
    "script-name",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-amz-website-redirect-location",
    "x-arr-ssl",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-facetheory-tenant",
    "x-forward-for",
    "x-forwarded",
    "x-host",
    "x-https",
    "x-matched-path",
    "x-method-override",
    "x-path-info",
    "x-real-ip",
    "x-real-port",
    "x-scheme",
    "x-tenant-id",
    "x-url-scheme",
    "x-vercel-forwarded-for",
];
/// How the names of such headers begin.
const OF_NOBODY_FAMILIES: [&str; 10] = [
    "x-accel-",
    "x-envoy-",
    "x-forwarded-",
    "x-http-",
    "x-invoke-",
    "x-middleware-",
    "x-now-",
    "x-original-",
    "x-rewrite-",
    "x-sendfile",
];

/// Whether a header is accepted from anyone. One that is not tells of a proxy, or of a client that plays one.
pub(crate) fn is_of_anyone(name: &HeaderName) -> bool {
    accepted_from(name) == AcceptedFrom::Anyone
}

/// Returns from whom a header is accepted.
pub(super) fn accepted_from(name: &HeaderName) -> AcceptedFrom {
    if is_of_proxies(name) {
        AcceptedFrom::TrustedProxies
    } else if is_one_of(name, &OF_NOBODY, &OF_NOBODY_FAMILIES) {
        AcceptedFrom::Nobody
    } else {
        AcceptedFrom::Anyone
    }
}

/// Whether a header is accepted from trusted proxies only. Called for each header of each request.
pub(super) fn is_of_proxies(name: &HeaderName) -> bool {
    // Hardly any header of a browser begins with these letters.
    let may_be = matches!(name.as_str().as_bytes(), [b'c', b'f' | b'l', ..] | [b's', b's', ..])
        || matches!(name.as_str().as_bytes(), [b'r', b'e', b'm', ..] | [b't', b'l', ..] | [b'x', b'-', ..]);
    may_be && is_one_of(name, &OF_PROXIES, &OF_PROXIES_FAMILIES)
}

fn is_one_of(name: &HeaderName, names: &[&str], families: &[&str]) -> bool {
    let text = name.as_str();
    names.binary_search(&text).is_ok() || families.iter().any(|family| text.starts_with(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_header_is_found() {
        for (names, families, expected) in [
            (&OF_PROXIES[..], &OF_PROXIES_FAMILIES[..], AcceptedFrom::TrustedProxies),
            (&OF_NOBODY, &OF_NOBODY_FAMILIES, AcceptedFrom::Nobody),
        ] {
            assert!(names.is_sorted());
            let members = families.iter().map(|family| format!("{family}a"));
            for name in members.chain(names.iter().map(|name| (*name).to_owned())) {
                let name = HeaderName::try_from(name).expect("a name");
                assert_eq!(accepted_from(&name), expected, "{name}");
            }
        }
    }

    #[test]
    fn headers_of_browsers_and_applications_are_accepted_from_anyone() {
        for name in [
            "accept",
            "authorization",
            "cookie",
            "host",
            "referer",
            "rsc",
            "sec-fetch-user",
            "te",
            "upgrade-insecure-requests",
            "x-amzn-trace-id",
            "x-api-key",
            "x-csrf-token",
            "x-nextjs-data",
            "x-request-id",
            "x-requested-with",
        ] {
            assert_eq!(accepted_from(&HeaderName::from_static(name)), AcceptedFrom::Anyone, "{name}");
        }
    }
}
