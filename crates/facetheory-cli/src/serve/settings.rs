//! What is to be done, once the command line and the configuration have been read.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::Arguments;
use crate::config::{self, Config};

/// The configuration that is read where none is named.
const USUAL_FILE: &str = "facetheory.toml";
/// Where visitors are served if nothing says otherwise.
const USUAL_ADDRESS: &str = "127.0.0.1:8080";

/// What is gone by from the start to the end.
const FOR_GOOD: [&str; 10] = [
    "listen",
    "admin",
    "log",
    "store",
    "gc",
    "timeouts.table",
    "timeouts.bodies",
    "timeouts.shutdown",
    "limits.connections",
    "limits.connections_per_address",
];

/// What is to be done. The command line has the last word.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) origin: config::Origin,
    pub(crate) listen: SocketAddr,
}

impl Settings {
    /// Of the command line and the file that it names.
    pub(crate) fn read(arguments: &Arguments) -> Result<Self> {
        let mut config = match &arguments.config {
            Some(file) => Config::read(file)?,
            None if Path::new(USUAL_FILE).exists() => Config::read(Path::new(USUAL_FILE))?,
            None => Config::default(),
        };
        if arguments.data.is_some() || arguments.table.is_some() {
            config.store.data.clone_from(&arguments.data);
            config.store.table.clone_from(&arguments.table);
            config.store.bodies.clone_from(&arguments.bodies);
        }
        if let (Some(certificate), Some(key)) = (&arguments.certificate, &arguments.key) {
            config.tls = Some(config::Tls { certificate: certificate.clone(), key: key.clone() });
        }
        let origin = arguments.origin.clone().or_else(|| config.origin.clone());
        Settings::of(config, origin.context(NO_ORIGIN)?, arguments.listen)
    }

    /// Of a configuration, for this origin.
    pub(crate) fn of(config: Config, origin: config::Origin, listen: Option<SocketAddr>) -> Result<Self> {
        let listen = match listen.or(config.listen) {
            Some(listen) => listen,
            None => USUAL_ADDRESS.parse().context("the usual address is none")?,
        };
        anyhow::ensure!(
            !origin.is(listen),
            "the origin is the address that is listened on, {listen}: the gateway would ask itself; \
             choose another address with --listen"
        );
        Ok(Settings { config, origin, listen })
    }

    /// Says which of the new settings will hold after a restart and not before.
    pub(crate) fn tell_what_waits(&self, new: &Settings) {
        let (old_shown, new_shown) = (self.shown(), new.shown());
        let mut waiting: Vec<&str> =
            FOR_GOOD.into_iter().filter(|name| value(&old_shown, name) != value(&new_shown, name)).collect();
        // Another certificate is shown at once; whether connections are secure at all stays as it is.
        if self.config.tls.is_some() != new.config.tls.is_some() {
            waiting.push("tls");
        }
        if !waiting.is_empty() {
            tracing::warn!(changed = waiting.join(", "), "some settings hold only after a restart");
        }
    }

    /// What it has come to, for operators to read.
    pub(crate) fn shown(&self) -> serde_json::Value {
        let mut shown = serde_json::to_value(&self.config).unwrap_or_default();
        shown["origin"] = serde_json::to_value(&self.origin).unwrap_or_default();
        shown["listen"] = self.listen.to_string().into();
        shown
    }
}

/// The value of this name, with a point between a section and what is in it.
fn value<'a>(shown: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
    name.split('.').try_fold(shown, |value, name| value.get(name))
}

const NO_ORIGIN: &str = "nothing says where the pages come from; name the server that renders them, as in \
                         --origin http://127.0.0.1:3000, or by `origin` in facetheory.toml";

/// Where pages are kept if nothing says otherwise.
pub(super) fn usual_data() -> PathBuf {
    PathBuf::from("facetheory-data")
}
