//! Accepts client connections: connection limit, TLS, protocol detection, graceful shutdown.

#[cfg(test)]
mod tests;

use std::io;
use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, WouldBlock};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Waker};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::uri::Scheme;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Gateway;
use super::client::Client;
use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::connection_service::ConnectionService;
use super::serving_config::ClientLimits;
use super::shutdown_signal::ShutdownSignal;
use super::stopping::Stopping;
use super::tls::Tls;
use crate::sockets::ACCEPT_PAUSE;
use crate::wire::slow_client::{IdleTracker, track_h2_writes};
use crate::wire::{self, DeadlineTicker, FastPathEnd, Protocol};

const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most connections that are accepted at the end, when the listener closes: as many as its backlog holds.
const MAX_BACKLOG: usize = 1024;
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
        let signals = Signals::default();
        let connection = Connection { endpoint: self.clone(), signals, permit, token: open.token() };
        connection.spawn(connection.http1(io, client));
        open.close();
        Some((client_side, open))
    }
}

/// The signals that end connections, in this order.
#[derive(Clone, Debug, Default)]
struct Signals {
    /// Triggered when the next response is to be the last one on a connection.
    drain: ShutdownSignal,
    /// Triggered when connections without a request are to be closed.
    close_idle: ShutdownSignal,
    /// Triggered when all connections are to end at once.
    abort: ShutdownSignal,
}

/// A bound listener.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    connections: TaskTracker,
    signals: Signals,
}

impl Listener {
    /// A listener that accepts connections from this socket.
    pub(crate) fn new(tcp: TcpListener) -> Self {
        Listener { tcp, connections: TaskTracker::new(), signals: Signals::default() }
    }

    /// The socket, to be handed over to another process.
    pub(crate) fn socket(&self) -> Result<OwnedFd> {
        self.tcp.as_fd().try_clone_to_owned().context("cannot duplicate the socket of the listener")
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.tcp.local_addr().context("cannot read the address of the listener")
    }

    /// Accepts connections as long as [`Stopping`] says; then waits until all are closed, or until a shutdown is forced.
    /// Returns false if connections had to be aborted.
    pub(crate) async fn run(self, endpoint: Endpoint, stopping: Stopping) -> bool {
        self.accept_until(&endpoint, stopping.accepts_no_more()).await;
        let Listener { tcp, connections, signals } = self;
        accept_backlog(tcp, |stream, address| begin(&endpoint, &connections, &signals, stream, address));
        connections.close();
        signals.drain.trigger();
        tracing::info!("shutting down, connections still open: {}", endpoint.connections.open());
        // Requests may be on their way on idle connections.
        tokio::select! {
            () = stopping.closes_idle() => {}
            () = connections.wait() => {}
        }
        signals.close_idle.trigger();
        let is_drained = stopping.forced.run_until_cancelled(connections.wait()).await.is_some();
        signals.abort.trigger();
        connections.wait().await;
        is_drained
    }

    async fn accept_until(&self, endpoint: &Endpoint, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut end => return,
                accepted = self.tcp.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    begin(endpoint, &self.connections, &self.signals, stream, address);
                }
                Err(error) if is_closed_by_client(&error) => {
                    tracing::debug!(%error, "connection closed before it was accepted");
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections for now");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Begins to serve a connection, unless there are too many.
fn begin(
    endpoint: &Endpoint,
    connections: &TaskTracker,
    signals: &Signals,
    stream: TcpStream,
    address: SocketAddr,
) {
    // A trusted proxy connects for many clients, so the limit per address does not apply.
    let is_trusted = endpoint.gateway.is_trusted_proxy(address.ip());
    let counted = (!is_trusted).then_some(address.ip());
    let Some(permit) = endpoint.connections.acquire(counted) else {
        tracing::debug!(%address, "connection rejected: too many connections");
        return;
    };
    let (endpoint, signals, token) = (endpoint.clone(), signals.clone(), connections.token());
    let connection = Connection { endpoint, signals, permit: Arc::new(permit), token };
    let abort = connection.signals.abort.clone();
    tokio::spawn(async move {
        abort.run_until_triggered(pin!(connection.begin(stream, address))).await;
    });
}

/// Accepts the connections that wait in the backlog, and closes the socket: the kernel resets those that are still there
/// when the last process closes it.
fn accept_backlog(tcp: TcpListener, begin: impl Fn(TcpStream, SocketAddr)) {
    let accepted = tcp.into_std().and_then(|tcp| {
        // Accepted straight from the kernel: the runtime may not have been notified of the latest connections.
        for _ in 0..MAX_BACKLOG {
            match tcp.accept() {
                Ok((stream, address)) => {
                    stream.set_nonblocking(true)?;
                    begin(TcpStream::from_std(stream)?, address);
                }
                Err(error) if is_closed_by_client(&error) => {}
                Err(error) if error.kind() == WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    });
    if let Err(error) = accepted {
        tracing::warn!(%error, "cannot accept the connections that waited when the listener closed");
    }
}

/// Whether a client has given up before its connection was accepted.
fn is_closed_by_client(error: &io::Error) -> bool {
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The socket of a client, with or without TLS.
trait ClientIo: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<IO: AsyncRead + AsyncWrite + Unpin + Send + 'static> ClientIo for IO {}

/// The work of serving a connection until it is closed.
trait Serving: Future<Output = hyper::Result<()>> + Send + 'static {}

impl<F: Future<Output = hyper::Result<()>> + Send + 'static> Serving for F {}

/// A client connection.
#[derive(Debug)]
struct Connection {
    endpoint: Endpoint,
    signals: Signals,
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
        let Some(handshake) = self.signals.close_idle.run_until_triggered(handshake).await else { return };
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
        let timeout = self.endpoint.gateway.config.load().client.timeouts.head;
        let detected = pin!(wire::detect_protocol(io, timeout));
        match self.signals.close_idle.run_until_triggered(detected).await {
            Some(Ok((Protocol::Http1, io))) => self.spawn(self.http1(io, client)),
            Some(Ok((Protocol::Http2, io))) => self.spawn(self.http2(io, client)),
            Some(Err(error)) => tracing::debug!(%error, "connection closed before the first request"),
            None => {}
        }
    }

    /// Serves in a task of its own: a connection is polled for every request, and the state that was needed to begin it
    /// would make that slower.
    fn spawn(&self, serving: impl Serving) {
        let (abort, token) = (self.signals.abort.clone(), self.token.clone());
        tokio::spawn(async move {
            if let Some(Err(error)) = abort.run_until_triggered(pin!(serving)).await {
                tracing::debug!(%error, "connection failed");
            }
            drop(token);
        });
    }

    fn http1<IO: ClientIo>(&self, io: IO, client: Client) -> impl Serving + use<IO> {
        let gateway = self.endpoint.gateway.clone();
        let ClientLimits { request: limits, timeouts } = gateway.config.load().client;
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
        let Signals { drain, close_idle, .. } = self.signals.clone();
        let service = ConnectionService::new(gateway, client, IdleTracker::new(), drain, self.permit.clone());
        stream.set_fast_path(Box::new(service.clone()));
        async move {
            let fast_path_end = close_idle.run_until_triggered(pin!(stream.serve_fast_path())).await;
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
            if let Some(outcome) = close_idle.run_until_triggered(connection.as_mut()).await {
                return outcome;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }

    fn http2<IO: ClientIo>(&self, io: IO, client: Client) -> impl Serving + use<IO> {
        let gateway = self.endpoint.gateway.clone();
        let ClientLimits { request: limits, timeouts } = gateway.config.load().client;
        let tracker = IdleTracker::with_min_rate(timeouts.write);
        let (drain, permit) = (self.signals.drain.clone(), self.permit.clone());
        let service =
            ConnectionService::new(gateway, Arc::new(client), tracker.clone(), drain.clone(), permit);
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
