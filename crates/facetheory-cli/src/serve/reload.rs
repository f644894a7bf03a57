//! Reload: SIGHUP replaces everything in [`ServingConfig`] (origin, rules, limits, timeouts) and the certificate.

use std::sync::Arc;

use anyhow::Result;
use arc_swap::ArcSwap;
use facetheory::{Isr, Pages};

use super::settings::Settings;
use crate::config;
use crate::gateway::{Gateway, ServingConfig, Tls, Tunnels};

/// The parts of a running gateway that a reload reads or replaces.
pub(super) struct Reloadable {
    /// The settings that the process was started with.
    pub(super) settings: Settings,
    pub(super) pages: Pages,
    pub(super) isr: Isr,
    pub(super) gateway: Arc<Gateway>,
    pub(super) tunnels: Tunnels,
    pub(super) is_logged: bool,
    pub(super) tls: Option<Arc<Tls>>,
    /// The certificate files of the last valid configuration.
    pub(super) certificate: Option<config::Tls>,
    /// The current settings, for the admin API.
    pub(super) effective: Arc<ArcSwap<serde_json::Value>>,
}

impl Reloadable {
    /// Applies new settings, and reads the certificate again. Requests in progress finish under the old rules. If the new
    /// configuration or certificate is invalid, the old one stays in use.
    pub(super) fn reload(&mut self, new: Result<Settings>) {
        let serving = new.and_then(|new| Ok((self.serving_config(&new)?, new)));
        match serving {
            Ok((serving, new)) => {
                self.gateway.reload(serving);
                self.effective.store(Arc::new(new.to_json()));
                tracing::info!("configuration reloaded");
                new.log_warnings();
                self.settings.warn_about_restart(&new);
                self.certificate = new.config.tls.or(self.certificate.take());
            }
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "reload failed, the old configuration stays in use"
                );
            }
        }
        if let (Some(tls), Some(files)) = (&self.tls, &self.certificate)
            && let Err(error) = tls.reload(&files.certificate, &files.key)
        {
            tracing::error!(error = format!("{error:#}"), "reload failed, the old certificate stays in use");
        }
    }

    fn serving_config(&self, new: &Settings) -> Result<ServingConfig> {
        let (isr, tunnels) = (self.isr.clone(), self.tunnels.clone());
        // Cache keys depend on these two, so they change with the stores and the listener, after a restart.
        let (mut config, current) = (new.config.clone(), &self.settings.config);
        (config.store, config.tls) = (current.store.clone(), current.tls.clone());
        ServingConfig::new(&config, &new.origin, isr, tunnels, None, self.is_logged)
    }
}
