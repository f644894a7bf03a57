//! The settings of `facetheory serve`: command line, configuration file and defaults.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Arguments;
use crate::config::{self, Config};

/// The configuration file that is read if it exists and `--config` names no other.
pub(crate) const DEFAULT_FILE: &str = "facetheory.toml";
/// The default port for clients, on the loopback interface.
const DEFAULT_PORT: u16 = 8080;
/// The directory of the embedded store, unless another store is configured.
pub(super) const DEFAULT_DATA: &str = "facetheory-data";

/// Settings that a reload does not change.
const NEEDS_RESTART: [&str; 14] = [
    "listen",
    "hand_over",
    "admin",
    "log",
    "log_sample",
    "store",
    "gc",
    "timeouts.table",
    "timeouts.bodies",
    "timeouts.publish",
    "timeouts.lame_duck",
    "timeouts.shutdown",
    "limits.connections",
    "limits.connections_per_address",
];

/// The effective settings. The command line overrides the file.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) origin: config::Origin,
    pub(crate) listen: SocketAddr,
    /// `listen` is the default, not configured.
    pub(crate) is_default_listen: bool,
}

impl Settings {
    /// Reads the configuration file and applies the command line.
    pub(crate) fn read(arguments: &Arguments) -> Result<Self> {
        let mut config = match &arguments.config {
            Some(file) => Config::read(file)?,
            None if Path::new(DEFAULT_FILE).exists() => Config::read(Path::new(DEFAULT_FILE))?,
            None => Config::default(),
        };
        arguments.store.override_in(&mut config.store);
        config.hand_over = arguments.hand_over.clone().or(config.hand_over);
        if let (Some(certificate), Some(key)) = (&arguments.certificate, &arguments.key) {
            config.tls = Some(config::Tls { certificate: certificate.clone(), key: key.clone() });
        }
        let origin = arguments.origin.clone().or_else(|| config.origin.clone());
        let origin = origin.context(
            "no origin is configured; name the server behind the gateway with --origin http://127.0.0.1:3000, or with \
             `origin` in facetheory.toml",
        )?;
        Settings::new(config, origin, arguments.listen)
    }

    /// Logs what is valid, but most likely not intended.
    pub(crate) fn log_warnings(&self) {
        for config::Diagnostic { line, message } in self.config.warnings() {
            tracing::warn!(line, "configuration: {message}");
        }
    }

    /// Combines a configuration with the origin and the address of the command line.
    pub(crate) fn new(config: Config, origin: config::Origin, listen: Option<SocketAddr>) -> Result<Self> {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT));
        let configured = listen.or(config.listen);
        let listen = configured.unwrap_or(default);
        anyhow::ensure!(
            !origin.is(listen),
            "the origin is the listen address {listen}: the gateway would send requests to itself; \
             choose another address with --listen"
        );
        Ok(Settings { config, origin, listen, is_default_listen: configured.is_none() })
    }

    /// Logs which of the new settings take effect only after a restart.
    pub(super) fn warn_about_restart(&self, new: &Settings) {
        let (old_json, new_json) = (self.to_json(), new.to_json());
        let has_changed = |name: &&str| value(&old_json, name) != value(&new_json, name);
        let mut changed: Vec<&str> = NEEDS_RESTART.into_iter().filter(has_changed).collect();
        // A new certificate is used at once, but HTTPS cannot be switched on or off.
        if self.config.tls.is_some() != new.config.tls.is_some() {
            changed.push("tls");
        }
        if !changed.is_empty() {
            tracing::warn!(changed = changed.join(", "), "some changed settings need a restart");
        }
    }

    /// Returns the settings as JSON, for the admin API.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::to_value(&self.config).unwrap_or_default();
        json["origin"] = serde_json::to_value(&self.origin).unwrap_or_default();
        json["listen"] = self.listen.to_string().into();
        json
    }
}

/// Returns the value of a key; a dot separates a table from its key.
fn value<'a>(json: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
    name.split('.').try_fold(json, |value, name| value.get(name))
}
