//! The origin: a pool of connections to it, and every request that is passed on to it.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use facetheory::remove_hop_by_hop_headers;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING, UPGRADE, VARY,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Extensions, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_rustls::ConfigBuilderExt as _;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Pool, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower::Service;

use super::body::{OriginBody, RequestBody, fault_in};
use super::client::{Client, ClientContext};
use super::connector::Connector;
use super::forwarded_headers::{self, TrustedProxies, is_circular};
use super::health::Health;
use super::informational::{ClientVersion, InformationalForwarder};
use super::local_response::local_response;
use super::tunnel::Tunnels;
use super::upstream_io::UpstreamState;
use crate::config;
use crate::wire::Rejection;

/// The most connections to the origin that are kept while nobody uses them.
const IDLE_CONNECTIONS: usize = 256;
/// The most headers of an answer.
const MOST_HEADERS: usize = 200;
/// What the system holds of a request that the origin has yet to take. Of more, an origin that takes it slowly but steadily would
/// seem to have stopped: nothing more fits until a third of it is gone.
const SEND_BYTES: usize = 256 * 1024;
/// The most bytes of an answer's headers.
const HEADER_BYTES: usize = 64 * 1024;

/// The origin, as a service. A clone shares its connections.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    scheme: Scheme,
    authority: Authority,
    timeouts: config::Timeouts,
    /// The most bytes of an answer.
    most_bytes: u64,
    trust: TrustedProxies,
    health: Health,
    tunnels: Tunnels,
    pool: Pool<Connector, RequestBody>,
    /// For a second attempt: its connections are never used twice, so none of them is one that the origin has just closed.
    fresh: Pool<Connector, RequestBody>,
}

/// Why there is no answer of the origin.
#[derive(Debug)]
enum Failure {
    /// It was not asked, because it is down.
    Down,
    Unreachable(Error),
    Broken(Error),
    Silent,
    /// It switched to a protocol that nobody asked for.
    Unasked,
    /// The visitor's own request broke off, or was wrong in this way.
    Request(Option<Rejection>),
}

impl Origin {
    /// The origin at this address.
    pub(crate) fn new(
        address: &config::Origin,
        (timeouts, limits): (&config::Timeouts, &config::Limits),
        trust: TrustedProxies,
        tunnels: Tunnels,
    ) -> Result<Self> {
        let scheme = if address.tls { Scheme::HTTPS } else { Scheme::HTTP };
        let authority = Authority::try_from(format!("{}:{}", address.host(), address.port()))
            .context("the address of the origin cannot be asked for")?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeouts.connect));
        http.set_send_buffer_size(Some(SEND_BYTES));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(address.tls)?)
            .https_or_http()
            // Over HTTP/2 the host would have to be that of the connection, and no protocol could be switched.
            .enable_http1()
            .wrap_connector(http);
        let connector = Connector::new(connector, timeouts.connect, timeouts.idle);
        let pool = |idle: usize| {
            Pool::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .timer(TokioTimer::new())
                .pool_idle_timeout(timeouts.keep_alive)
                .pool_max_idle_per_host(idle)
                .http1_max_headers(MOST_HEADERS)
                .http1_max_buf_size(HEADER_BYTES)
                .build(connector.clone())
        };
        let shared = Shared {
            scheme,
            authority,
            timeouts: timeouts.clone(),
            most_bytes: if limits.origin_bytes == 0 { u64::MAX } else { limits.origin_bytes },
            trust,
            health: Health::default(),
            tunnels,
            pool: pool(IDLE_CONNECTIONS),
            fresh: pool(0),
        };
        Ok(Origin { shared: Arc::new(shared) })
    }

    /// Whether it counts as down.
    pub(crate) fn is_down(&self) -> bool {
        self.shared.health.is_down()
    }
}

impl Service<Request<RequestBody>> for Origin {
    type Response = Response<OriginBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<OriginBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move { Ok(shared.answer(request).await) })
    }
}

impl Shared {
    async fn answer(&self, mut request: Request<RequestBody>) -> Response<OriginBody> {
        if *request.method() == Method::OPTIONS && !forwarded_headers::goes_on(request.headers_mut()) {
            return local_response(StatusCode::OK, "this is a gateway, and the request was to go no further");
        }
        if is_circular(request.headers()) {
            let text = "the request goes in a circle: the origin of this gateway leads back to it";
            return local_response(StatusCode::LOOP_DETECTED, text);
        }
        match self.ask(request).await {
            Ok(response) => response,
            Err(failure) => {
                let (status, text) = failure.told();
                match &failure {
                    Failure::Unreachable(error) | Failure::Broken(error) => {
                        tracing::warn!(error = %causes(error), "{text}");
                    }
                    Failure::Silent | Failure::Unasked => tracing::warn!("{text}"),
                    Failure::Down | Failure::Request(_) => tracing::debug!("{text}"),
                }
                let mut response = local_response(status, text);
                if !matches!(failure, Failure::Unasked | Failure::Request(_)) {
                    response.extensions_mut().insert(facetheory::OriginUnreachable);
                }
                if matches!(failure, Failure::Down) {
                    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                }
                response
            }
        }
    }

    async fn ask(&self, request: Request<RequestBody>) -> Result<Response<OriginBody>, Failure> {
        let (mut parts, mut body) = request.into_parts();
        body.client_context = ClientContext::of(&mut parts);
        let client = body.client_context.as_ref().map(|client_context| client_context.client.clone());
        // Before HTTP/1.1 there is nothing to switch, nor for a visitor who does not wait for this.
        let waits =
            body.client_context.as_ref().is_some_and(|client_context| client_context.informational.is_some());
        let may_switch = waits && parts.version == Version::HTTP_11;
        let protocol = may_switch.then(|| forwarded_headers::upgrade(&parts.headers)).flatten();
        let visitor = parts.extensions.remove::<OnUpgrade>().filter(|_| protocol.is_some());
        let scheme = parts.extensions.remove::<Scheme>().unwrap_or(Scheme::HTTP);
        // HTTP/2 has the host in the address.
        if let (false, Some(host)) = (parts.headers.contains_key(HOST), parts.uri.authority()) {
            let host = HeaderValue::from_str(host.as_str()).map_err(|_| Failure::Request(None))?;
            parts.headers.insert(HOST, host);
        }
        forwarded_headers::prepare(&mut parts.headers, client.as_deref(), &scheme, &self.trust);
        if let Some(protocol) = protocol {
            parts.headers.insert(UPGRADE, protocol);
            parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        parts.uri = self.address(&parts)?;
        let spoken = ClientVersion(std::mem::replace(&mut parts.version, Version::HTTP_11));
        parts.extensions.clear();
        parts.extensions.insert(spoken);
        // What breaks off at once, because it is wrong, does not reach the origin.
        body.begin().await.map_err(|error| Failure::Request(rejection(client.as_deref(), &*error)))?;
        if !self.health.admits(Instant::now()) {
            return Err(Failure::Down);
        }
        let end = self.timeouts.total.map(|total| Instant::now() + total);
        let asked = self.send(parts, body);
        let response = match end {
            Some(end) => tokio::time::timeout_at(end, asked).await.map_err(|_| Failure::Silent)??,
            None => asked.await?,
        };
        let is_of_visitor = client.is_some();
        let mut response = self.received(response, visitor.zip(client), end)?;
        if is_of_visitor && forwarded_headers::varies_by_address(response.headers()) {
            response.headers_mut().insert(VARY, HeaderValue::from_static("*"));
        }
        Ok(response)
    }

    /// The target of a request, at the origin and nowhere else.
    fn address(&self, parts: &Parts) -> Result<Uri, Failure> {
        let target = parts.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let mut address = http::uri::Parts::default();
        address.scheme = Some(self.scheme.clone());
        address.authority = Some(self.authority.clone());
        address.path_and_query = Some(target);
        Uri::from_parts(address).map_err(|_| Failure::Request(None))
    }

    /// Sends a request, and a safe one once more if a connection that was kept turns out to be gone.
    async fn send(&self, parts: Parts, body: RequestBody) -> Result<Response<Incoming>, Failure> {
        let again = (parts.method.is_safe() && body.is_end_stream())
            .then(|| (parts.clone(), body.client_context.clone()));
        match (self.attempt(&self.pool, parts, body).await, again) {
            (Err(Failure::Broken(error)), Some((parts, client_context))) if may_have_been_gone(&error) => {
                tracing::debug!(error = %causes(&error), "the origin is asked once more, over a new connection");
                self.attempt(&self.fresh, parts, RequestBody::empty(client_context)).await
            }
            (outcome, _) => outcome,
        }
    }

    async fn attempt(
        &self,
        pool: &Pool<Connector, RequestBody>,
        parts: Parts,
        mut body: RequestBody,
    ) -> Result<Response<Incoming>, Failure> {
        let (sent, client_context) = (body.sent(), body.client_context.clone());
        let mut request = Request::from_parts(parts, body);
        let hints = InformationalForwarder::of(&mut request);
        let late = async {
            // Its time begins when it has the whole request, which the connection does not let it stop to take.
            sent.await;
            tokio::time::sleep(self.timeouts.headers).await;
        };
        let outcome = tokio::select! {
            response = hints.passed_on_until(pool.request(request)) => response,
            () = late => {
                self.health.reached();
                return Err(Failure::Silent);
            }
        };
        match outcome {
            Ok(response) => {
                self.health.reached();
                Ok(response)
            }
            Err(error) if error.is_connect() => {
                self.health.unreachable(Instant::now());
                Err(Failure::Unreachable(error))
            }
            Err(error) if is_ours(&error) => {
                let client = client_context.as_ref().map(|client_context| &*client_context.client);
                Err(Failure::Request(rejection(client, &error)))
            }
            Err(error) => {
                self.health.reached();
                Err(if is_late(&error) { Failure::Silent } else { Failure::Broken(error) })
            }
        }
    }

    fn received(
        &self,
        response: Response<Incoming>,
        visitor: Option<(OnUpgrade, Arc<Client>)>,
        end: Option<Instant>,
    ) -> Result<Response<OriginBody>, Failure> {
        let (mut parts, body) = response.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let origin = parts.extensions.remove::<OnUpgrade>();
            let protocol = parts.headers.get(UPGRADE).cloned();
            let (Some((visitor, client)), Some(origin), Some(protocol)) = (visitor, origin, protocol) else {
                return Err(Failure::Unasked);
            };
            if !client.http1_state.as_ref().is_some_and(|http1_state| http1_state.tunnel()) {
                return Err(Failure::Unasked);
            }
            if let Some(bond) = parts.extensions.remove::<Arc<UpstreamState>>() {
                bond.let_rest();
            }
            self.tunnels.join((visitor, client), origin, self.timeouts.tunnel_idle);
            remove_hop_by_hop_headers(&mut parts.headers);
            parts.headers.insert(UPGRADE, protocol);
            parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            return Ok(Response::from_parts(parts, OriginBody::Own(None)));
        }
        if parts.headers.contains_key(TRANSFER_ENCODING) {
            // It is as long as its chunks are, whatever else it says (RFC 9112 §6.3).
            parts.headers.remove(CONTENT_LENGTH);
        }
        remove_hop_by_hop_headers(&mut parts.headers);
        parts.extensions.clear();
        Ok(Response::from_parts(parts, OriginBody::streamed(body, self.timeouts.idle, end, self.most_bytes)))
    }
}

impl Failure {
    /// The status and the words that the visitor gets: no more than that something failed, since causes may name what is inside.
    fn told(&self) -> (StatusCode, &'static str) {
        match self {
            Failure::Down => (StatusCode::SERVICE_UNAVAILABLE, "the origin is down; try again soon"),
            Failure::Unreachable(_) => (StatusCode::BAD_GATEWAY, "the origin cannot be reached"),
            Failure::Broken(_) => (StatusCode::BAD_GATEWAY, "the origin gave no proper answer"),
            Failure::Unasked => {
                (StatusCode::BAD_GATEWAY, "the origin switched to a protocol that nobody asked for")
            }
            Failure::Silent => (StatusCode::GATEWAY_TIMEOUT, "the origin took too long to answer"),
            Failure::Request(Some(rejection)) => (rejection.status, rejection.text),
            Failure::Request(None) => (StatusCode::BAD_REQUEST, "the request is broken, or broke off"),
        }
    }
}

/// How connections to an origin are secured, if they are. A small machine may have no certificates, and needs none for an
/// origin without TLS.
fn tls(secure: bool) -> Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .context("there is no version of TLS to speak with the origin")?;
    let config = if secure {
        config.with_native_roots().context(
            "the CA certificates of this machine cannot be read: install them (on Debian the package ca-certificates), \
             or let SSL_CERT_FILE name a file that has some",
        )?
    } else {
        config.with_root_certificates(RootCertStore::empty())
    };
    Ok(config.with_no_client_auth())
}

/// What is wrong with a request whose body broke off: by what the wire has found, or the body itself.
fn rejection(client: Option<&Client>, error: &(dyn std::error::Error + 'static)) -> Option<Rejection> {
    client.and_then(|client| client.http1_state.as_ref()?.rejection()).or_else(|| fault_in(error))
}

/// Whether a request failed because of its own body, which is the visitor's doing.
fn is_ours(error: &Error) -> bool {
    has_cause(error, hyper::Error::is_user)
}

/// Whether a request failed because the origin took nothing more of it.
fn is_late(error: &Error) -> bool {
    has_cause(error, |cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut)
}

/// Whether a request failed on a connection that the origin may have closed before it saw the request.
fn may_have_been_gone(error: &Error) -> bool {
    let mut extras = Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extras);
    }
    extras.get::<Arc<UpstreamState>>().is_some_and(|bond| bond.may_have_been_gone())
}

/// Whether such a cause is among those of an error.
fn has_cause<E: std::error::Error + 'static>(error: &Error, is_such: impl Fn(&E) -> bool) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(&is_such) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error and all that caused it, in one line.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
