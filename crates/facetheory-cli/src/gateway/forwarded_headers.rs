//! What the origin is told of a visitor's request, and what it is not.

use std::net::IpAddr;

use facetheory::{is_valid_host, remove_hop_by_hop_headers};
use http::header::{
    CONNECTION, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, TE, UPGRADE, VARY,
    VIA,
};
use http::uri::Scheme;

use super::client::Client;
use crate::config::Network;

/// Under what name the gateway stands in `Via`.
const PSEUDONYM: &str = "facetheory";
/// The gateways that a request may have passed already. More than one in a row makes sense; this many is a circle.
const MOST_GATEWAYS: usize = 8;

/// Headers that some origins believe in spite of who sends them: addresses, hosts and schemes of proxies in front, other
/// targets, other methods, and what only a framework's own servers say to each other.
const NOT_FOR_VISITORS: [&str; 41] = [
    "cf-connecting-ip",
    "client-ip",
    "fastly-client-ip",
    // To programs behind CGI it is the variable that names the proxy for their own requests (CVE-2016-5385).
    "proxy",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-amz-website-redirect-location",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-facetheory-tenant",
    "x-forwarded",
    "x-forwarded-by",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-uri",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-invoke-path",
    "x-invoke-query",
    "x-invoke-status",
    "x-method-override",
    "x-middleware-subrequest",
    "x-now-route-matches",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-uri",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-uri",
    "x-rewrite-url",
    "x-tenant-id",
    "x-url-scheme",
];

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whom the gateway believes.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedProxies {
    /// Proxies in front of the gateway: what they say of a visitor holds.
    pub(crate) proxies: Vec<Network>,
    /// Headers that a proxy in front sets, or takes away, so that visitors cannot: those by which rules tell tenants apart.
    pub(crate) headers: Vec<HeaderName>,
    /// Other headers that name a tenant.
    pub(crate) doubtful: Vec<HeaderName>,
}

impl TrustedProxies {
    /// Whether this is a proxy in front.
    pub(crate) fn believes(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(address))
    }

    /// Takes away the host that a visitor claims to have asked for, unless a proxy in front says so: it tells pages apart.
    pub(crate) fn doubt_host(&self, client: &Client, headers: &mut HeaderMap) {
        if !self.believes(client.address.ip()) {
            headers.remove(X_FORWARDED_HOST);
        }
    }

    /// By which scheme a visitor came, who may have come through a proxy in front.
    pub(crate) fn scheme(&self, client: &Client, headers: &HeaderMap) -> Scheme {
        if self.proxies.is_empty() || !self.believes(client.address.ip()) {
            return client.scheme.clone();
        }
        match headers.get(X_FORWARDED_PROTO).map(HeaderValue::as_bytes) {
            Some(b"https") => Scheme::HTTPS,
            Some(b"http") => Scheme::HTTP,
            _ => client.scheme.clone(),
        }
    }
}

/// Whether a request goes in a circle, and comes back to gateways again and again.
pub(crate) fn is_circular(headers: &HeaderMap) -> bool {
    let passed = headers.get_all(VIA).iter().filter_map(|line| line.to_str().ok());
    let gateways = passed.flat_map(|line| line.split(',')).filter(|by| by.trim().ends_with(PSEUDONYM));
    gateways.count() >= MOST_GATEWAYS
}

/// Counts one more server on the way of a request that says how many it may pass (RFC 9110 §7.6.2). False if it is to be answered
/// here.
pub(crate) fn goes_on(headers: &mut HeaderMap) -> bool {
    let said = headers.get(MAX_FORWARDS).map(HeaderValue::as_bytes);
    let said = said.filter(|said| !said.is_empty() && said.iter().all(u8::is_ascii_digit));
    // A number that is too large to be counted is lowered to one that can be.
    let count = |left: u32, digit: &u8| left.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    match said.map(|said| said.iter().fold(0, count)) {
        Some(0) => return false,
        Some(left) => drop(headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1))),
        None => {}
    }
    true
}

/// The protocol that a request asks to go on with, if any that the gateway lets through.
///
/// `h2c` is not let through: behind a tunnel of it an origin could be asked for anything.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut asked = headers.get_all(UPGRADE).iter();
    let (Some(protocol), None) = (asked.next(), asked.next()) else { return None };
    let name = protocol.to_str().ok()?.trim();
    let names_upgrade = |line: &HeaderValue| {
        line.to_str()
            .is_ok_and(|line| line.split(',').any(|name| name.trim().eq_ignore_ascii_case("upgrade")))
    };
    let is_one = !name.is_empty() && !name.contains(',') && !name.to_ascii_lowercase().starts_with("h2c");
    (is_one && headers.get_all(CONNECTION).iter().any(names_upgrade)).then(|| protocol.clone())
}

/// Makes the headers of a request those that the origin gets.
///
/// Hop-by-hop headers go first, so that nothing that is written afterwards can be made one by the visitor. Of a render,
/// which is nobody's, the origin learns by which host and scheme the page is asked for and nothing more.
pub(crate) fn prepare(
    headers: &mut HeaderMap,
    client: Option<&Client>,
    scheme: &Scheme,
    trust: &TrustedProxies,
) {
    let trailers = accepts_trailers(headers);
    remove_hop_by_hop_headers(headers);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let believed = client.is_some_and(|client| trust.believes(client.address.ip()));
    let (mut before, mut host) = (None, None);
    if believed {
        before = joined(headers, &X_FORWARDED_FOR);
        host = headers.get(X_FORWARDED_HOST).cloned();
    }
    for name in NOT_FOR_VISITORS {
        if !trust.headers.iter().any(|trusted| trusted == name) {
            headers.remove(name);
        }
    }
    for name in &trust.doubtful {
        if !trust.headers.contains(name) {
            headers.remove(name);
        }
    }
    headers.remove(FORWARDED);
    remove_underscores(headers);
    join_cookies(headers);
    if let Some(host) = host.or_else(|| headers.get(HOST).cloned()) {
        headers.insert(X_FORWARDED_HOST, host);
    }
    if let Ok(scheme) = HeaderValue::from_str(scheme.as_str()) {
        headers.insert(X_FORWARDED_PROTO, scheme);
    }
    if let Some(client) = client {
        let address = client.address.ip().to_canonical();
        let line = match before {
            Some(before) => format!("{before}, {address}"),
            None => address.to_string(),
        };
        if let Ok(line) = HeaderValue::try_from(line) {
            headers.insert(X_FORWARDED_FOR, line);
        }
    }
    if let Some(element) = forwarded(headers, client, scheme) {
        headers.insert(FORWARDED, element);
    }
    headers.append(VIA, HeaderValue::from_static("1.1 facetheory"));
}

/// Whether an answer depends on the address of its visitor, by its own word: on headers that the gateway writes, and that are
/// not in the visitor's request, by which stored responses are told apart.
pub(crate) fn varies_by_address(answer: &HeaderMap) -> bool {
    let lines = answer.get_all(VARY).iter().filter_map(|line| line.to_str().ok());
    let mut names = lines.flat_map(|line| line.split(',')).map(str::trim);
    names.any(|name| [&X_FORWARDED_FOR, &FORWARDED].iter().any(|own| name.eq_ignore_ascii_case(own.as_str())))
}

/// The same in the words of RFC 7239: by whom, by which host and by which scheme it is asked for.
fn forwarded(headers: &HeaderMap, client: Option<&Client>, scheme: &Scheme) -> Option<HeaderValue> {
    let host = headers.get(X_FORWARDED_HOST)?.to_str().ok().filter(|host| is_valid_host(host))?;
    let address = client.map(|client| match client.address.ip().to_canonical() {
        IpAddr::V4(address) => format!("for={address};"),
        IpAddr::V6(address) => format!("for=\"[{address}]\";"),
    });
    let element = format!("{}host=\"{host}\";proto={scheme}", address.unwrap_or_default());
    HeaderValue::try_from(element).ok()
}

/// The trailers of a request that the origin gets.
pub(crate) fn trailers(mut trailers: HeaderMap) -> HeaderMap {
    remove_hop_by_hop_headers(&mut trailers);
    for name in NOT_FOR_VISITORS.map(HeaderName::from_static).iter().chain(&[FORWARDED, HOST, COOKIE, VIA]) {
        trailers.remove(name);
    }
    remove_underscores(&mut trailers);
    trailers
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(TE).iter().filter_map(|line| line.to_str().ok());
    lines.any(|line| line.split(',').any(|coding| coding.trim().eq_ignore_ascii_case("trailers")))
}

/// Over HTTP/2 cookies come in as many lines as browsers like; over HTTP/1 they are one (RFC 9113 §8.2.3), and many an origin
/// would take several for a list with commas.
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1
        && let Ok(line) = HeaderValue::from_bytes(&lines.join(&b"; "[..]))
    {
        headers.insert(COOKIE, line);
    }
}

/// Some origins take `_` for `-`, so that one header could pass for another that was taken away.
fn remove_underscores(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().contains('_')).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Vec<&str> = headers.get_all(name).iter().filter_map(|line| line.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
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
            place: std::sync::Weak::new(),
        }
    }

    fn trusting(network: &str) -> TrustedProxies {
        TrustedProxies { proxies: vec![network.parse().expect("a network")], ..TrustedProxies::default() }
    }

    fn told(
        lines: &[(&'static str, &'static str)],
        client: Option<&Client>,
        trust: &TrustedProxies,
    ) -> Vec<String> {
        let mut headers = headers(lines);
        let scheme = client.map_or(Scheme::HTTP, |client| trust.scheme(client, &headers));
        prepare(&mut headers, client, &scheme, trust);
        let mut told: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        told.sort();
        told
    }

    #[test]
    fn what_a_visitor_says_of_proxies_is_written_anew() {
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
        let told = told(&lines, Some(&client("1.2.3.4:5")), &TrustedProxies::default());
        let expected = [
            "forwarded: for=1.2.3.4;host=\"a\";proto=http",
            "host: a",
            "via: 1.1 facetheory",
            "x-forwarded-for: 1.2.3.4",
            "x-forwarded-host: a",
            "x-forwarded-proto: http",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_a_listed_proxy_says_holds() {
        let lines = [
            ("host", "inner"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-host", "www.example.com"),
            ("x-forwarded-proto", "https"),
        ];
        let told = told(&lines, Some(&client("10.1.2.3:5")), &trusting("10.0.0.0/8"));
        let expected = [
            "forwarded: for=10.1.2.3;host=\"www.example.com\";proto=https",
            "host: inner",
            "via: 1.1 facetheory",
            "x-forwarded-for: 6.6.6.6, 10.1.2.3",
            "x-forwarded-host: www.example.com",
            "x-forwarded-proto: https",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn connection_cannot_take_away_what_the_gateway_writes_nor_host_and_cookies() {
        let lines = [
            ("connection", "close, host, cookie, x-forwarded-for, x-own"),
            ("host", "a"),
            ("cookie", "a=b"),
            ("x-own", "1"),
            ("te", "trailers, deflate"),
        ];
        let told = told(&lines, Some(&client("1.2.3.4:5")), &TrustedProxies::default());
        let expected = [
            "cookie: a=b",
            "forwarded: for=1.2.3.4;host=\"a\";proto=http",
            "host: a",
            "te: trailers",
            "via: 1.1 facetheory",
            "x-forwarded-for: 1.2.3.4",
            "x-forwarded-host: a",
            "x-forwarded-proto: http",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn cookies_in_several_lines_become_one() {
        let mut lines = headers(&[("host", "a"), ("cookie", "a=1")]);
        lines.append(COOKIE, HeaderValue::from_static("b=2; c=3"));
        prepare(&mut lines, Some(&client("1.2.3.4:5")), &Scheme::HTTP, &TrustedProxies::default());
        assert_eq!(lines.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    }

    #[test]
    fn a_render_is_nobodys() {
        let told = told(&[("host", "a")], None, &trusting("0.0.0.0/0"));
        let expected = [
            "forwarded: host=\"a\";proto=http",
            "host: a",
            "via: 1.1 facetheory",
            "x-forwarded-host: a",
            "x-forwarded-proto: http",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_header_that_is_declared_trusted_passes() {
        let trust = TrustedProxies {
            headers: vec![HeaderName::from_static("x-tenant-id")],
            ..TrustedProxies::default()
        };
        let told = told(&[("x-tenant-id", "acme")], Some(&client("1.2.3.4:5")), &trust);
        assert!(told.contains(&"x-tenant-id: acme".to_owned()), "{told:?}");
    }

    #[test]
    fn a_header_that_names_a_tenant_and_is_not_declared_trusted_does_not_pass() {
        let doubtful = vec![HeaderName::from_static("x-shop")];
        let trust = TrustedProxies { doubtful: doubtful.clone(), ..TrustedProxies::default() };
        let lines = [("x-shop", "acme")];
        assert!(!told(&lines, Some(&client("1.2.3.4:5")), &trust).contains(&"x-shop: acme".to_owned()));
        let trust = TrustedProxies { headers: doubtful.clone(), doubtful, ..TrustedProxies::default() };
        assert!(told(&lines, Some(&client("1.2.3.4:5")), &trust).contains(&"x-shop: acme".to_owned()));
    }

    #[test]
    fn one_protocol_may_be_asked_for_and_never_h2c() {
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
    fn trailers_say_nothing_that_headers_may_not_say() {
        let lines =
            [("x-forwarded-for", "6.6.6.6"), ("x_own", "1"), ("host", "evil"), ("digest", "sha-256=x")];
        let left = trailers(headers(&lines));
        assert_eq!(left.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["digest"]);
    }

    #[test]
    fn a_circle_is_noticed() {
        let mut via = HeaderMap::new();
        for _ in 0..MOST_GATEWAYS {
            assert!(!is_circular(&via));
            via.append(VIA, HeaderValue::from_static("1.1 facetheory"));
        }
        assert!(is_circular(&via));
    }
}
