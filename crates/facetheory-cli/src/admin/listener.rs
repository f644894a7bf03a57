//! Where operators connect.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Admin, Terms, router};

/// The most connections at once; more wait.
const MOST_CONNECTIONS: usize = 1024;
/// How long the headers of a request may take, and how long a connection may be idle.
const HEADERS: Duration = Duration::from_secs(5);
/// The most bytes of headers.
const HEADER_BYTES: usize = 32 * 1024;
/// How long nobody is accepted after the machine has run out of what a connection needs.
const PAUSE: Duration = Duration::from_millis(100);
/// How long requests may go on once the listener is to end.
const LAST_REQUESTS: Duration = Duration::from_secs(2);

/// An address that operators can connect to.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    terms: Terms,
}

impl Listener {
    /// Listens as the terms say. Where nobody has asked for the address and another program has it, there is no listener:
    /// two gateways on one machine are no mistake.
    pub(crate) async fn bind(terms: Terms) -> Result<Option<Self>> {
        let address = terms.address;
        match TcpListener::bind(address).await {
            Ok(tcp) => Ok(Some(Listener { tcp, terms })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && terms.is_usual => {
                tracing::warn!(
                    "there is no admin listener: {address} is in use; choose another with --admin"
                );
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(anyhow!(
                "{address} is in use by another program; choose another with --admin, such as 127.0.0.1:0, or --admin off"
            )),
            Err(error) => Err(anyhow::Error::new(error).context(format!("{address} cannot be listened on"))),
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.tcp.local_addr().context("the address cannot be told")
    }

    /// Answers until it is to end, and lets the last requests come to theirs.
    pub(crate) async fn run(self, admin: impl FnOnce(Terms) -> Admin, end: CancellationToken) {
        let admin = Arc::new(admin(self.terms));
        let service = TowerToHyperService::new(router(admin));
        let (places, connections) = (Arc::new(Semaphore::new(MOST_CONNECTIONS)), TaskTracker::new());
        let cut = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                accepted = async {
                    let place = places.clone().acquire_owned().await;
                    self.tcp.accept().await.map(|(stream, _)| (stream, place))
                } => accepted,
                () = end.cancelled() => break,
            };
            match accepted {
                Ok((stream, place)) => {
                    let (service, end, cut) = (service.clone(), end.clone(), cut.clone());
                    connections.spawn(async move {
                        tokio::select! {
                            () = converse(stream, service, end) => {}
                            () = cut.cancelled() => {}
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection to the admin listener can be accepted for now");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        connections.close();
        if tokio::time::timeout(LAST_REQUESTS, connections.wait()).await.is_err() {
            cut.cancel();
            connections.wait().await;
        }
    }
}

async fn converse(stream: TcpStream, service: TowerToHyperService<axum::Router>, end: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = end.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the admin listener broke off");
    }
}
