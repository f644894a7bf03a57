//! `[store]`: where pages are kept.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::section::Section;
use super::value::{bytes, duration, path, text};
use super::{print_duration, print_size};

/// Where pages are kept, as far as the file says it; the command line and the environment may say it, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Store {
    /// The directory of the embedded store.
    pub(crate) data: Option<PathBuf>,
    /// The address of the table: `sqlite:PATH`, `dynamodb:NAME`, `memory:`.
    pub(crate) table: Option<String>,
    /// The address of the bodies: `file:PATH`, `s3://bucket/prefix`, `memory:`.
    pub(crate) bodies: Option<String>,
    /// How much memory pages may take in this process, in bytes.
    #[serde(serialize_with = "print_size")]
    pub(crate) memory: u64,
    /// The deployment that this process serves; pages of another are stale.
    pub(crate) deployment: Option<String>,
    /// For how long what the table said is believed without asking again.
    #[serde(serialize_with = "print_duration")]
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
    /// What the table says.
    pub(crate) fn read(mut section: Section<'_>) -> Store {
        let usual = Store::default();
        let store = Store {
            data: section.read("data", path),
            table: section.read("table", |value| {
                let text = text(value)?;
                text.parse::<tabletheory::Address>().map_err(|error| error.to_string())?;
                Ok(text.to_owned())
            }),
            bodies: section.read("bodies", |value| text(value).and_then(bodies)),
            memory: section.read("memory", bytes(1 << 20, 1 << 40)).unwrap_or(usual.memory),
            deployment: section.read("deployment", |value| text(value).and_then(deployment)),
            metadata_max_age: section.read("metadata_max_age", duration).unwrap_or(usual.metadata_max_age),
        };
        for other in ["table", "bodies"] {
            let said = if other == "table" { &store.table } else { &store.bodies };
            if store.data.is_some() && said.is_some() {
                let fault = format!(
                    "`data` is a place for everything, so `{other}` cannot be elsewhere; write one of them"
                );
                section.source.fault(section.place(other), fault);
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
    Err("it is no address of bodies; write `file:PATH`, `s3://BUCKET/PREFIX` or `memory:`".to_owned())
}

fn deployment(text: &str) -> Result<String, String> {
    /// More than any commit or release is called by.
    const LONGEST: usize = 128;
    if text.is_empty() || text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err(format!("a deployment has 1 to {LONGEST} bytes and no control characters"));
    }
    Ok(text.to_owned())
}
