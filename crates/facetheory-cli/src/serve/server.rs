//! The running gateway: bind, start, handle signals, shut down.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use facetheory::{Isr, IsrBuilder};
use tabletheory::SystemRandom;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::gc::GcTask;
use super::reload::Reloadable;
use super::settings::Settings;
use super::shutdown::Shutdown;
use super::store;
use crate::admin::{self, Admin, Metrics, Readiness};
use crate::gateway::{ConnectionLimit, Endpoint, Gateway, Listener, ServingConfig, Tls, Tunnels};
use crate::log::AccessLog;
use crate::open_files;
use crate::signals::{Signal, Signals};
use crate::wire::DeadlineTicker;

/// A gateway whose addresses are bound.
pub(crate) struct Server {
    live: Reloadable,
    listener: Listener,
    address: SocketAddr,
    admin: Option<admin::Listener>,
    metrics: Metrics,
}

impl Server {
    /// Binds the address for clients.
    pub(crate) async fn bind(
        settings: Settings,
        engine: IsrBuilder,
        admin: Option<admin::Listener>,
        access: Option<AccessLog>,
    ) -> Result<Self> {
        let (pages, isr) = (engine.pages().clone(), engine.build());
        let metrics = Metrics::install()?;
        let (tunnels, is_logged) = (Tunnels::default(), access.is_some());
        let serving = ServingConfig::new(
            &settings.config,
            &settings.origin,
            isr.clone(),
            tunnels.clone(),
            None,
            is_logged,
        )?;
        let certificate = settings.config.tls.clone();
        let tls = certificate.as_ref().map(|tls| Tls::open(&tls.certificate, &tls.key)).transpose()?;
        let listener = Listener::bind(settings.listen, "--listen").await?;
        let address = listener.address()?;
        let live = Reloadable {
            effective: Arc::new(ArcSwap::from_pointee(settings.to_json())),
            gateway: Gateway::new(serving, access),
            settings,
            pages,
            isr,
            tunnels,
            is_logged,
            tls: tls.map(Arc::new),
            certificate,
        };
        Ok(Server { live, listener, address, admin, metrics })
    }

    /// Returns the URL for clients.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.live.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the URL of the admin listener, if there is one.
    pub(crate) fn admin_url(&self) -> Option<String> {
        let address = self.admin.as_ref()?.address().ok()?;
        Some(format!("http://{address}"))
    }

    /// Serves until a signal shuts the process down. SIGHUP calls `read_settings` and reloads.
    pub(crate) async fn run(self, read_settings: impl Fn() -> Result<Settings>) -> Result<()> {
        let Server { mut live, listener, admin, metrics, .. } = self;
        let mut signals = Signals::install()?;
        let shutdown = Shutdown::new(live.settings.config.timeouts.shutdown);
        let endpoint = endpoint(&live);
        let ticker = endpoint.deadline_ticker.clone();
        let ticker = tokio::spawn(async move { ticker.run().await });
        let admin_stop = CancellationToken::new();
        let admin = admin.map(|listener| {
            let connections = endpoint.connections.clone();
            start_admin(&live, listener, metrics, connections, &shutdown, &admin_stop)
        });
        let gc = start_gc(&live, &shutdown)?;
        let (isr, tunnels) = (live.isr.clone(), live.tunnels.clone());
        let mut work = pin!(async {
            tokio::join!(
                serve_and_drain(listener, endpoint, tunnels, isr, &shutdown),
                shutdown.wait_for_gc(gc)
            )
        });
        loop {
            tokio::select! {
                _ = &mut work => break,
                signal = signals.next() => match signal {
                    Signal::Shutdown => shutdown.request(),
                    Signal::Reload => live.reload(read_settings()),
                },
            }
        }
        ticker.abort();
        // Until now /readyz has reported that the process is shutting down.
        admin_stop.cancel();
        if let Some(admin) = admin {
            admin.await.context("the admin listener panicked")?;
        }
        Ok(())
    }
}

fn endpoint(live: &Reloadable) -> Endpoint {
    let limits = &live.settings.config.limits;
    open_files::raise_limit(limits.connections);
    let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    Endpoint {
        gateway: live.gateway.clone(),
        tls: live.tls.clone(),
        connections: ConnectionLimit::new(count(limits.connections), count(limits.connections_per_address)),
        deadline_ticker: DeadlineTicker::new(),
    }
}

fn start_admin(
    live: &Reloadable,
    listener: admin::Listener,
    metrics: Metrics,
    connections: Arc<ConnectionLimit>,
    shutdown: &Shutdown,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let admin = Admin {
        gateway: live.gateway.clone(),
        isr: live.isr.clone(),
        connections,
        metrics,
        effective_config: live.effective.clone(),
        shutdown: shutdown.requested.clone(),
        readiness: Readiness::default(),
    };
    tokio::spawn(listener.run(admin, stop.clone()))
}

fn start_gc(live: &Reloadable, shutdown: &Shutdown) -> Result<JoinHandle<()>> {
    let config = &live.settings.config;
    let interval = config.gc.interval.resolve(store::is_embedded(&config.store)?);
    let (pages, random) = (live.pages.clone(), Arc::new(SystemRandom));
    let task = GcTask { pages, interval, grace: config.gc.grace, random };
    Ok(tokio::spawn(task.run(shutdown.requested.clone())))
}

/// Serves clients until a shutdown is requested, then waits for connections, tunnels and renders in progress.
async fn serve_and_drain(
    listener: Listener,
    endpoint: Endpoint,
    tunnels: Tunnels,
    isr: Isr,
    shutdown: &Shutdown,
) {
    if !listener.run(endpoint, shutdown.requested.clone(), shutdown.forced.clone()).await {
        tracing::warn!("shutdown timed out, open connections were closed");
    }
    tunnels.close().await;
    if shutdown.forced.run_until_cancelled(isr.shut_down(shutdown.timeout)).await.is_none() {
        isr.shut_down(Duration::ZERO).await;
    }
}
