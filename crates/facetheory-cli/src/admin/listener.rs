//! Accepts connections of operators.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::purge::Peer;
use super::{Admin, AdminSettings, router};
use crate::sockets::{ACCEPT_PAUSE, ListenAddress, Sockets, is_in_use};

/// The most connections at once; further ones wait in the backlog.
const MAX_CONNECTIONS: usize = 1024;
/// The timeout for request headers, and for idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit on request headers.
const MAX_HEADER_BYTES: usize = 32 * 1024;
/// How long a shutdown waits for requests in progress.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The bound admin listener.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    settings: AdminSettings,
}

impl Listener {
    /// Listens on an inherited socket, or binds the address. Returns `None` if the default address is in use: two gateways on
    /// one machine must both start.
    pub(super) async fn bind(settings: AdminSettings, sockets: &mut Sockets) -> Result<Option<Self>> {
        let AdminSettings { address, is_default, .. } = settings;
        match sockets.admin(ListenAddress { address, is_default, option: "--admin" }).await {
            Ok(tcp) => Ok(Some(Listener { tcp, settings })),
            Err(error) if is_default && is_in_use(&error) => {
                tracing::warn!(
                    "no admin listener: the default address {address} is in use; choose another one with --admin"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The socket, to be handed over to another process.
    pub(crate) fn socket(&self) -> Result<OwnedFd> {
        self.tcp.as_fd().try_clone_to_owned().context("cannot duplicate the socket of the admin listener")
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.tcp.local_addr().context("cannot determine the address of the admin listener")
    }

    /// Serves until `stop` is cancelled, then waits for requests in progress.
    pub(crate) async fn run(self, admin: Admin, stop: CancellationToken) {
        let router = router(admin, self.settings);
        let (permits, connections) = (Arc::new(Semaphore::new(MAX_CONNECTIONS)), TaskTracker::new());
        let abort = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                accepted = async {
                    let permit = permits.clone().acquire_owned().await;
                    self.tcp.accept().await.map(|(stream, peer)| (stream, peer, permit))
                } => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer, permit)) => {
                    let (stop, abort) = (stop.clone(), abort.clone());
                    let service = router.clone().layer(Extension(Peer(peer.ip())));
                    let service = TowerToHyperService::new(service);
                    connections.spawn(async move {
                        tokio::select! {
                            () = serve_connection(stream, service, stop) => {}
                            () = abort.cancelled() => {}
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin listener cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        connections.close();
        if tokio::time::timeout(DRAIN_TIMEOUT, connections.wait()).await.is_err() {
            abort.cancel();
            connections.wait().await;
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    service: TowerToHyperService<axum::Router>,
    stop: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "admin connection failed");
    }
}
