//! Accepts client connections: connection limit, TLS, protocol detection, graceful shutdown.

use std::io::ErrorKind::{AddrInUse, ConnectionAborted, ConnectionRefused, ConnectionReset};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Waker};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use http::uri::Scheme;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Gateway;
use super::client::Client;
use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::connection_service::ConnectionService;
use super::serving_config::ServingConfig;
use super::shutdown_signal::ShutdownSignal;
use super::tls::Tls;
use crate::wire::slow_client::{IdleTracker, track_h2_writes};
use crate::wire::{self, DeadlineTicker, FastPathEnd, Protocol};

const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the machine has run out of resources for another connection, such as file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The number of concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// The number of requests that a client may cancel before they are read, and of errors on one HTTP/2 connection: more is
/// an attack (CVE-2023-44487, CVE-2025-8671).
const MAX_RESETS: usize = 32;
/// How much of one response is buffered on an HTTP/2 connection, which may have many unread responses.
const STREAM_BUFFER_BYTES: usize = 64 * 1024;
/// How often an HTTP/2 connection that is being closed is checked for being idle.
const GOAWAY_INTERVAL: Duration = Duration::from_secs(1);
/// The number of headers that hyper reads by default.
const HYPER_DEFAULT_HEADERS: usize = 100;
/// How much of a request or a response is buffered on a connection within this process.
const LOCAL_BUFFER_BYTES: usize = 64 * 1024;
/// The smallest read buffer that hyper allows.
const HYPER_MIN_BUFFER: usize = 8192;

/// Runs the requests of HTTP/2 connections: at once if a page is in memory, and otherwise in a task.
#[derive(Clone, Copy, Debug)]
struct StreamExecutor;

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, request: F) {
        let mut request = Box::pin(request);
        // The task polls it again, and so registers its own waker.
        if request.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(request);
        }
    }
}

/// The context of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) connections: Arc<ConnectionLimit>,
    pub(crate) deadline_ticker: Arc<DeadlineTicker>,
}

impl Endpoint {
    /// Opens a connection of a client within this process. It is served like an HTTP/1 connection of a listener. Returns the
    /// client's side, and a tracker that is empty once the connection has ended; `None` if there are too many connections.
    pub(crate) fn connect(&self, address: SocketAddr, scheme: Scheme) -> Option<(DuplexStream, TaskTracker)> {
        let (permit, open) = (Arc::new(self.connections.acquire(None)?), TaskTracker::new());
        let (client_side, io) = tokio::io::duplex(LOCAL_BUFFER_BYTES);
        let client = Client { address, scheme, http1_state: None, permit: Arc::downgrade(&permit) };
        let (drain, abort) = (ShutdownSignal::default(), ShutdownSignal::default());
        let connection = Connection { endpoint: self.clone(), drain, abort, permit, token: open.token() };
        connection.spawn(connection.http1(io, client));
        open.close();
        Some((client_side, open))
    }
}

/// A bound listener.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    connections: TaskTracker,
}

impl Listener {
    /// Binds an address. `option` is the command-line option that sets it.
    pub(crate) async fn bind(address: SocketAddr, option: &str) -> Result<Self> {
        let tcp = TcpListener::bind(address).await.map_err(|error| match error.kind() {
            AddrInUse => anyhow!(
                "{address} is in use by another program; choose another with {option}, such as 127.0.0.1:0"
            ),
            _ => anyhow::Error::new(error).context(format!("cannot listen on {address}")),
        })?;
        Ok(Listener { tcp, connections: TaskTracker::new() })
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.tcp.local_addr().context("cannot read the address of the listener")
    }

    /// Accepts connections until `stop`; then waits until all are closed, or until `abort`. Returns false if connections
    /// had to be aborted.
    pub(crate) async fn run(
        self,
        endpoint: Endpoint,
        stop: CancellationToken,
        abort: CancellationToken,
    ) -> bool {
        let (drain_signal, abort_signal) = (ShutdownSignal::default(), ShutdownSignal::default());
        while let Some(accepted) = stop.run_until_cancelled(self.tcp.accept()).await {
            match accepted {
                Ok((stream, address)) => {
                    // A trusted proxy connects for many clients, so the limit per address does not apply.
                    let is_trusted = endpoint.gateway.is_trusted_proxy(address.ip());
                    let counted = (!is_trusted).then_some(address.ip());
                    let Some(permit) = endpoint.connections.acquire(counted) else {
                        tracing::debug!(%address, "connection rejected: too many connections");
                        continue;
                    };
                    let connection = Connection {
                        endpoint: endpoint.clone(),
                        drain: drain_signal.clone(),
                        abort: abort_signal.clone(),
                        permit: Arc::new(permit),
                        token: self.connections.token(),
                    };
                    let abort = abort_signal.clone();
                    tokio::spawn(async move {
                        abort.run_until_triggered(pin!(connection.begin(stream, address))).await;
                    });
                }
                Err(error)
                    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) =>
                {
                    tracing::debug!(%error, "connection closed before it was accepted");
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections for now");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.tcp);
        drain_signal.trigger();
        tracing::info!("shutting down, connections still open: {}", endpoint.connections.open());
        self.connections.close();
        let is_drained = abort.run_until_cancelled(self.connections.wait()).await.is_some();
        abort_signal.trigger();
        self.connections.wait().await;
        is_drained
    }
}

/// The socket of a client, with or without TLS.
trait ClientIo: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<IO: AsyncRead + AsyncWrite + Unpin + Send + 'static> ClientIo for IO {}

/// A client connection.
#[derive(Debug)]
struct Connection {
    endpoint: Endpoint,
    /// Triggered when the connection is to end after the requests in progress.
    drain: ShutdownSignal,
    /// Triggered when the connection is to end at once.
    abort: ShutdownSignal,
    permit: Arc<ConnectionPermit>,
    /// Counts the connection as open.
    token: TaskTrackerToken,
}

impl Connection {
    /// Performs the TLS handshake, finds out the protocol, and serves the connection.
    async fn begin(self, stream: TcpStream, address: SocketAddr) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let permit = Arc::downgrade(&self.permit);
        let client = Client { address, scheme: Scheme::HTTP, http1_state: None, permit };
        let Some(tls) = self.endpoint.tls.clone() else { return self.detect(stream, client).await };
        let handshake = pin!(tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream)));
        // Shutdown does not wait for a client without a request.
        let Some(handshake) = self.drain.run_until_triggered(handshake).await else { return };
        match handshake {
            Ok(Ok(stream)) => {
                let client = Client { scheme: Scheme::HTTPS, ..client };
                match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => self.spawn(self.http2(stream, client)),
                    Some(_) => self.spawn(self.http1(stream, client)),
                    None => self.detect(stream, client).await,
                }
            }
            Ok(Err(error)) => tracing::debug!(%error, %address, "TLS handshake failed"),
            Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
        }
    }

    /// Serves a connection whose protocol is known by its first bytes only.
    async fn detect<IO: ClientIo>(&self, io: IO, client: Client) {
        let timeout = self.endpoint.gateway.config.load().timeouts.head;
        let detected = pin!(wire::detect_protocol(io, timeout));
        match self.drain.run_until_triggered(detected).await {
            Some(Ok((Protocol::Http1, io))) => self.spawn(self.http1(io, client)),
            Some(Ok((Protocol::Http2, io))) => self.spawn(self.http2(io, client)),
            Some(Err(error)) => tracing::debug!(%error, "connection closed before the first request"),
            None => {}
        }
    }

    /// Serves in a task of its own: a connection is polled for every request, and the state that was needed to begin it
    /// would make that slower.
    fn spawn(&self, serving: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        let (abort, token) = (self.abort.clone(), self.token.clone());
        tokio::spawn(async move {
            if let Some(Err(error)) = abort.run_until_triggered(pin!(serving)).await {
                tracing::debug!(%error, "connection failed");
            }
            drop(token);
        });
    }

    fn http1<IO: ClientIo>(
        &self,
        io: IO,
        client: Client,
    ) -> impl Future<Output = hyper::Result<()>> + Send + use<IO> {
        let gateway = self.endpoint.gateway.clone();
        let ServingConfig { limits, timeouts, .. } = **gateway.config.load();
        let mut stream = self.endpoint.deadline_ticker.register(io, limits, &timeouts);
        let client = Arc::new(Client { http1_state: Some(stream.state().clone()), ..client });
        let mut builder = http1::Builder::new();
        builder
            // The stream has timeouts of its own.
            .header_read_timeout(None)
            .max_buf_size(limits.header_bytes.max(HYPER_MIN_BUFFER));
        if limits.headers > HYPER_DEFAULT_HEADERS {
            // With this setting, hyper allocates room for the headers of each request.
            builder.max_headers(limits.headers);
        }
        let service = ConnectionService::new(gateway, client, IdleTracker::new(), self.permit.clone());
        stream.set_fast_path(Box::new(service.clone()));
        let drain = self.drain.clone();
        async move {
            let fast_path_end = drain.run_until_triggered(pin!(stream.serve_fast_path())).await;
            if let Some(Err(error)) = &fast_path_end {
                tracing::debug!(%error, "connection failed");
            }
            if !matches!(fast_path_end, Some(Ok(FastPathEnd::NeedsHyper))) {
                // An error only means that the client is gone.
                let _ = stream.shutdown().await;
                return Ok(());
            }
            let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
            let mut connection = pin!(connection);
            if let Some(outcome) = drain.run_until_triggered(connection.as_mut()).await {
                return outcome;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }

    fn http2<IO: ClientIo>(
        &self,
        io: IO,
        client: Client,
    ) -> impl Future<Output = hyper::Result<()>> + Send + use<IO> {
        let (gateway, tracker) = (self.endpoint.gateway.clone(), IdleTracker::new());
        let ServingConfig { limits, timeouts, .. } = **gateway.config.load();
        let service = ConnectionService::new(gateway, Arc::new(client), tracker.clone(), self.permit.clone());
        // The tracker wraps the socket inside the batching, so it counts only bytes that the socket has taken.
        let (io, writer) = wire::batch_writes(track_h2_writes(io, tracker.clone()));
        let connection = http2::Builder::new(StreamExecutor)
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_pending_accept_reset_streams(MAX_RESETS)
            .max_local_error_reset_streams(MAX_RESETS)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .max_send_buf_size(STREAM_BUFFER_BYTES)
            .serve_connection(TokioIo::new(io), service);
        let drain = self.drain.clone();
        async move {
            let mut connection = pin!(connection);
            loop {
                tokio::select! {
                    outcome = writer.run(connection.as_mut()) => return outcome,
                    () = drain.triggered() => break,
                    () = tokio::time::sleep(timeouts.idle / 2) => if tracker.is_overdue(&timeouts) {
                        break;
                    },
                }
            }
            // Sends GOAWAY: the client sends no more requests, and those already sent get a response.
            connection.as_mut().graceful_shutdown();
            loop {
                tokio::select! {
                    outcome = writer.run(connection.as_mut()) => return outcome,
                    () = tokio::time::sleep(GOAWAY_INTERVAL) => if tracker.is_overdue(&timeouts) {
                        return Ok(());
                    },
                }
            }
        }
    }
}
