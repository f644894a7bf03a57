//! Where visitors connect: every connection gets a place, is secured if it has to be, and is spoken to in its protocol.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use http::uri::Scheme;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Gateway;
use super::client::Client;
use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::connection_service::ConnectionService;
use super::idle_tracker::{IdleTracker, TrackedIo};
use super::shutdown_signal::ShutdownSignal;
use super::tls::Tls;
use crate::wire::{self, DeadlineTicker, FastPathEnd, Protocol};

/// How long a visitor may take to agree on a secure connection.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long nobody is accepted after the machine has run out of what a connection needs.
const PAUSE: Duration = Duration::from_millis(100);
/// The most requests that go on at once on one HTTP/2 connection.
const STREAMS: u32 = 128;
/// How many requests a visitor may take back before they were looked at, and how many mistakes an HTTP/2 connection may have:
/// more is an attack (CVE-2023-44487, CVE-2025-8671).
const RESETS: usize = 32;
/// How much of one answer waits to be taken, in bytes, on an HTTP/2 connection: there may be many answers, and nobody may take
/// any.
const UNTAKEN_BYTES: usize = 64 * 1024;
/// How long a visitor over HTTP/2 has to agree to the end of a connection that rests.
const FAREWELL: Duration = Duration::from_secs(1);
/// As many headers as hyper reads without being told.
const USUAL_HEADERS: usize = 100;
/// hyper refuses to read with less.
const SMALLEST_BUFFER: usize = 8192;

/// What a listener needs to know of the connections that it accepts.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) connections: Arc<ConnectionLimit>,
    pub(crate) deadline_ticker: Arc<DeadlineTicker>,
}

impl Endpoint {
    /// A place for a connection from this address. A proxy in front comes for many visitors, and has no share as one of them.
    fn place_for(&self, address: IpAddr) -> Option<ConnectionPermit> {
        self.connections.take((!self.gateway.trusts(address)).then_some(address))
    }
}

/// An address that visitors can connect to.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    connections: TaskTracker,
}

impl Listener {
    /// Listens on an address.
    pub(crate) async fn bind(address: SocketAddr, option: &str) -> Result<Self> {
        let tcp = TcpListener::bind(address).await.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => anyhow!(
                "{address} is in use by another program; choose another with {option}, such as 127.0.0.1:0"
            ),
            _ => anyhow::Error::new(error).context(format!("{address} cannot be listened on")),
        })?;
        Ok(Listener { tcp, connections: TaskTracker::new() })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.tcp.local_addr().context("the address cannot be told")
    }

    /// Accepts connections until it is to stop; then waits until those that are open have ended, or that is over.
    /// False if some had to be cut.
    pub(crate) async fn run(
        self,
        endpoint: Endpoint,
        stop: CancellationToken,
        over: CancellationToken,
    ) -> bool {
        let (last_call, cut) = (ShutdownSignal::default(), ShutdownSignal::default());
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, address)) => match endpoint.place_for(address.ip()) {
                    Some(place) => {
                        let connection = Connection {
                            endpoint: endpoint.clone(),
                            last_call: last_call.clone(),
                            cut: cut.clone(),
                            place: Arc::new(place),
                            token: self.connections.token(),
                        };
                        let cut = cut.clone();
                        tokio::spawn(async move {
                            cut.unless_rung(pin!(connection.begin(stream, address))).await;
                        });
                    }
                    None => tracing::debug!(%address, "there is no place for another connection"),
                },
                Err(error) if is_of_one(&error) => tracing::debug!(%error, "a connection was gone at once"),
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted for now");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        drop(self.tcp);
        last_call.ring();
        tracing::info!(open = endpoint.connections.taken(), "no more connections are accepted");
        self.connections.close();
        let drained = over.run_until_cancelled(self.connections.wait()).await.is_some();
        cut.ring();
        self.connections.wait().await;
        drained
    }
}

/// Whether a failure to accept is about one connection, and says nothing of the next.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// One connection.
#[derive(Debug)]
struct Connection {
    endpoint: Endpoint,
    /// Rung when the connection is to end, once what is under way has ended.
    last_call: ShutdownSignal,
    /// Rung when it is to end at once.
    cut: ShutdownSignal,
    place: Arc<ConnectionPermit>,
    /// Says that it is open.
    token: TaskTrackerToken,
}

impl Connection {
    /// Finds out which protocol is spoken, and lets it be spoken.
    async fn begin(self, stream: TcpStream, address: SocketAddr) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection is slower than it could be");
        }
        let place = Arc::downgrade(&self.place);
        let client = Client { address, scheme: Scheme::HTTP, http1_state: None, place };
        let Some(tls) = self.endpoint.tls.clone() else { return self.plain(stream, client).await };
        let handshake = pin!(tokio::time::timeout(HANDSHAKE, tls.acceptor().accept(stream)));
        // Whoever has asked for nothing yet is not waited for in the end.
        let Some(agreed) = self.last_call.unless_rung(handshake).await else { return };
        match agreed {
            Ok(Ok(stream)) => {
                let client = Client { scheme: Scheme::HTTPS, ..client };
                match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => self.go_on(self.http2(stream, client)),
                    Some(_) => self.go_on(self.http1(stream, client)),
                    None => self.plain(stream, client).await,
                }
            }
            Ok(Err(error)) => tracing::debug!(%error, %address, "no secure connection"),
            Err(_) => tracing::debug!(%address, "a visitor took too long to agree on a secure connection"),
        }
    }

    /// Speaks whichever protocol the visitor begins with.
    async fn plain<IO>(&self, io: IO, client: Client)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let timeouts = self.endpoint.gateway.rules.load().timeouts.head;
        let sniffed = pin!(wire::detect_protocol(io, timeouts));
        let Some(sniffed) = self.last_call.unless_rung(sniffed).await else { return };
        match sniffed {
            Ok((Protocol::Http1, io)) => self.go_on(self.http1(io, client)),
            Ok((Protocol::Http2, io)) => self.go_on(self.http2(io, client)),
            Err(error) => tracing::debug!(%error, "a connection said nothing"),
        }
    }

    /// Goes on in a task of its own: it is polled for every request, and should not carry along what it took to begin.
    fn go_on(&self, speaking: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        let (cut, token) = (self.cut.clone(), self.token.clone());
        tokio::spawn(async move {
            if let Some(Err(error)) = cut.unless_rung(pin!(speaking)).await {
                tracing::debug!(%error, "a connection broke off");
            }
            drop(token);
        });
    }

    fn http1<IO>(&self, io: IO, client: Client) -> impl Future<Output = hyper::Result<()>> + Send + use<IO>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let gateway = self.endpoint.gateway.clone();
        let (limits, timeouts) = {
            let rules = gateway.rules.load();
            (rules.limits, rules.timeouts)
        };
        let mut wire = self.endpoint.deadline_ticker.register(io, limits, &timeouts);
        let http1_state = wire.state().clone();
        let client = Arc::new(Client { http1_state: Some(http1_state), ..client });
        let mut builder = http1::Builder::new();
        builder
            // The wire has deadlines of its own.
            .header_read_timeout(None)
            .max_buf_size(limits.head_bytes.max(SMALLEST_BUFFER));
        if limits.headers > USUAL_HEADERS {
            // Where it is told, hyper makes room for so many anew for each request.
            builder.max_headers(limits.headers);
        }
        let conversation = ConnectionService::new(gateway, client, IdleTracker::new(), self.place.clone());
        wire.set_fast_path(Box::new(conversation.clone()));
        let last_call = self.last_call.clone();
        async move {
            let get_fresh = last_call.unless_rung(pin!(wire.serve_fast_path())).await;
            if let Some(Err(error)) = &get_fresh {
                tracing::debug!(%error, "a connection broke off");
            }
            if !matches!(get_fresh, Some(Ok(FastPathEnd::Asked))) {
                // Whoever has left need not be told.
                let _ = wire.shutdown().await;
                return Ok(());
            }
            let connection = builder.serve_connection(TokioIo::new(wire), conversation).with_upgrades();
            let mut connection = pin!(connection);
            if let Some(ended) = last_call.unless_rung(connection.as_mut()).await {
                return ended;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }

    fn http2<IO>(&self, io: IO, client: Client) -> impl Future<Output = hyper::Result<()>> + Send + use<IO>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (gateway, client, activity) =
            (self.endpoint.gateway.clone(), Arc::new(client), IdleTracker::new());
        let (idle, header_bytes) = {
            let rules = gateway.rules.load();
            (rules.timeouts.idle, u32::try_from(rules.limits.head_bytes).unwrap_or(u32::MAX))
        };
        let conversation = ConnectionService::new(gateway, client, activity.clone(), self.place.clone());
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_pending_accept_reset_streams(RESETS)
            .max_local_error_reset_streams(RESETS)
            .max_header_list_size(header_bytes)
            .max_send_buf_size(UNTAKEN_BYTES)
            .serve_connection(TokioIo::new(TrackedIo::http2(io, activity.clone())), conversation);
        let last_call = self.last_call.clone();
        async move {
            let mut connection = pin!(connection);
            loop {
                tokio::select! {
                    ended = &mut connection => return ended,
                    () = last_call.rung() => break,
                    () = tokio::time::sleep(idle / 2) => if activity.is_idle(idle) {
                        break;
                    },
                }
            }
            // It is told, so that nothing is asked for that nobody would hear; and what was asked for just now is answered.
            connection.as_mut().graceful_shutdown();
            loop {
                tokio::select! {
                    ended = &mut connection => return ended,
                    () = tokio::time::sleep(FAREWELL) => if activity.is_idle(idle) {
                        return Ok(());
                    },
                }
            }
        }
    }
}
