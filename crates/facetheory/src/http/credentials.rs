//! Whether a request identifies its client.

use http::HeaderMap;
use http::header::{HeaderName, USER_AGENT};

/// Parts of the names of headers with credentials: `X-Auth-Token`, `X-Session-Id`, `Ocp-Apim-Subscription-Key`.
const PARTS: [&str; 9] =
    ["auth", "cookie", "credential", "jwt", "passw", "secret", "session", "signature", "token"];
/// Words between the hyphens of such names, which are also parts of harmless ones.
const WORDS: [&str; 12] = [
    "account",
    "apikey",
    "assertion",
    "cert",
    "email",
    "identity",
    "key",
    "login",
    "principal",
    "sso",
    "user",
    "userid",
];

/// How the names of further such headers begin.
const FAMILIES: [&str; 3] = ["ssl-client-", "x-amzn-oidc-", "x-ssl-client-"];

/// Whether a request has headers that may identify its client: cookies, `Authorization`, keys of an API, or the user that a
/// proxy in front has authenticated.
///
/// A name that is taken for one by mistake costs a request to the origin, one that is missed could show a page to others.
pub(crate) fn has_credentials(headers: &HeaderMap) -> bool {
    headers.keys().any(is_credential)
}

fn is_credential(name: &HeaderName) -> bool {
    let text = name.as_str();
    // Browsers alone set headers that begin with `Sec-`, and all of them send `Sec-Fetch-User`.
    let is_of_browser = *name == USER_AGENT || text.starts_with("sec-");
    !is_of_browser
        && (PARTS.iter().any(|part| text.contains(part))
            || text.split('-').any(|word| WORDS.contains(&word))
            || FAMILIES.iter().any(|family| text.starts_with(family)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_may_identify_a_client_are_found_by_name() {
        let is_found = |name: &'static str| is_credential(&HeaderName::from_static(name));
        for name in [
            "authorization",
            "cookie",
            "x-api-key",
            "apikey",
            "x-auth-token",
            "x-csrf-token",
            "x-session-id",
            "x-amz-security-token",
            "ocp-apim-subscription-key",
            "cf-access-jwt-assertion",
            "remote-user",
            "x-forwarded-user",
            "x-forwarded-email",
            "x-forwarded-client-cert",
            "x-ssl-client-s-dn",
            "x-amzn-oidc-data",
        ] {
            assert!(is_found(name), "{name}");
        }
        for name in [
            "user-agent",
            "accept",
            "accept-language",
            "host",
            "cache-control",
            "referer",
            "x-forwarded-for",
            "x-request-id",
            "if-none-match",
            "sec-fetch-user",
        ] {
            assert!(!is_found(name), "{name}");
        }
    }
}
