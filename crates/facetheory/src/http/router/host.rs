//! The host of a request, and which hosts are served.

use http::StatusCode;
use http::header::HOST;
use http::request::Parts;

use crate::http::router::rejection::Rejection;

/// Which hosts are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServedHosts {
    /// Every host. Each has its own pages.
    #[default]
    Any,
    /// These hosts, in lower case. Each has its own pages. Requests for other hosts are rejected.
    These(Vec<String>),
    /// One site that is served under every host. The origin gets this host.
    One(String),
}

impl ServedHosts {
    /// Returns the host for the origin, and whether it is part of the cache key.
    pub(crate) fn host<'a>(&'a self, parts: &'a Parts) -> Result<(&'a str, bool), Rejection> {
        match self {
            ServedHosts::One(host) => Ok((host, false)),
            ServedHosts::Any => Ok((requested_host(parts)?, true)),
            ServedHosts::These(hosts) => {
                let host = requested_host(parts)?;
                if hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
                    return Ok((host, true));
                }
                let text = format!("the host `{}` is not served here", host.to_ascii_lowercase());
                Err(Rejection { status: StatusCode::MISDIRECTED_REQUEST, text })
            }
        }
    }
}

/// Returns the host of a request, with the port if there is one, in the client's case.
///
/// An absolute request target and `Host` must agree, since two servers may use different ones.
pub(crate) fn requested_host(parts: &Parts) -> Result<&str, Rejection> {
    let mut lines = parts.headers.get_all(HOST).iter();
    let line = lines.next().map(|line| line.to_str().unwrap_or(""));
    if lines.next().is_some() {
        return Err(Rejection::bad("the request has more than one Host"));
    }
    let host = match (parts.uri.authority(), line) {
        (Some(address), Some(line)) if !address.as_str().eq_ignore_ascii_case(line) => {
            return Err(Rejection::bad("the Host and the request target differ"));
        }
        (Some(address), _) => address.as_str(),
        (None, Some(line)) => line,
        (None, None) => return Err(Rejection::bad("the request has no Host")),
    };
    if is_valid_host(host) { Ok(host) } else { Err(Rejection::bad("the Host of the request is invalid")) }
}

/// The longest host with its port, in bytes.
const MAX_HOST_BYTES: usize = 261;

/// Whether a text is a host name or an IP address, optionally with a port. Stricter than RFC 3986: forms that no browser sends
/// are invalid.
///
/// ```
/// assert!(facetheory::is_valid_host("example.com:8080"));
/// assert!(facetheory::is_valid_host("[::1]:80"));
/// assert!(!facetheory::is_valid_host("a@evil"));
/// assert!(!facetheory::is_valid_host("a:port"));
/// ```
#[must_use]
pub fn is_valid_host(text: &str) -> bool {
    let (name, port) = match text.rfind(':') {
        Some(colon) if !text[colon..].contains(']') => (&text[..colon], Some(&text[colon + 1..])),
        _ => (text, None),
    };
    let port_fits = port.is_none_or(|port| {
        (1..=5).contains(&port.len())
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok()
    });
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let name_fits = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.bytes().all(plain),
    };
    text.len() <= MAX_HOST_BYTES && port_fits && name_fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(uri: &str, hosts: &[&str]) -> Parts {
        let mut request = http::Request::builder().uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn a_request_has_exactly_one_valid_host() {
        for (uri, hosts, expected) in [
            ("/", &["Example.com"][..], Ok("Example.com")),
            ("/", &["example.com:8080"], Ok("example.com:8080")),
            ("/", &["[::1]:80"], Ok("[::1]:80")),
            ("http://a.b/x", &[], Ok("a.b")),
            ("http://a.b/x", &["A.B"], Ok("a.b")),
            ("http://a.b/x", &["c"], Err("the Host and the request target differ")),
            ("/", &[], Err("the request has no Host")),
            ("/", &["a", "a"], Err("the request has more than one Host")),
            ("/", &[""], Err("the Host of the request is invalid")),
            ("/", &["a@evil"], Err("the Host of the request is invalid")),
            ("/", &["a/b"], Err("the Host of the request is invalid")),
            ("/", &["a b"], Err("the Host of the request is invalid")),
            ("/", &["a:x"], Err("the Host of the request is invalid")),
            ("/", &["a:"], Err("the Host of the request is invalid")),
            ("/", &["a:99999"], Err("the Host of the request is invalid")),
            ("/", &["a:1:2"], Err("the Host of the request is invalid")),
            ("/", &["[::1"], Err("the Host of the request is invalid")),
            ("/", &["a#b"], Err("the Host of the request is invalid")),
            ("/", &[":80"], Err("the Host of the request is invalid")),
        ] {
            let parts = parts(uri, hosts);
            let found = requested_host(&parts).map_err(|rejection| rejection.text);
            assert_eq!(found, expected.map_err(str::to_owned), "{uri} {hosts:?}");
        }
    }

    #[test]
    fn hosts_that_are_not_served_are_rejected() {
        let parts = parts("/", &["B.example"]);
        assert_eq!(ServedHosts::Any.host(&parts), Ok(("B.example", true)));
        assert_eq!(ServedHosts::One("a.example".into()).host(&parts), Ok(("a.example", false)));
        assert_eq!(ServedHosts::These(vec!["b.example".into()]).host(&parts), Ok(("B.example", true)));
        let rejection = ServedHosts::These(vec!["a.example".into()]).host(&parts).expect_err("another site");
        assert_eq!(rejection.status, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(rejection.text, "the host `b.example` is not served here");
    }

    proptest! {
        #[test]
        fn a_valid_host_has_no_character_that_ends_it_in_a_key(text in "[a-z0-9.:@/#?\\[\\]% -]{0,12}") {
            prop_assert!(!is_valid_host(&text) || !text.contains(['/', '?', '#', '@', '%', ' ']));
        }
    }
}
