//! The origin: where pages come from.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;
use serde::Serialize;

/// A server by its scheme, its name and its port: `http://127.0.0.1:3000`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub(crate) struct Origin {
    /// Whether it is spoken to through TLS.
    pub(crate) tls: bool,
    authority: Authority,
}

impl Origin {
    /// Its name or address, without the port.
    pub(crate) fn host(&self) -> &str {
        self.authority.host()
    }

    /// Its port, also where it is the usual one and not written.
    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.tls { 443 } else { 80 })
    }

    /// Whether it is this address.
    pub(crate) fn is(&self, address: SocketAddr) -> bool {
        let host = self.host().trim_start_matches('[').trim_end_matches(']');
        self.port() == address.port() && host.parse::<IpAddr>().is_ok_and(|host| host == address.ip())
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "write a scheme, a host and perhaps a port, such as http://127.0.0.1:3000";
        let refuse = |why: &str| Err(format!("it {why}; {FORM}"));
        let Ok(uri) = text.parse::<Uri>() else { return refuse("is no address") };
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return refuse("is neither http:// nor https://"),
            None => return refuse("has no scheme"),
        };
        let Some(authority) = uri.authority().cloned() else { return refuse("has no host") };
        if authority.as_str().contains('@') {
            return refuse("has a user, who would be told to nobody");
        }
        // A fragment and an empty query are gone once it is parsed, so the text itself is asked.
        if !matches!(uri.path(), "" | "/") || text.contains(['?', '#']) {
            return refuse("has a path or a query, and visitors' own are asked for");
        }
        // An empty port and port 0 are parsed, and nobody can be asked there.
        if authority.host().is_empty() || authority.as_str().ends_with(':') || authority.port_u16() == Some(0)
        {
            return refuse("has no host or no port");
        }
        // What is no host for visitors is none for an origin.
        let routes = facetheory::Routes::new([]).map_err(|error| error.to_string())?;
        match routes.of_sites([authority.as_str()]) {
            Ok(_) => Ok(Origin { tls, authority }),
            Err(_) => refuse("has no host that can be asked"),
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
    fn what_is_no_origin_is_refused() {
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
            let fault = text.parse::<Origin>().expect_err(text);
            assert!(fault.contains("such as http://127.0.0.1:3000"), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,20}|https?://[a-z.:@/?#\\[\\]0-9]{0,12}") {
            if let Ok(origin) = text.parse::<Origin>() {
                prop_assert_eq!(origin.to_string().parse(), Ok(origin));
            }
        }
    }
}
