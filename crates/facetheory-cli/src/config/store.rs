//! `[store]`: where pages are stored.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::section::Section;
use super::units::{serialize_duration, serialize_size};
use super::value::{bytes, duration, path, string};

/// The stores of the gateway. The command line overrides `data`, `table` and `bodies`; if all are unset, the environment
/// decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Store {
    /// The directory of the embedded store.
    pub(crate) data: Option<PathBuf>,
    /// The URL of the table: `sqlite:PATH`, `dynamodb:NAME`, `memory:`.
    pub(crate) table: Option<String>,
    /// The URL of the body store: `file:PATH`, `s3://bucket/prefix`, `memory:`.
    pub(crate) bodies: Option<String>,
    /// The size of this process's memory cache in bytes.
    #[serde(serialize_with = "serialize_size")]
    pub(crate) memory: u64,
    /// The name of the deployment; pages rendered by another deployment are stale.
    pub(crate) deployment: Option<String>,
    /// How long metadata and tag epochs read from the table are used before they are read again. It bounds how long an
    /// invalidation by another process goes unnoticed.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) metadata_max_age: Duration,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            data: None,
            table: None,
            bodies: None,
            memory: 128 << 20,
            deployment: None,
            metadata_max_age: Duration::from_secs(1),
        }
    }
}

impl Store {
    pub(crate) fn read(mut section: Section<'_>) -> Store {
        let mut store = Store {
            data: section.read("data", path),
            table: section.read("table", |value| {
                let text = string(value)?;
                text.parse::<tabletheory::Address>().map_err(|error| error.to_string())?;
                Ok(text.to_owned())
            }),
            bodies: section.read("bodies", |value| string(value).and_then(bodies)),
            deployment: section.read("deployment", |value| string(value).and_then(deployment)),
            ..Store::default()
        };
        section.set("memory", &mut store.memory, bytes(1 << 20, 1 << 40));
        section.set("metadata_max_age", &mut store.metadata_max_age, duration);
        for (key, url) in [("table", &store.table), ("bodies", &store.bodies)] {
            if store.data.is_some() && url.is_some() {
                let message =
                    format!("`data` and `{key}` exclude each other: `data` holds both table and bodies");
                section.source.report(section.position(key), message);
            }
        }
        section.finish();
        store
    }
}

fn bodies(text: &str) -> Result<String, String> {
    const SCHEMES: [&str; 3] = ["file:", "s3://", "memory:"];
    if SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
        return Ok(text.to_owned());
    }
    Err("this is not the URL of a body store; write `file:PATH`, `s3://BUCKET/PREFIX` or `memory:`"
        .to_owned())
}

fn deployment(text: &str) -> Result<String, String> {
    const MAX_BYTES: usize = 128;
    if text.is_empty() || text.len() > MAX_BYTES || text.chars().any(char::is_control) {
        return Err(format!("a deployment name has 1 to {MAX_BYTES} bytes and no control characters"));
    }
    Ok(text.to_owned())
}
