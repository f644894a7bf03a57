//! An event that describes an HTTP request, as a request on a connection of its client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use facetheory::remove_hop_by_hop_headers;
use http::header::{CONTENT_LENGTH, COOKIE, EXPECT, HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, Uri};
use http_body_util::Full;

use crate::wire::rejection::{Rejection, TOO_MANY_HEADERS};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

const INVALID_METHOD: Rejection = Rejection::bad("invalid method");
const INVALID_TARGET: Rejection = Rejection::bad("invalid path or query");
const INVALID_HEADER: Rejection = Rejection::bad("invalid header");
const INVALID_BODY: Rejection = Rejection::bad("the body is not base64");

/// An event that describes an HTTP request.
#[derive(Debug)]
pub(super) struct HttpEvent {
    pub(super) source: Source,
    pub(super) method: String,
    /// The path, as the client sent it.
    pub(super) path: String,
    /// The query, as the client sent it.
    pub(super) query: String,
    pub(super) headers: Vec<(String, String)>,
    /// The cookies, if they are not among the headers.
    pub(super) cookies: Vec<String>,
    pub(super) body: String,
    pub(super) is_base64: bool,
}

/// The service that received the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    FunctionUrl {
        /// The address of the client.
        address: String,
    },
    LoadBalancer {
        /// Whether headers are lists of values, in the event and in the response.
        multi_value: bool,
    },
}

/// A request, and the client that sent it.
#[derive(Debug)]
pub(super) struct ClientRequest {
    pub(super) address: SocketAddr,
    pub(super) scheme: Scheme,
    pub(super) request: Request<Full<Bytes>>,
}

impl HttpEvent {
    /// Returns the request as the client sent it to the service. Only its syntax is checked here: limits and everything else
    /// are checked on the connection, like for any other client.
    pub(super) fn into_request(self) -> Result<ClientRequest, Rejection> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| INVALID_HEADER)?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| INVALID_HEADER)?;
            headers.try_append(name, value).map_err(|_| TOO_MANY_HEADERS)?;
        }
        if !self.cookies.is_empty() {
            // They may be among the headers as well.
            let line = HeaderValue::try_from(self.cookies.join("; ")).map_err(|_| INVALID_HEADER)?;
            headers.insert(COOKIE, line);
        }
        // Before headers are removed: `Connection` of the client may name those that the service has added.
        let (address, scheme) = match self.source {
            Source::FunctionUrl { address } => {
                let address = parse_address(&address);
                if last_forwarded_for(&headers) == address {
                    remove_last_forwarded_for(&mut headers);
                }
                (address, Scheme::HTTPS)
            }
            // The load balancer has appended the address of its client.
            Source::LoadBalancer { .. } => {
                let address = last_forwarded_for(&headers);
                remove_last_forwarded_for(&mut headers);
                let is_https = headers.get(X_FORWARDED_PROTO).is_some_and(|scheme| scheme == "https");
                (address, if is_https { Scheme::HTTPS } else { Scheme::HTTP })
            }
        };
        // They describe the connection to the service. The body is complete, and its length is known.
        remove_hop_by_hop_headers(&mut headers);
        headers.remove(CONTENT_LENGTH);
        headers.remove(EXPECT);
        let body = if self.is_base64 {
            BASE64_STANDARD.decode(&self.body).map_err(|_| INVALID_BODY)?
        } else {
            self.body.into_bytes()
        };
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::from_bytes(self.method.as_bytes()).map_err(|_| INVALID_METHOD)?;
        *request.uri_mut() = target(&self.path, &self.query).ok_or(INVALID_TARGET)?;
        *request.headers_mut() = headers;
        // An unknown address belongs to no trusted proxy.
        let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        Ok(ClientRequest { address: SocketAddr::new(address, 0), scheme, request })
    }
}

/// Returns the request target. A path or query that would change the meaning of the other is invalid.
fn target(path: &str, query: &str) -> Option<Uri> {
    if !path.starts_with('/') || path.contains(['?', '#']) || query.contains('#') {
        return None;
    }
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    PathAndQuery::try_from(target).map(Uri::from).ok()
}

/// Parses an address, with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let with_port = || text.parse::<SocketAddr>().map(|address| address.ip()).ok();
    text.parse().ok().or_else(with_port)
}

/// Returns the address that the service itself has appended.
fn last_forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let line = headers.get_all(X_FORWARDED_FOR).iter().next_back()?.to_str().ok()?;
    parse_address(line.rsplit(',').next()?)
}

/// Removes the address that the service has appended: the gateway appends the address of the connection itself.
fn remove_last_forwarded_for(headers: &mut HeaderMap) {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok());
    let lines = lines.collect::<Vec<_>>().join(",");
    let others = lines.rsplit_once(',').and_then(|(others, _)| HeaderValue::from_str(others.trim()).ok());
    match others {
        Some(others) => drop(headers.insert(X_FORWARDED_FOR, others)),
        None => drop(headers.remove(X_FORWARDED_FOR)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(source: Source, headers: &[(&str, &str)]) -> HttpEvent {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (path, query) = ("/a%2Fb".to_owned(), "q=%C3%BC+1".to_owned());
        let (method, cookies, body) = ("GET".to_owned(), Vec::new(), String::new());
        HttpEvent { source, method, path, query, headers, cookies, body, is_base64: false }
    }

    fn function_url() -> Source {
        Source::FunctionUrl { address: "203.0.113.9".to_owned() }
    }

    #[test]
    fn the_target_is_the_one_that_the_client_sent() {
        let request = event(function_url(), &[("host", "a")]).into_request().expect("a request").request;
        assert_eq!(request.uri(), "/a%2Fb?q=%C3%BC+1");
    }

    #[test]
    fn the_client_is_the_one_that_the_service_names_whatever_the_client_claims() {
        let balancer = || Source::LoadBalancer { multi_value: false };
        for (source, forwarded, address, left, scheme) in [
            (function_url(), "6.6.6.6, 203.0.113.9", "203.0.113.9", Some("6.6.6.6"), Scheme::HTTPS),
            (function_url(), "203.0.113.9", "203.0.113.9", None, Scheme::HTTPS),
            (function_url(), "6.6.6.6", "203.0.113.9", Some("6.6.6.6"), Scheme::HTTPS),
            (balancer(), "6.6.6.6, 198.51.100.7", "198.51.100.7", Some("6.6.6.6"), Scheme::HTTP),
            (balancer(), "198.51.100.7:50000", "198.51.100.7", None, Scheme::HTTP),
            (balancer(), "2001:db8::1", "2001:db8::1", None, Scheme::HTTP),
            (balancer(), "unknown", "0.0.0.0", None, Scheme::HTTP),
        ] {
            let event = event(source, &[("x-forwarded-for", forwarded)]);
            let client = event.into_request().expect("a request");
            assert_eq!(client.address.ip().to_string(), address, "{forwarded}");
            let headers = client.request.headers();
            assert_eq!(headers.get(X_FORWARDED_FOR).map(|line| line.to_str().expect("text")), left);
            assert_eq!(client.scheme, scheme);
        }
        let https = event(balancer(), &[("x-forwarded-proto", "https")]).into_request().expect("a request");
        assert_eq!(https.scheme, Scheme::HTTPS);
    }

    #[test]
    fn a_client_cannot_hide_its_address_or_scheme_with_the_connection_header() {
        let lines = [
            ("connection", "x-forwarded-for, x-forwarded-proto"),
            ("x-forwarded-for", "6.6.6.6, 198.51.100.7"),
            ("x-forwarded-proto", "https"),
        ];
        let balancer = event(Source::LoadBalancer { multi_value: false }, &lines);
        let client = balancer.into_request().expect("a request");
        assert_eq!(
            (client.address.ip().to_string().as_str(), client.scheme),
            ("198.51.100.7", Scheme::HTTPS)
        );
        assert!(client.request.headers().is_empty(), "{:?}", client.request.headers());
    }

    #[test]
    fn headers_of_the_connection_to_the_service_are_removed_and_cookies_are_joined() {
        let lines = [
            ("connection", "upgrade, x-hop"),
            ("upgrade", "websocket"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "99"),
            ("expect", "100-continue"),
            ("cookie", "a=1"),
            ("accept", "*/*"),
        ];
        let mut event = event(function_url(), &lines);
        event.cookies = vec!["a=1".to_owned(), "b=2".to_owned()];
        let request = event.into_request().expect("a request").request;
        let mut left: Vec<String> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        left.sort();
        assert_eq!(left, ["accept: */*", "cookie: a=1; b=2"]);
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let rejected = |change: fn(&mut HttpEvent)| {
            let mut event = event(function_url(), &[("host", "a")]);
            change(&mut event);
            event.into_request().expect_err("an invalid request")
        };
        for path in ["a", "", "/a?b", "/a#b", "/a b", "/\r\nx: y"] {
            let mut event = event(function_url(), &[]);
            event.path = path.to_owned();
            assert_eq!(event.into_request().expect_err(path), INVALID_TARGET);
        }
        assert_eq!(rejected(|event| event.query = "a#b".to_owned()), INVALID_TARGET);
        assert_eq!(rejected(|event| event.query = "a b".to_owned()), INVALID_TARGET);
        assert_eq!(rejected(|event| event.method = "GET /".to_owned()), INVALID_METHOD);
        assert_eq!(rejected(|event| event.headers[0].0 = "a b".to_owned()), INVALID_HEADER);
        assert_eq!(rejected(|event| event.headers[0].1 = "a\r\nb: c".to_owned()), INVALID_HEADER);
        assert_eq!(rejected(|event| event.cookies = vec!["a\nb".to_owned()]), INVALID_HEADER);
        let no_base64 = |event: &mut HttpEvent| (event.body, event.is_base64) = ("%".to_owned(), true);
        assert_eq!(rejected(no_base64), INVALID_BODY);
        let many = |event: &mut HttpEvent| {
            event.headers = (0..40_000).map(|number| (format!("x-{number}"), String::new())).collect();
        };
        assert_eq!(rejected(many), TOO_MANY_HEADERS);
    }
}
