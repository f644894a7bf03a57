//! A gateway that listens, and the admin listener beside it.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use facetheory::Isr;
use tabletheory::SystemRandom;
use tokio_util::sync::CancellationToken;

use super::gc::Collector;
use super::settings::Settings;
use super::shutdown::Ending;
use super::store;
use crate::admin::{self, Admin, Metrics, Readiness};
use crate::gateway::{ConnectionLimit, Endpoint, Gateway, Listener, ServingConfig, Tls, Tunnels};
use crate::log::AccessLog;
use crate::open_files;
use crate::signals::{Signal, Signals};
use crate::wire::DeadlineTicker;

/// A gateway that listens.
pub(crate) struct Server {
    settings: Settings,
    isr: Isr,
    gateway: Arc<Gateway>,
    listener: Listener,
    address: SocketAddr,
    admin: Option<admin::Listener>,
    is_logged: bool,
    metrics: Metrics,
    tls: Option<Arc<Tls>>,
    tunnels: Tunnels,
}

impl Server {
    /// Listens as the settings say, for pages of this engine.
    pub(crate) async fn start(
        settings: Settings,
        isr: Isr,
        admin: Option<admin::Listener>,
        access: Option<AccessLog>,
    ) -> Result<Self> {
        let metrics = Metrics::install()?;
        let (tunnels, is_logged) = (Tunnels::default(), access.is_some());
        let rules =
            ServingConfig::new(&settings.config, &settings.origin, isr.clone(), tunnels.clone(), is_logged)?;
        let tls =
            settings.config.tls.as_ref().map(|tls| Tls::open(&tls.certificate, &tls.key)).transpose()?;
        let listener = Listener::bind(settings.listen, "--listen").await?;
        let address = listener.address()?;
        Ok(Server {
            gateway: Gateway::new(rules, access),
            listener,
            address,
            admin,
            is_logged,
            metrics,
            tls: tls.map(Arc::new),
            tunnels,
            isr,
            settings,
        })
    }

    /// Where it listens, as an address to be opened.
    pub(crate) fn address(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Where the admin listener is, as an address to be opened, if there is one.
    pub(crate) fn admin_address(&self) -> Option<String> {
        let address = self.admin.as_ref()?.address().ok()?;
        Some(format!("http://{address}"))
    }

    /// Serves until it is asked to end. Asked to read its settings again, it goes by those from then on, unless they are
    /// wrong.
    pub(crate) async fn run(self, read_again: impl Fn() -> Result<Settings>) -> Result<()> {
        let Server { settings, isr, gateway, listener, admin, is_logged, metrics, tls, tunnels, .. } = self;
        let limits = &settings.config.limits;
        open_files::allow_for(limits.connections);
        let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let endpoint = Endpoint {
            gateway: gateway.clone(),
            tls: tls.clone(),
            connections: ConnectionLimit::new(
                count(limits.connections),
                count(limits.connections_per_address),
            ),
            deadline_ticker: DeadlineTicker::new(),
        };
        let patience = settings.config.timeouts.shutdown;
        let (ending, end) = (Ending::within(patience), CancellationToken::new());
        let shown = Arc::new(ArcSwap::from_pointee(settings.shown()));
        let admin = admin.map(|listener| {
            let (gateway, isr, connections) = (gateway.clone(), isr.clone(), endpoint.connections.clone());
            let (shown, stop) = (shown.clone(), ending.stop.clone());
            let admin = |terms| Admin {
                gateway,
                isr,
                connections,
                metrics,
                configuration: Arc::new(move || serde_json::Value::clone(&shown.load())),
                stop,
                terms,
                readiness: Readiness::default(),
            };
            tokio::spawn(listener.run(admin, end.clone()))
        });
        let ticking = endpoint.deadline_ticker.clone();
        let ticker = tokio::spawn(async move { ticking.run().await });
        let (pages, random) = (isr.pages().clone(), Arc::new(SystemRandom));
        let gc = &settings.config.gc;
        let every = gc.interval.resolve(store::is_embedded(&settings.config.store)?);
        let collector = Collector { pages, every, grace: gc.grace, random };
        tokio::spawn(collector.run(ending.stop.clone()));
        let mut serving = pin!(async {
            if !listener.run(endpoint, ending.stop.clone(), ending.over.clone()).await {
                tracing::warn!("some connections had to be cut");
            }
            tunnels.close().await;
            if ending.over.run_until_cancelled(isr.shut_down(patience)).await.is_none() {
                isr.shut_down(Duration::ZERO).await;
            }
        });
        let mut signals = Signals::new()?;
        let mut certificate = settings.config.tls.clone();
        loop {
            tokio::select! {
                () = &mut serving => break,
                signal = signals.next() => match signal {
                    Signal::Stop => ending.ask(),
                    Signal::Reload => {
                        let rules = read_again().and_then(|new| {
                            let (config, tunnels) = (&new.config, tunnels.clone());
                            let rules = ServingConfig::new(config, &new.origin, isr.clone(), tunnels, is_logged)?;
                            Ok((rules, new))
                        });
                        match rules {
                            Ok((rules, new)) => {
                                gateway.reload(rules);
                                shown.store(Arc::new(new.shown()));
                                tracing::info!("the configuration was read again");
                                settings.tell_what_waits(&new);
                                certificate = new.config.tls.or(certificate);
                            }
                            Err(error) => {
                                tracing::error!(error = format!("{error:#}"), "the configuration stays as it was");
                            }
                        }
                        if let (Some(tls), Some(files)) = (&tls, &certificate)
                            && let Err(error) = tls.reload(&files.certificate, &files.key)
                        {
                            tracing::error!(error = format!("{error:#}"), "the certificate stays as it was");
                        }
                    }
                },
            }
        }
        ticker.abort();
        // To the last it tells that nobody should be sent here.
        end.cancel();
        if let Some(admin) = admin {
            admin.await.context("the admin listener came to grief")?;
        }
        Ok(())
    }
}
