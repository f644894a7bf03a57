//! Clients that send requests at a fixed rate, and count each request without a complete response as failed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, KeyPair};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::support::{TIMEOUT, wait_for};

/// The name in the certificate of the gateway.
pub(crate) const NAME: &str = "localhost";

/// How clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// HTTP/1, and every client uses its connection until the gateway ends it.
    KeepAlive,
    /// HTTP/1, with a new connection for each request.
    NewConnections,
    /// HTTP/2.
    Http2,
}

/// Clients of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    /// The requests of all of them in a second.
    pub(crate) rate: u32,
}

/// Clients that send requests until they are stopped.
pub(crate) struct Load {
    shared: Arc<Shared>,
    runtime: Runtime,
    begun: Instant,
}

/// The result of a load, so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) requests: usize,
    pub(crate) connections: usize,
    /// Responses over HTTP/1 with `Connection: close`.
    pub(crate) closing: usize,
    pub(crate) failures: Vec<String>,
    pub(crate) slowest: Duration,
}

impl Load {
    /// Starts clients. With a certificate they use TLS. A connection that was idle for `idle_grace` may be closed by the gateway.
    pub(crate) fn start(
        address: SocketAddr,
        clients: &[Clients],
        certificate: Option<&CertifiedKey<KeyPair>>,
        idle_grace: Duration,
    ) -> Load {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let shared = Arc::new(Shared::default());
        for Clients { kind, count, rate } in clients {
            let period = Duration::from_secs(1) * u32::try_from(*count).expect("a small number") / *rate;
            for number in 0..*count {
                let connector = certificate.map(|certificate| connector(certificate, *kind));
                let client = Client {
                    kind: *kind,
                    address,
                    connector,
                    shared: shared.clone(),
                    idle_grace,
                    used: Instant::now(),
                    sender: None,
                };
                shared.running.fetch_add(1, Ordering::SeqCst);
                let first = period * u32::try_from(number).expect("a small number")
                    / u32::try_from(*count).expect("a small number");
                runtime.spawn(client.run(first, period));
            }
        }
        Load { shared, runtime, begun: Instant::now() }
    }

    /// Waits until this many more requests have been sent.
    pub(crate) fn wait_for_requests(&self, count: usize) {
        let end = self.shared.report().requests + count;
        wait_for("requests", || (self.shared.report().requests >= end).then_some(()));
    }

    /// Lets the clients finish their requests. Returns the result, and how long the load lasted.
    pub(crate) fn stop(self) -> (Report, Duration) {
        self.shared.stops.store(true, Ordering::SeqCst);
        wait_for("the last requests", || (self.shared.running.load(Ordering::SeqCst) == 0).then_some(()));
        let lasted = self.begun.elapsed();
        self.runtime.shutdown_background();
        (self.shared.report().clone(), lasted)
    }
}

/// The client side of a connection.
enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

/// The state that all clients share.
#[derive(Default)]
struct Shared {
    stops: AtomicBool,
    running: AtomicUsize,
    report: Mutex<Report>,
}

impl Shared {
    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().expect("a report")
    }
}

struct Client {
    kind: Kind,
    address: SocketAddr,
    connector: Option<TlsConnector>,
    shared: Arc<Shared>,
    idle_grace: Duration,
    /// When the connection was last used.
    used: Instant,
    sender: Option<Sender>,
}

impl Client {
    async fn run(mut self, first: Duration, period: Duration) {
        tokio::time::sleep(first).await;
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut number = 0_usize;
        while !self.shared.stops.load(Ordering::SeqCst) {
            ticks.tick().await;
            number += 1;
            // Every fourth request needs the origin.
            let path = if number.is_multiple_of(4) { "/passed" } else { "/cached/page" };
            let begun = Instant::now();
            let outcome =
                timeout(TIMEOUT, self.request(path)).await.unwrap_or_else(|_| Err("timeout".to_owned()));
            let mut report = self.shared.report();
            report.slowest = report.slowest.max(begun.elapsed());
            report.requests += 1;
            if let Err(failure) = outcome {
                self.sender = None;
                report.failures.push(format!("{:?}: {failure}", self.kind));
            }
        }
        self.shared.running.fetch_sub(1, Ordering::SeqCst);
    }

    async fn request(&mut self, path: &str) -> Result<(), String> {
        let response = loop {
            // A connection that the gateway has closed before the request is not used.
            let reused = self.sender.take().filter(|sender| !sender.is_closed());
            let is_reused = reused.is_some();
            let mut sender = match reused {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            let idle = self.used.elapsed();
            self.used = Instant::now();
            match sender.send(self.address, path).await {
                Ok(response) => {
                    self.sender = Some(sender);
                    break response;
                }
                // After GOAWAY the client has not sent the request, and sends it on another connection (RFC 9113, section 6.8).
                Err(error) if matches!(sender, Sender::Http2(_)) && is_unsent(&error) => {}
                // The gateway may have closed the connection at the same time (RFC 9112, section 9.5).
                Err(_) if is_reused && idle >= self.idle_grace => {}
                Err(error) => return Err(format!("sending {path}: {error:?}")),
            }
        };
        let closes = response.headers().get(CONNECTION).is_some_and(|value| value == "close");
        if closes {
            self.shared.report().closing += 1;
        }
        let status = response.status();
        let body =
            response.into_body().collect().await.map_err(|error| format!("the body of {path}: {error:?}"))?;
        if closes || self.kind == Kind::NewConnections {
            self.sender = None;
        }
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        if status != 200 || !body.contains(path) {
            return Err(format!("{path}: {status} {body}"));
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Sender, String> {
        self.shared.report().connections += 1;
        let stream =
            TcpStream::connect(self.address).await.map_err(|error| format!("connecting: {error:?}"))?;
        stream.set_nodelay(true).expect("a socket");
        match &self.connector {
            None => self.handshake(stream).await,
            Some(connector) => {
                let stream = connector.connect(NAME.try_into().expect("a name"), stream).await;
                self.handshake(stream.map_err(|error| format!("TLS: {error:?}"))?).await
            }
        }
    }

    async fn handshake<IO>(&self, io: IO) -> Result<Sender, String>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (io, describe) = (TokioIo::new(io), |error| format!("HTTP handshake: {error:?}"));
        if self.kind == Kind::Http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(describe)?;
            tokio::spawn(connection);
            return Ok(Sender::Http2(sender));
        }
        let (sender, connection) = http1::handshake(io).await.map_err(describe)?;
        tokio::spawn(connection);
        Ok(Sender::Http1(sender))
    }
}

impl Sender {
    fn is_closed(&self) -> bool {
        match self {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    async fn send(&mut self, address: SocketAddr, path: &str) -> hyper::Result<Response<Incoming>> {
        match self {
            Sender::Http1(sender) => {
                let request = Request::get(path).header("host", address.to_string());
                sender.ready().await?;
                sender.send_request(request.body(Empty::new()).expect("a request")).await
            }
            Sender::Http2(sender) => {
                let uri = format!("http://{address}{path}");
                let request = Request::get(uri).version(Version::HTTP_2);
                sender.send_request(request.body(Empty::new()).expect("a request")).await
            }
        }
    }
}

/// Whether a request failed because GOAWAY arrived before it was sent. A stream that the gateway may have processed fails with
/// another error when the connection ends.
fn is_unsent(error: &hyper::Error) -> bool {
    error.is_canceled() || format!("{error:?}").contains("GoAway(b\"\", NO_ERROR, Remote)")
}

fn connector(certificate: &CertifiedKey<KeyPair>, kind: Kind) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.cert.der().clone()).expect("a certificate");
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let protocol: &[u8] = if kind == Kind::Http2 { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}
