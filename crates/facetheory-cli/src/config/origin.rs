//! The URL of the origin.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;
use serde::Serialize;

/// The scheme, host and port of the origin: `http://127.0.0.1:3000`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub(crate) struct Origin {
    /// Whether the scheme is `https`.
    pub(crate) tls: bool,
    authority: Authority,
}

impl Origin {
    /// Returns the host without the port.
    pub(crate) fn host(&self) -> &str {
        self.authority.host()
    }

    /// Returns the port, or the default port of the scheme.
    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.tls { 443 } else { 80 })
    }

    /// Whether the origin is this IP address and port.
    pub(crate) fn is(&self, address: SocketAddr) -> bool {
        let host = self.host().trim_start_matches('[').trim_end_matches(']');
        self.port() == address.port() && host.parse::<IpAddr>().is_ok_and(|host| host == address.ip())
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "write a scheme, a host and optionally a port, such as http://127.0.0.1:3000";
        let reject = |problem: &str| Err(format!("the URL of the origin {problem}; {FORM}"));
        let Ok(uri) = text.parse::<Uri>() else { return reject("is malformed") };
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return reject("is neither http:// nor https://"),
            None => return reject("has no scheme"),
        };
        let Some(authority) = uri.authority().cloned() else { return reject("has no host") };
        if authority.as_str().contains('@') {
            return reject("has a user name, which would not be sent");
        }
        // Parsing drops a fragment and an empty query, so they are looked for in the text.
        if !matches!(uri.path(), "" | "/") || text.contains(['?', '#']) {
            return reject("has a path or a query, but requests have their own");
        }
        // `Uri` accepts an empty port and port 0.
        if authority.host().is_empty() || authority.as_str().ends_with(':') || authority.port_u16() == Some(0)
        {
            return reject("has no valid host or port");
        }
        if facetheory::is_valid_host(authority.as_str()) {
            Ok(Origin { tls, authority })
        } else {
            reject("has an invalid host")
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> String {
        origin.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_origin_has_a_scheme_a_host_and_a_port() {
        for (text, tls, host, port) in [
            ("http://127.0.0.1:3000", false, "127.0.0.1", 3000),
            ("http://127.0.0.1:3000/", false, "127.0.0.1", 3000),
            ("http://app", false, "app", 80),
            ("https://app.example.com", true, "app.example.com", 443),
            ("HTTPS://app:8443", true, "app", 8443),
            ("http://[::1]:3000", false, "[::1]", 3000),
        ] {
            let origin: Origin = text.parse().expect(text);
            assert_eq!((origin.tls, origin.host(), origin.port()), (tls, host, port), "{text}");
            assert_eq!(origin.to_string().parse(), Ok(origin), "{text}");
        }
    }

    #[test]
    fn an_invalid_origin_is_rejected() {
        for text in [
            "",
            "localhost:3000",
            "//app",
            "/path",
            "ftp://app",
            "unix:/run/app.sock",
            "http://",
            "http://user:secret@app",
            "http://app/base",
            "http://app?x",
            "http://app/?",
            "http://app/#x",
            "http://app:",
            "http://app:0",
            "http://app:99999",
            "http://a b",
            "http://[::1",
        ] {
            let error = text.parse::<Origin>().expect_err(text);
            assert!(error.contains("such as http://127.0.0.1:3000"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,20}|https?://[a-z.:@/?#\\[\\]0-9]{0,12}") {
            if let Ok(origin) = text.parse::<Origin>() {
                prop_assert_eq!(origin.to_string().parse(), Ok(origin));
            }
        }
    }
}
