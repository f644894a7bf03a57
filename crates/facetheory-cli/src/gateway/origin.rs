//! The origin: a connection pool, and the service that forwards requests to it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use facetheory::remove_hop_by_hop_headers;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE, VARY};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_rustls::ConfigBuilderExt as _;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::Instant;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower::Service;

use super::body::{BodyLimits, LimitedBody, OriginBody, RequestBody, UploadBuffers};
use super::client::{Client, ClientContext};
use super::connection_queue::ConnectionQueue;
use super::failure::{Failure, describe, local_response};
use super::forwarded_headers::{self, TrustedProxies};
use super::health::Health;
use super::informational::InformationalForwarder;
use super::origin_pool::{OriginPool, Reuse};
use super::tunnel::Tunnels;
use super::upstream_io::{Connector, UpstreamState};
use crate::config::{self, Config};
use crate::wire::{MinRate, Rejection};

/// The size of the socket's send buffer. With a larger one, an origin that reads slowly but steadily would run into the
/// write timeout: the socket takes nothing more until a third of the buffer is free.
const SEND_BUFFER_BYTES: usize = 256 * 1024;

const MAX_FORWARDS_REACHED: Rejection =
    Rejection::new(StatusCode::OK, "Max-Forwards reached 0 at this gateway");
const LOOP: Rejection =
    Rejection::new(StatusCode::LOOP_DETECTED, "proxy loop: the origin forwards to this gateway");

/// The origin as a service. Clones share its connections.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The `Host` of requests that have none.
    host: HeaderValue,
    timeouts: config::Timeouts,
    body_limits: BodyLimits,
    trusted_proxies: TrustedProxies,
    health: Arc<Health>,
    tunnels: Tunnels,
    upload_buffers: UploadBuffers,
    queue: ConnectionQueue,
    pool: OriginPool,
}

impl Origin {
    pub(crate) fn new(
        address: &config::Origin,
        config: &Config,
        trusted_proxies: TrustedProxies,
        tunnels: Tunnels,
    ) -> Result<Self> {
        let timeouts = &config.timeouts;
        let scheme = if address.tls { Scheme::HTTPS } else { Scheme::HTTP };
        let authority = Authority::try_from(format!("{}:{}", address.host(), address.port()))
            .context("the address of the origin is not a valid URL authority")?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeouts.connect));
        http.set_send_buffer_size(Some(SEND_BUFFER_BYTES));
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(address.tls)?)
            .https_or_http()
            // Over HTTP/2 the Host would have to be that of the connection, and protocol upgrades would not work.
            .enable_http1()
            .wrap_connector(http);
        let connector = Connector { https, connect_timeout: timeouts.connect, write_timeout: timeouts.idle };
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build();
        let uri = uri.context("the address of the origin is not a valid URL")?;
        let limits = &config.limits;
        let max_bytes = limits.origin_bytes;
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (connections, max_waiting) = (size(limits.origin_connections), size(limits.origin_queue));
        let shared = Shared {
            host: host(address)?,
            timeouts: timeouts.clone(),
            body_limits: BodyLimits {
                bytes: if max_bytes == 0 { u64::MAX } else { max_bytes },
                min_rate: MinRate::none(timeouts.idle),
            },
            trusted_proxies,
            health: Arc::default(),
            tunnels,
            upload_buffers: UploadBuffers::new(size(limits.upload_buffers)),
            queue: ConnectionQueue::new(connections, max_waiting, timeouts.origin_queue),
            pool: OriginPool::new(connector, uri, timeouts.keep_alive),
        };
        Ok(Origin { shared: Arc::new(shared) })
    }

    /// Whether it counts as down.
    pub(crate) fn is_down(&self) -> bool {
        self.shared.health.is_down()
    }

    /// The number of connections in use.
    pub(crate) fn connections(&self) -> usize {
        self.shared.queue.in_use()
    }

    /// The number of requests that wait for a connection.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue.waiting()
    }
}

impl Service<Request<RequestBody>> for Origin {
    type Response = Response<OriginBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<OriginBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move {
            let is_options = *request.method() == Method::OPTIONS;
            if is_options && !forwarded_headers::count_max_forwards(request.headers_mut()) {
                return Ok(local_response(MAX_FORWARDS_REACHED).map(from_text));
            }
            if forwarded_headers::is_loop(request.headers()) {
                return Ok(local_response(LOOP).map(from_text));
            }
            // Boxed, so that what is moved before the first poll stays small.
            let forwarded = Box::pin(shared.forward(request)).await;
            Ok(forwarded.unwrap_or_else(|failure| failure.into_response().map(from_text)))
        })
    }
}

impl Shared {
    /// Forwards a request to the origin.
    async fn forward(&self, request: Request<RequestBody>) -> Result<Response<OriginBody>, Failure> {
        let (mut parts, mut body) = request.into_parts();
        body.client_context = ClientContext::take(&mut parts);
        let context = body.client_context.as_ref();
        let client = context.map(|context| context.client.clone());
        // Only a client that waits for the response, over HTTP/1.1, can switch protocols.
        let may_upgrade = context.is_some_and(|context| context.informational.is_some());
        let protocol = may_upgrade.then(|| forwarded_headers::upgrade(&parts.headers)).flatten();
        let client_io = parts.extensions.remove::<OnUpgrade>().filter(|_| protocol.is_some());
        let scheme = parts.extensions.remove::<Scheme>().unwrap_or(Scheme::HTTP);
        // Over HTTP/2 the host is in the URI.
        if let (false, Some(host)) = (parts.headers.contains_key(HOST), parts.uri.authority()) {
            let host = HeaderValue::from_str(host.as_str()).map_err(|_| Failure::Request(None))?;
            parts.headers.insert(HOST, host);
        }
        forwarded_headers::prepare(&mut parts.headers, client.as_deref(), &scheme, &self.trusted_proxies);
        if let Some(protocol) = protocol {
            parts.headers.insert(UPGRADE, protocol);
            parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        let target = parts.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        parts.uri = Uri::from(target);
        parts.headers.entry(HOST).or_insert_with(|| self.host.clone());
        parts.version = Version::HTTP_11;
        parts.extensions.clear();
        let received = body.receive_beginning(&self.upload_buffers).await;
        received.map_err(|error| Failure::of_request(client.as_deref(), &*error))?;
        let deadline = self.timeouts.total.map(|total| Instant::now() + total);
        let response = self.send(parts, body, deadline).await?;
        let is_for_client = client.is_some();
        let mut response = self.receive(response, client_io.zip(client), deadline)?;
        if is_for_client && forwarded_headers::varies_by_address(response.headers()) {
            response.headers_mut().insert(VARY, HeaderValue::from_static("*"));
        }
        Ok(response)
    }

    /// Sends a request. A safe one is retried once if a reused connection turns out to be closed.
    async fn send(
        &self,
        parts: Parts,
        body: RequestBody,
        deadline: Option<Instant>,
    ) -> Result<Response<Incoming>, Failure> {
        let may_retry = parts.method.is_safe() && body.is_end_stream();
        let retry = may_retry.then(|| (parts.clone(), body.client_context.clone()));
        match (self.attempt(Reuse::Idle, parts, body, deadline).await, retry) {
            (Err(failure), Some((parts, context))) if failure.may_have_closed_before_request() => {
                if let Failure::Broken { error, .. } = failure {
                    tracing::debug!(error = describe(&error), "retrying over a new connection to the origin");
                }
                self.attempt(Reuse::Never, parts, RequestBody::empty(context), deadline).await
            }
            (outcome, _) => outcome,
        }
    }

    async fn attempt(
        &self,
        reuse: Reuse,
        parts: Parts,
        mut body: RequestBody,
        deadline: Option<Instant>,
    ) -> Result<Response<Incoming>, Failure> {
        let begin = || self.health.begin(Instant::now()).ok_or(Failure::Down);
        let mut attempt = begin()?;
        let permit = self.queue.acquire(body.is_arriving()).await.map_err(Failure::Busy)?;
        if self.health.is_outdated(attempt) {
            attempt = begin()?;
        }
        let (sent, context) = (body.sent(), body.client_context.clone());
        let mut request = Request::from_parts(parts, body);
        let informational = InformationalForwarder::install(&mut request);
        // One timer for both timeouts, since setting a timer costs as much as parsing a header.
        let timeout = async {
            // Until the origin has the whole request, the write timeout applies.
            if within(deadline, sent).await.is_some() {
                let headers = Instant::now() + self.timeouts.headers;
                tokio::time::sleep_until(deadline.map_or(headers, |deadline| deadline.min(headers))).await;
            }
        };
        let outcome = tokio::select! {
            outcome = informational.forward_until(self.pool.send(request, permit, reuse)) => {
                let client = context.as_ref().map(|context| &*context.client);
                outcome.map_err(|error| Failure::from_error(error, client))
            }
            () = timeout => Err(Failure::Timeout),
        };
        match &outcome {
            Err(Failure::Unreachable(_)) => {
                if self.health.unreachable(attempt, Instant::now()) {
                    let (health, pool) = (Arc::downgrade(&self.health), self.pool.clone());
                    tokio::spawn(async move { Health::probe(health, || pool.probe()).await });
                }
            }
            Err(Failure::Request(_) | Failure::Local(_)) => {}
            Ok(_) | Err(_) => self.health.reachable(attempt),
        }
        outcome
    }

    fn receive(
        &self,
        response: Response<Incoming>,
        upgrade: Option<(OnUpgrade, Arc<Client>)>,
        deadline: Option<Instant>,
    ) -> Result<Response<OriginBody>, Failure> {
        let (mut parts, body) = response.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let origin = parts.extensions.remove::<OnUpgrade>();
            let protocol = parts.headers.get(UPGRADE).cloned();
            let (Some((client_io, client)), Some(origin), Some(protocol)) = (upgrade, origin, protocol)
            else {
                return Err(Failure::UnrequestedUpgrade);
            };
            if !client.http1_state.as_ref().is_some_and(|state| state.accept_upgrade()) {
                return Err(Failure::UnrequestedUpgrade);
            }
            if let Some(state) = parts.extensions.remove::<Arc<UpstreamState>>() {
                state.set_tunnel();
            }
            self.tunnels.open(&client, client_io, origin, self.timeouts.tunnel_idle);
            remove_hop_by_hop_headers(&mut parts.headers);
            parts.headers.insert(UPGRADE, protocol);
            parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            return Ok(Response::from_parts(parts, from_text(String::new())));
        }
        if parts.headers.contains_key(TRANSFER_ENCODING) {
            // The chunks determine the length, whatever Content-Length says (RFC 9112 §6.3).
            parts.headers.remove(CONTENT_LENGTH);
        }
        remove_hop_by_hop_headers(&mut parts.headers);
        parts.extensions.clear();
        let body = LimitedBody::new(body, self.body_limits, deadline);
        Ok(Response::from_parts(parts, OriginBody::Left(body)))
    }
}

/// The address of the origin as the value of `Host`, which leaves out the usual port.
fn host(address: &config::Origin) -> Result<HeaderValue> {
    let is_usual = address.port() == if address.tls { 443 } else { 80 };
    let host = address.host().to_string();
    let text = if is_usual { host } else { format!("{host}:{}", address.port()) };
    HeaderValue::try_from(text).context("the address of the origin is not a valid `Host`")
}

/// Waits until the deadline, if there is one. Sets no timer if the future is ready.
async fn within<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

fn from_text(text: String) -> OriginBody {
    OriginBody::Right(Full::from(text))
}

/// The TLS settings of connections to other servers. Without TLS no CA certificates are needed: a small container may not
/// have any.
pub(crate) fn tls(is_used: bool) -> Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .context("cannot set up TLS for connections to other servers")?;
    let config = if is_used {
        config.with_native_roots().context(
            "cannot read the CA certificates of this machine: install them (on Debian the package ca-certificates), \
             or set SSL_CERT_FILE to a file that contains them",
        )?
    } else {
        config.with_root_certificates(RootCertStore::empty())
    };
    Ok(config.with_no_client_auth())
}
