//! The headers of requests that are forwarded to the origin: which are removed, which the gateway writes, and which are
//! trusted if a proxy in front of the gateway sent them.

use std::net::{IpAddr, Ipv4Addr};

use facetheory::{IgnoreDirectives, is_valid_host, remove_hop_by_hop_headers};
use http::header::{
    CACHE_CONTROL, CONNECTION, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS,
    PRAGMA, TE, UPGRADE, VARY, VIA,
};
use http::request::Parts;
use http::uri::Scheme;

use super::client::Client;
use super::header_trust::{AcceptedFrom, accepted_from, is_of_anyone, is_of_proxies};
use crate::config::{ClientCacheControl, Network};

/// The name of the gateway in `Via`.
const PSEUDONYM: &str = "facetheory";
/// The number of gateways that a request may pass. A few in a row are legitimate; this many are a loop.
const MAX_GATEWAYS: usize = 8;

/// The client of a render, in `X-Forwarded-For` and `Forwarded`: an address for documentation (RFC 5737), which nobody has.
/// A page is for everyone, so the origin does not get the address of the client that caused its render. Without any address, an
/// origin may take the request for a local one, and show internal pages.
const CLIENT_OF_RENDERS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Headers with the client's address of proxies that send no `X-Forwarded-For`.
const OTHER_NAMES_OF_CLIENT: [HeaderName; 2] = [FORWARDED, HeaderName::from_static("x-real-ip")];
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether a request is in a proxy loop.
pub(crate) fn is_loop(headers: &HeaderMap) -> bool {
    list(headers, VIA).filter(|proxy| proxy.ends_with(PSEUDONYM)).count() >= MAX_GATEWAYS
}

/// Decrements `Max-Forwards` (RFC 9110 §7.6.2). Returns false if it is zero: then the request must not be forwarded.
pub(crate) fn count_max_forwards(headers: &mut HeaderMap) -> bool {
    let value = headers.get(MAX_FORWARDS).and_then(|value| value.to_str().ok());
    let digits = value.filter(|value| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()));
    // A number that is too large becomes the largest one.
    match digits.map(|digits| digits.parse().unwrap_or(u32::MAX)) {
        Some(0) => return false,
        Some(left) => drop(headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1))),
        None => {}
    }
    true
}

/// The protocol in the `Upgrade` header of a request, if the gateway supports it.
///
/// `h2c` is not supported: through a tunnel of it, a client could send unchecked requests to the origin.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lines = headers.get_all(UPGRADE).iter();
    let (Some(protocol), None) = (lines.next(), lines.next()) else { return None };
    let name = protocol.to_str().ok()?.trim();
    let is_one = !name.is_empty() && !name.contains(',') && !name.to_ascii_lowercase().starts_with("h2c");
    (is_one && list(headers, CONNECTION).any(|option| option.eq_ignore_ascii_case("upgrade")))
        .then(|| protocol.clone())
}

/// Turns the headers of a client's request into those that the origin gets.
///
/// Hop-by-hop headers are removed first, so that a client cannot declare a header of the gateway as one. A render is not
/// for one client: the origin gets its host and scheme, and [`CLIENT_OF_RENDERS`].
pub(crate) fn prepare(
    headers: &mut HeaderMap,
    client: Option<&Client>,
    scheme: &Scheme,
    trusted_proxies: &TrustedProxies,
) {
    let accepts_trailers = list(headers, TE).any(|coding| coding.eq_ignore_ascii_case("trailers"));
    remove_hop_by_hop_headers(headers);
    if accepts_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let is_trusted = client.is_some_and(|client| trusted_proxies.contains(client.address.ip()));
    let (mut forwarded_for, mut host) = (Vec::new(), None);
    if is_trusted {
        let lines = headers.get_all(X_FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok());
        forwarded_for.extend(lines.map(str::to_owned));
        host = headers.get(X_FORWARDED_HOST).cloned();
    }
    // A render has those headers of its client that are part of the key, which were checked when they arrived.
    let may_be_of_proxy = is_trusted || client.is_none();
    remove_if(headers, |name| {
        let is_accepted = match trusted_proxies.accepted_from(name) {
            AcceptedFrom::Anyone => true,
            AcceptedFrom::TrustedProxies => may_be_of_proxy,
            AcceptedFrom::Nobody => false,
        };
        !is_accepted || has_underscore(name)
    });
    join_cookies(headers);
    if let Some(host) = host.or_else(|| headers.get(HOST).cloned()) {
        headers.insert(X_FORWARDED_HOST, host);
    }
    if let Ok(scheme) = HeaderValue::from_str(scheme.as_str()) {
        headers.insert(X_FORWARDED_PROTO, scheme);
    }
    let address = client.map_or(CLIENT_OF_RENDERS, |client| client.address.ip().to_canonical());
    let text = address.to_string();
    if let Some(element) = forwarded(headers, address, &text, scheme) {
        headers.insert(FORWARDED, element);
    }
    forwarded_for.push(text);
    if let Ok(line) = HeaderValue::try_from(forwarded_for.join(", ")) {
        headers.insert(X_FORWARDED_FOR, line);
    }
    headers.append(VIA, HeaderValue::from_static("1.1 facetheory"));
}

/// Whether the `Vary` header of a response names a header with the client's address. The gateway writes these headers, so
/// variants cannot be selected by those of the client's request.
pub(crate) fn varies_by_address(response: &HeaderMap) -> bool {
    let with_address = [X_FORWARDED_FOR, FORWARDED];
    list(response, VARY)
        .any(|name| with_address.iter().any(|header| name.eq_ignore_ascii_case(header.as_str())))
}

/// The `Forwarded` header (RFC 7239): the client with its address as text, the host and the scheme.
fn forwarded(headers: &HeaderMap, client: IpAddr, address: &str, scheme: &Scheme) -> Option<HeaderValue> {
    let host = headers.get(X_FORWARDED_HOST)?.to_str().ok().filter(|host| is_valid_host(host))?;
    let [before, after] = if client.is_ipv4() { ["for=", ";"] } else { ["for=\"[", "]\";"] };
    let element = [before, address, after, "host=\"", host, "\";proto=", scheme.as_str()].concat();
    HeaderValue::try_from(element).ok()
}

/// Removes the trailers of a request that the origin must not get.
pub(crate) fn trailers(mut trailers: HeaderMap) -> HeaderMap {
    remove_hop_by_hop_headers(&mut trailers);
    remove_if(&mut trailers, |name| {
        !is_of_anyone(name) || has_underscore(name) || [HOST, COOKIE, VIA].contains(name)
    });
    trailers
}

/// The elements of a header that is a comma-separated list.
fn list(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Joins cookie lines. Over HTTP/2 there may be several, over HTTP/1 there must be one (RFC 9113 §8.2.3): many origins
/// would join several with commas.
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1
        && let Ok(line) = HeaderValue::from_bytes(&lines.join(&b"; "[..]))
    {
        headers.insert(COOKIE, line);
    }
}

/// Some origins treat `_` as `-`, so a header with an underscore would replace one that was removed.
fn has_underscore(name: &HeaderName) -> bool {
    name.as_str().contains('_')
}

/// Removes the headers that the condition selects. A request has fewer headers than there are names that may not be in it.
fn remove_if(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// The proxies in front of the gateway, and the headers that only they may set.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedProxies {
    /// Addresses of proxies whose `X-Forwarded-*` headers count.
    pub(crate) networks: Vec<Network>,
    /// Whose directives about caching count.
    pub(crate) directives: ClientCacheControl,
    /// Addresses of clients whose directives count, besides the proxies.
    pub(crate) directive_clients: Vec<Network>,
    /// Headers by which routes select a tenant. Only trusted proxies may set them.
    pub(crate) tenant_headers: Vec<HeaderName>,
    /// Other headers that name a tenant. They never reach the origin.
    pub(crate) untrusted_tenant_headers: Vec<HeaderName>,
}

impl TrustedProxies {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Returns from whom a header is accepted.
    fn accepted_from(&self, name: &HeaderName) -> AcceptedFrom {
        if self.tenant_headers.contains(name) {
            AcceptedFrom::TrustedProxies
        } else if self.untrusted_tenant_headers.contains(name) {
            AcceptedFrom::Nobody
        } else {
            accepted_from(name)
        }
    }

    /// Sets the host and scheme by which the page is selected, and removes the headers that count only if a trusted proxy sent
    /// them: they must not select a page either. The cache layer reads the scheme from the extensions.
    pub(crate) fn apply(&self, client: &Client, request: &mut Parts) {
        // Most requests have no directives, and cost nothing here.
        let has_directives = [CACHE_CONTROL, PRAGMA].iter().any(|name| request.headers.contains_key(name));
        if has_directives && !self.obeys(client, &request.headers) {
            request.extensions.insert(IgnoreDirectives);
        }
        if !self.contains(client.address.ip()) {
            request.headers.remove(X_FORWARDED_HOST);
            remove_if(&mut request.headers, |name| {
                let names_tenant =
                    |name| self.tenant_headers.contains(name) || self.untrusted_tenant_headers.contains(name);
                is_of_proxies(name) && !names_tenant(name)
            });
            for name in &self.tenant_headers {
                if request.headers.contains_key(name) {
                    // No tenant has an empty name, so the request is rejected, on routes with and without tenants.
                    request.headers.insert(name, HeaderValue::from_static(""));
                }
            }
        }
        if self.scheme(client, &request.headers) == Scheme::HTTPS {
            request.extensions.insert(Scheme::HTTPS);
        }
    }

    /// Whether the directives about caching in a request count.
    fn obeys(&self, client: &Client, headers: &HeaderMap) -> bool {
        let is_listed = |address| self.directive_clients.iter().any(|network| network.contains(address));
        match self.directives {
            ClientCacheControl::Ignore => false,
            ClientCacheControl::Obey => true,
            ClientCacheControl::Trusted => {
                let named = self.client_address(client, headers);
                named.map_or_else(|| self.names_no_other(headers), is_listed)
            }
        }
    }

    /// Whether a request of a trusted proxy is its own, or that of another one: nobody else is named as its client.
    fn names_no_other(&self, headers: &HeaderMap) -> bool {
        let is_ours = |name: &str| name.trim().parse().is_ok_and(|address| self.contains(address));
        // A line that is no text may name anybody.
        let is_line_ours = |line: &HeaderValue| line.to_str().is_ok_and(|line| line.split(',').all(is_ours));
        headers.get_all(X_FORWARDED_FOR).iter().all(is_line_ours)
            && !OTHER_NAMES_OF_CLIENT.iter().any(|name| headers.contains_key(name))
    }

    /// The address of the client: the last one that is not of a trusted proxy. `None` if the trusted proxies name none.
    pub(crate) fn client_address(&self, client: &Client, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = client.address.ip();
        if !self.contains(peer) {
            return Some(peer);
        }
        let named: Vec<&str> = list(headers, X_FORWARDED_FOR).collect();
        // An entry that is no address was written by a trusted proxy or below one: nothing before it can be believed.
        let addresses = named.iter().rev().map_while(|name| name.parse::<IpAddr>().ok());
        addresses.into_iter().find(|address| !self.contains(*address))
    }

    /// The scheme that the client used, possibly to a trusted proxy.
    pub(crate) fn scheme(&self, client: &Client, headers: &HeaderMap) -> Scheme {
        if !self.contains(client.address.ip()) {
            return client.scheme.clone();
        }
        match headers.get(X_FORWARDED_PROTO).map(HeaderValue::as_bytes) {
            Some(b"https") => Scheme::HTTPS,
            Some(b"http") => Scheme::HTTP,
            _ => client.scheme.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(pair).collect()
    }

    fn client(address: &str) -> Client {
        Client {
            address: address.parse().expect("an address"),
            scheme: Scheme::HTTP,
            http1_state: None,
            permit: std::sync::Weak::new(),
        }
    }

    fn trusting(network: &str) -> TrustedProxies {
        TrustedProxies { networks: vec![network.parse().expect("a network")], ..TrustedProxies::default() }
    }

    /// The headers that the origin gets for these headers of a client.
    fn prepared(
        lines: &[(&'static str, &'static str)],
        client: Option<&Client>,
        trusted: &TrustedProxies,
    ) -> Vec<String> {
        let mut headers = headers(lines);
        let scheme = client.map_or(Scheme::HTTP, |client| trusted.scheme(client, &headers));
        prepare(&mut headers, client, &scheme, trusted);
        let line =
            |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().expect("text"));
        let mut lines: Vec<String> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    /// The lines that the gateway writes for a client that requests host `a` without TLS.
    const WRITTEN: [&str; 6] = [
        "forwarded: for=1.2.3.4;host=\"a\";proto=http",
        "host: a",
        "via: 1.1 facetheory",
        "x-forwarded-for: 1.2.3.4",
        "x-forwarded-host: a",
        "x-forwarded-proto: http",
    ];

    #[test]
    fn the_client_is_the_last_address_that_is_not_of_a_trusted_proxy() {
        let trusted = trusting("10.0.0.0/8");
        let of = |peer: &str, forwarded_for: &[&'static str]| {
            let lines: Vec<_> = forwarded_for.iter().map(|line| ("x-forwarded-for", *line)).collect();
            trusted.client_address(&client(peer), &headers(&lines)).map(|address| address.to_string())
        };
        let some = |address: &str| Some(address.to_owned());
        assert_eq!(of("1.2.3.4:5", &["6.6.6.6"]), some("1.2.3.4"), "a client names itself as it likes");
        assert_eq!(of("10.0.0.1:5", &["6.6.6.6, 1.2.3.4"]), some("1.2.3.4"));
        assert_eq!(of("10.0.0.1:5", &["6.6.6.6", "1.2.3.4, 10.0.0.2"]), some("1.2.3.4"));
        assert_eq!(of("10.0.0.1:5", &["1.2.3.4, unknown"]), None);
        assert_eq!(of("10.0.0.1:5", &[]), None);
    }

    #[test]
    fn directives_behind_a_trusted_proxy_count_by_the_client_that_it_names() {
        let trusted = TrustedProxies {
            directive_clients: vec!["192.0.2.0/24".parse().expect("a network")],
            ..trusting("10.0.0.0/8")
        };
        for (peer, lines, expected) in [
            ("1.2.3.4:5", &[][..], false),
            ("192.0.2.7:5", &[], true),
            ("1.2.3.4:5", &[("x-forwarded-for", "192.0.2.7")], false),
            ("10.0.0.1:5", &[], true),
            ("10.0.0.1:5", &[("x-forwarded-for", "10.0.0.2, 10.0.0.3")], true),
            ("10.0.0.1:5", &[("x-forwarded-for", "1.2.3.4, 192.0.2.7")], true),
            ("10.0.0.1:5", &[("x-forwarded-for", "192.0.2.7, 1.2.3.4")], false),
            ("10.0.0.1:5", &[("x-forwarded-for", "1.2.3.4")], false),
            ("10.0.0.1:5", &[("x-forwarded-for", "unknown, 10.0.0.2")], false),
            ("10.0.0.1:5", &[("x-forwarded-for", "\u{e9}, 1.2.3.4")], false),
            ("10.0.0.1:5", &[("forwarded", "for=1.2.3.4")], false),
            ("10.0.0.1:5", &[("x-real-ip", "1.2.3.4")], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
            }
            assert_eq!(trusted.obeys(&client(peer), &headers), expected, "{peer} {lines:?}");
        }
    }

    #[test]
    fn proxy_headers_of_a_client_are_replaced() {
        let lines = [
            ("host", "a"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-host", "evil"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "6.6.6.6"),
            ("proxy", "http://evil"),
            ("forwarded", "for=6.6.6.6"),
            ("x-original-url", "/admin"),
            ("x-http-method-override", "DELETE"),
            ("x-middleware-subrequest", "middleware"),
            ("x_forwarded_for", "6.6.6.6"),
            ("x-tenant-id", "acme"),
        ];
        assert_eq!(prepared(&lines, Some(&client("1.2.3.4:5")), &TrustedProxies::default()), WRITTEN);
    }

    #[test]
    fn proxy_headers_of_a_trusted_proxy_are_used() {
        let lines = [
            ("host", "inner"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-host", "www.example.com"),
            ("x-forwarded-proto", "https"),
        ];
        let expected = [
            "forwarded: for=10.1.2.3;host=\"www.example.com\";proto=https",
            "host: inner",
            "via: 1.1 facetheory",
            "x-forwarded-for: 6.6.6.6, 10.1.2.3",
            "x-forwarded-host: www.example.com",
            "x-forwarded-proto: https",
        ];
        assert_eq!(prepared(&lines, Some(&client("10.1.2.3:5")), &trusting("10.0.0.0/8")), expected);
    }

    #[test]
    fn the_connection_header_cannot_remove_headers_of_the_gateway_nor_host_and_cookies() {
        let lines = [
            ("connection", "close, host, cookie, x-forwarded-for, x-own"),
            ("host", "a"),
            ("cookie", "a=b"),
            ("x-own", "1"),
            ("te", "trailers, deflate"),
        ];
        let mut expected = [&WRITTEN[..], &["cookie: a=b", "te: trailers"]].concat();
        expected.sort_unstable();
        assert_eq!(prepared(&lines, Some(&client("1.2.3.4:5")), &TrustedProxies::default()), expected);
    }

    #[test]
    fn several_cookie_lines_are_joined() {
        let mut lines = headers(&[("host", "a"), ("cookie", "a=1")]);
        lines.append(COOKIE, HeaderValue::from_static("b=2; c=3"));
        prepare(&mut lines, Some(&client("1.2.3.4:5")), &Scheme::HTTP, &TrustedProxies::default());
        assert_eq!(lines.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    }

    #[test]
    fn a_render_has_the_address_of_no_client() {
        let expected = WRITTEN.map(|line| line.replace("1.2.3.4", "192.0.2.1"));
        assert_eq!(prepared(&[("host", "a")], None, &trusting("0.0.0.0/0")), expected);
    }

    #[test]
    fn a_tenant_header_of_a_route_is_accepted_from_trusted_proxies_and_reaches_a_render() {
        let shop = vec![HeaderName::from_static("x-shop")];
        let of_route = TrustedProxies {
            tenant_headers: shop.clone(),
            untrusted_tenant_headers: shop.clone(),
            ..trusting("10.0.0.0/8")
        };
        let of_no_route = TrustedProxies { untrusted_tenant_headers: shop, ..trusting("10.0.0.0/8") };
        let (proxy, other) = (client("10.1.2.3:5"), client("1.2.3.4:5"));
        for (client, trusted, expected) in [
            (Some(&proxy), &of_route, true),
            (None, &of_route, true),
            (Some(&other), &of_route, false),
            (Some(&proxy), &of_no_route, false),
            (None, &of_no_route, false),
        ] {
            let prepared = prepared(&[("x-shop", "acme")], client, trusted);
            assert_eq!(prepared.contains(&"x-shop: acme".to_owned()), expected, "{prepared:?}");
        }
    }

    #[test]
    fn headers_of_untrusted_clients_that_only_proxies_may_set_select_no_page() {
        let trusted = TrustedProxies {
            tenant_headers: vec![HeaderName::from_static("x-shop")],
            ..trusting("10.0.0.0/8")
        };
        let lines =
            [("x-shop", "acme"), ("remote-user", "alice"), ("x-forwarded-host", "a"), ("accept", "b")];
        let left = |peer: &str| {
            let mut request = http::Request::new(()).into_parts().0;
            request.headers = headers(&lines);
            trusted.apply(&client(peer), &mut request);
            lines.map(|(name, _)| {
                request.headers.get(name).map(|value| value.to_str().expect("text").to_owned())
            })
        };
        let some = |value: &str| Some(value.to_owned());
        assert_eq!(left("10.1.2.3:5"), [some("acme"), some("alice"), some("a"), some("b")]);
        assert_eq!(left("1.2.3.4:5"), [some(""), None, None, some("b")]);
    }

    #[test]
    fn one_protocol_can_be_requested_and_never_h2c() {
        for (lines, expected) in [
            (&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")][..], true),
            (&[("upgrade", "websocket")], false),
            (&[("connection", "upgrade"), ("upgrade", "h2c")], false),
            (&[("connection", "upgrade"), ("upgrade", "websocket, h2c")], false),
            (&[("connection", "upgrade")], false),
        ] {
            assert_eq!(upgrade(&headers(lines)).is_some(), expected, "{lines:?}");
        }
    }

    #[test]
    fn trailers_are_filtered_like_headers() {
        let lines =
            [("x-forwarded-for", "6.6.6.6"), ("x_own", "1"), ("host", "evil"), ("digest", "sha-256=x")];
        let left = trailers(headers(&lines));
        assert_eq!(left.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["digest"]);
    }

    #[test]
    fn a_proxy_loop_is_detected() {
        let mut via = HeaderMap::new();
        for _ in 0..MAX_GATEWAYS {
            assert!(!is_loop(&via));
            via.append(VIA, HeaderValue::from_static("1.1 facetheory"));
        }
        assert!(is_loop(&via));
    }
}
