//! The gateway: a reverse proxy whose pages are rendered once, served to everyone, and renewed by one worker.

mod body;
mod client;
mod connection_limit;
mod connection_service;
mod connector;
mod forwarded_headers;
mod h2_frames;
mod health;
mod idle_tracker;
mod informational;
mod listener;
mod local_response;
mod origin;
mod shutdown_signal;
mod tls;
mod tracked_body;
mod tunnel;
mod upstream_io;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use facetheory::{Hit, Isr, IsrBody, IsrLayer, IsrService, ResolvedRequest};
use http::header::{CONTENT_LENGTH, COOKIE, HeaderName};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tower::{Layer as _, Service as _};

use crate::config::Config;
use crate::log::{AccessLog, Verdict};
use crate::wire::{self, InformationalWindow, Rejection};
use body::{BodyLimits, RequestBody};
use client::{Client, ClientContext};
use forwarded_headers::TrustedProxies;
use local_response::{local_response, without_body};

pub(crate) use connection_limit::ConnectionLimit;
pub(crate) use listener::{Endpoint, Listener};
pub(crate) use origin::Origin;
pub(crate) use tls::Tls;
pub(crate) use tunnel::Tunnels;

/// What is said of a GET or a HEAD that has one.
const HAS_BODY: (StatusCode, &str) = (StatusCode::BAD_REQUEST, "a request for a page has no body");

/// What answers visitors, on whatever connection they come. Its rules can be replaced while it does.
#[derive(Debug)]
pub(crate) struct Gateway {
    rules: ArcSwap<Rules>,
    /// Where requests are told of, if anywhere.
    access: Option<AccessLog>,
}

/// What a gateway goes by.
#[derive(Debug)]
pub(crate) struct Rules {
    service: IsrService<Origin>,
    origin: Origin,
    trust: TrustedProxies,
    body: BodyLimits,
    limits: wire::RequestLimits,
    timeouts: wire::ClientTimeouts,
}

impl Rules {
    /// The rules of a configuration, for pages that this engine keeps.
    pub(crate) fn new(
        config: &Config,
        address: &crate::config::Origin,
        isr: Isr,
        tunnels: Tunnels,
        is_logged: bool,
    ) -> anyhow::Result<Self> {
        let (limits, timeouts) = (&config.limits, &config.timeouts);
        let trust = TrustedProxies {
            proxies: config.trusted_proxies.clone(),
            headers: names(config.rules.resolved().filter_map(|rule| rule.tenant_header())),
            doubtful: names(config.tenant_headers.iter().map(String::as_str)),
        };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let origin = Origin::new(address, (timeouts, limits), trust.clone(), tunnels)?;
        let layer = IsrLayer::new(isr, config.routes()?)
            .strict()
            .max_page_bytes(limits.page_bytes)
            .fetch_timeout(timeouts.fetch())
            .new_pages_per_second(u32::try_from(limits.new_pages_per_second).unwrap_or(u32::MAX))
            .variants_per_page(size(limits.variants_per_page));
        let layer = if config.strip_tags { layer.strip_tags() } else { layer };
        let body = if limits.body_bytes == 0 { u64::MAX } else { limits.body_bytes };
        Ok(Rules {
            service: if is_logged { layer.expose_page_key() } else { layer }.layer(origin.clone()),
            origin,
            trust,
            body: BodyLimits { bytes: body, pause: timeouts.client_body },
            limits: wire::RequestLimits {
                head_bytes: size(limits.header_bytes),
                headers: size(limits.headers),
                target_bytes: size(limits.uri_bytes),
                body_bytes: body,
            },
            timeouts: wire::ClientTimeouts {
                head: timeouts.client_headers,
                idle: timeouts.client_idle,
                body: timeouts.client_body,
                write: timeouts.client_idle,
            },
        })
    }
}

impl Rules {
    /// What is wrong with a request that came over HTTP/2. One that came over HTTP/1 was checked by the wire.
    fn fault<B: http_body::Body>(&self, request: &Request<B>) -> Option<(StatusCode, &'static str)> {
        let (uri, limits) = (request.uri(), &self.limits);
        let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
        let asks_for_all = request.method() == Method::OPTIONS && target == "*";
        if !target.starts_with('/') && !asks_for_all {
            Some((StatusCode::BAD_REQUEST, "the path of the request is none"))
        } else if uri.authority().is_none() && !asks_for_all {
            // RFC 9113 §8.3.1 wants it of whoever asks for an address. What is malformed in a certain way, h2 gives us without it,
            // and without its path.
            Some((StatusCode::BAD_REQUEST, "the request has no :authority"))
        } else if request.headers().get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
            Some((StatusCode::BAD_REQUEST, "the Content-Length is there twice"))
        } else if target.len() > limits.target_bytes {
            Some((StatusCode::URI_TOO_LONG, "the address of the request is too long"))
        } else if request.headers().len() > limits.headers && header_count(request.headers()) > limits.headers
        {
            Some((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request has too many headers"))
        } else if matches!(*request.method(), Method::GET | Method::HEAD) && !request.body().is_end_stream() {
            Some(HAS_BODY)
        } else if request.body().size_hint().lower() > limits.body_bytes {
            Some((StatusCode::PAYLOAD_TOO_LARGE, "the body of the request is too long"))
        } else {
            None
        }
    }
}

/// How many headers there are: a visitor may send each cookie in a line of its own (RFC 9113 §8.2.3), and they are one header.
fn header_count(headers: &HeaderMap) -> usize {
    let cookie_lines = headers.get_all(COOKIE).iter().count();
    headers.len() - cookie_lines.saturating_sub(1)
}

/// Waits for the end of a body, and says whether it had nothing in it.
async fn ends_empty(body: &mut Incoming) -> bool {
    if body.size_hint().lower() > 0 {
        return false;
    }
    while let Some(frame) = body.frame().await {
        if !frame.is_ok_and(|frame| frame.data_ref().is_none_or(Bytes::is_empty)) {
            return false;
        }
    }
    true
}

fn names<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<HeaderName> {
    texts.filter_map(|text| HeaderName::from_bytes(text.as_bytes()).ok()).collect()
}

impl Gateway {
    /// A gateway by these rules, which tells of requests there.
    pub(crate) fn new(rules: Rules, access: Option<AccessLog>) -> Arc<Self> {
        Arc::new(Gateway { rules: ArcSwap::from_pointee(rules), access })
    }

    /// Goes by these rules from now on. What has begun by others ends by them.
    pub(crate) fn replace(&self, rules: Rules) {
        self.rules.store(Arc::new(rules));
    }

    /// The pages that it goes by now, for whoever looks at them from outside.
    pub(crate) fn service(&self) -> IsrService<Origin> {
        self.rules.load().service.clone()
    }

    /// Whether the origin counts as down.
    pub(crate) fn origin_is_down(&self) -> bool {
        self.rules.load().origin.is_down()
    }

    /// Whether a connection from this address is one of a proxy in front.
    fn trusts(&self, address: IpAddr) -> bool {
        self.rules.load().trust.believes(address)
    }

    /// Whether something is wrong with a request that came over HTTP/2.
    fn has_fault(&self, request: &Request<Incoming>) -> bool {
        self.rules.load().fault(request).is_some()
    }

    /// What is wrong with the body of a request for a page, which has none. Over HTTP/2 that may turn out only at its end.
    async fn fault_of_body(&self, request: &mut Request<Incoming>) -> Option<(StatusCode, &'static str)> {
        let is_for_page = matches!(*request.method(), Method::GET | Method::HEAD);
        if !is_for_page || request.body().is_end_stream() {
            return None;
        }
        let limit = self.rules.load().body.pause;
        match tokio::time::timeout(limit, ends_empty(request.body_mut())).await {
            Ok(true) => None,
            Ok(false) => Some(HAS_BODY),
            Err(_) => Some((StatusCode::REQUEST_TIMEOUT, "the request did not come to its end in time")),
        }
    }

    /// Resolves a request: its route and cache key, or why it is passed through or rejected.
    fn resolve(&self, request: &Parts) -> ResolvedRequest {
        self.rules.load().service.resolve(request)
    }

    /// Returns the response if the page is in memory and fresh. `None` means "call `answer`".
    fn get_fresh<'r>(&self, request: &Parts, resolved: &'r ResolvedRequest) -> Option<Hit<'r>> {
        self.rules.load().service.get_fresh(request, resolved)
    }

    /// Says by which host and scheme a visitor came, as far as it can be believed: that tells pages apart. The layer knows the
    /// scheme by an extension of the request.
    fn believe(&self, client: &Client, request: &mut Parts) {
        let rules = self.rules.load();
        rules.trust.doubt_host(client, &mut request.headers);
        if rules.trust.scheme(client, &request.headers) == Scheme::HTTPS {
            request.extensions.insert(Scheme::HTTPS);
        }
    }

    /// Answers one request.
    async fn answer(&self, client: &Arc<Client>, mut request: Request<Incoming>) -> Response<IsrBody> {
        let method = request.method();
        let refused = client
            .http1_state
            .as_ref()
            .and_then(|http1_state| http1_state.refused(method, request.headers()));
        if let Some((Rejection { status, text }, seen)) = refused {
            let mut response = local_response(status, text);
            response.extensions_mut().insert(Verdict { reason: text, seen: Some(seen) });
            return response;
        }
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            return local_response(
                StatusCode::METHOD_NOT_ALLOWED,
                "this server is no tunnel, and echoes nothing",
            );
        }
        if let (None, Some((status, text))) = (&client.http1_state, self.fault_of_body(&mut request).await) {
            let response = local_response(status, text);
            return if *request.method() == Method::HEAD { without_body(response) } else { response };
        }
        // It ends before hyper is given the answer.
        let prelude = client.http1_state.as_ref().map(|http1_state| http1_state.informational());
        let (mut service, request) = {
            let rules = self.rules.load();
            if let (None, Some((status, text))) = (&client.http1_state, rules.fault(&request)) {
                let response = local_response(status, text);
                return if *request.method() == Method::HEAD { without_body(response) } else { response };
            }
            let mut request = request.map(|body| RequestBody::of(body, rules.body));
            let informational = prelude.as_ref().map(InformationalWindow::sender);
            request.extensions_mut().insert(ClientContext { client: client.clone(), informational });
            (rules.service.clone(), request)
        };
        match service.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
