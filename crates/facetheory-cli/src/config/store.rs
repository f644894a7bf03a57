//! `[store]`: where pages are stored.

use std::path::PathBuf;
use std::time::Duration;

use facetheory::{IsrLayer, KeyScheme};
use serde::Serialize;
use tabletheory::Address;
use toml::de::DeValue;

use super::section::{Section, table};
use super::units::{serialize_duration, serialize_optional_size, serialize_size};
use super::value::{bytes, duration, keyword, number, optional, path, string};

/// The least limit of a store: the logs that SQLite writes beside its two files take up to half of it.
const MIN_STORE_BYTES: u64 = 64 << 20;

table! {
    /// The stores of the gateway. The command line overrides `data`, `table` and `bodies`; if all are unset, the
    /// environment decides.
    Store {
        /// The directory of the embedded store.
        data: Option<PathBuf> = None, optional(path);
        /// The URL of the table: `sqlite:PATH`, `dynamodb:NAME`, `memory:`.
        table: Option<String> = None, optional(table_url);
        /// The URL of the body store: `file:PATH`, `s3://bucket/prefix`, `memory:`.
        bodies: Option<String> = None, optional(bodies);
        /// The name of the deployment; pages rendered by another deployment are stale.
        deployment: Option<String> = None, optional(deployment);
        /// The version of the caching policy; part of the hash of requests to regenerate.
        policy_version: Option<String> = None, optional(policy_version);
        /// The bytes of bodies in this process: pages in memory, and bodies in flight.
        memory: u64 = 128 << 20, bytes(1 << 20, 1 << 40), "serialize_size";
        /// The most bytes of the store on the disk.
        max_bytes: Option<u64> = None, optional(bytes(MIN_STORE_BYTES, 1 << 50)), "serialize_optional_size";
        /// The most pages of the store.
        max_pages: Option<u64> = None, optional(number(100, 1 << 40));
        /// How long metadata and tag epochs read from the table are used before they are read again. It bounds how long
        /// an invalidation by another process goes unnoticed.
        metadata_max_age: Duration = Duration::from_secs(1), duration, "serialize_duration";
        /// How a cache key becomes the partition key of its rows.
        keys: Keys = Keys::Hashed, keyword;
        /// The prefix of raw partition keys.
        key_prefix: Option<String> = None, optional(key_prefix);
        /// The form of cache keys.
        key_form: KeyForm = KeyForm::Default, keyword;
        /// The form in which rows name the objects of bodies.
        pointers: Pointers = Pointers::Absolute, keyword;
        /// Which processes write the table; unset, it depends on the table.
        feed: Option<FeedChoice> = None, optional(keyword);
        /// The action when the file of an embedded table is damaged.
        on_corruption: OnCorruption = OnCorruption::Replace, keyword;
    }
    check
}

/// How a cache key becomes the partition key of its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Keys {
    /// By its hash.
    #[default]
    Hashed,
    /// As it is, after a prefix.
    Raw,
}

/// The form of cache keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeyForm {
    /// With the host.
    #[default]
    Default,
    /// As FaceTheory's TypeScript services build them by default.
    FacetheoryTs,
}

/// The form in which rows name the objects of bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pointers {
    /// With the prefix of the body store.
    #[default]
    Absolute,
    /// Without it.
    Relative,
}

impl From<Pointers> for facetheory::Pointers {
    fn from(pointers: Pointers) -> Self {
        match pointers {
            Pointers::Absolute => facetheory::Pointers::Absolute,
            Pointers::Relative => facetheory::Pointers::Relative,
        }
    }
}

/// The action when the file of an embedded table is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnCorruption {
    /// It is renamed, and an empty one is begun: it is a cache.
    #[default]
    Replace,
    /// It stays, and the gateway does not use it.
    Refuse,
}

impl From<OnCorruption> for tabletheory::OnCorruption {
    fn from(choice: OnCorruption) -> Self {
        match choice {
            OnCorruption::Replace => tabletheory::OnCorruption::Replace,
            OnCorruption::Refuse => tabletheory::OnCorruption::Refuse,
        }
    }
}

/// The prefix of raw partition keys that the TypeScript store uses by default.
const DEFAULT_KEY_PREFIX: &str = "CACHE#";

/// Which processes write the table. This decides how the gateway learns about their changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FeedChoice {
    /// Other programs may write the table too: metadata is read again when it is older than `metadata_max_age`.
    Mixed,
    /// Only FaceTheory writes the table: the gateway reads the change feed instead of each page.
    Exclusive,
}

impl FeedChoice {
    /// The choice for a table if none is configured. Services in other languages can write only a table on DynamoDB.
    pub(crate) fn default_of(table: &Address) -> Self {
        match table {
            Address::Memory | Address::Sqlite(_) => FeedChoice::Exclusive,
            _ => FeedChoice::Mixed,
        }
    }
}

impl From<FeedChoice> for facetheory::Feed {
    fn from(choice: FeedChoice) -> Self {
        match choice {
            FeedChoice::Mixed => facetheory::Feed::Mixed,
            FeedChoice::Exclusive => facetheory::Feed::Exclusive,
        }
    }
}

/// The least memory for bodies in flight: a page of the default limit fits.
const MIN_IN_FLIGHT: u64 = IsrLayer::MAX_PAGE_BYTES;

impl Store {
    /// Returns the part of the memory that is for pages, and the part that is for bodies in flight: a quarter, or more if the
    /// memory is small.
    pub(crate) fn memory_parts(&self) -> (u64, u64) {
        let in_flight = self.memory / 4;
        (self.memory - in_flight, in_flight.max(MIN_IN_FLIGHT))
    }

    /// Returns how cache keys become partition keys.
    pub(crate) fn key_scheme(&self) -> facetheory::Result<KeyScheme> {
        match self.keys {
            Keys::Hashed => Ok(KeyScheme::Hashed),
            Keys::Raw => KeyScheme::raw(self.key_prefix.as_deref().unwrap_or(DEFAULT_KEY_PREFIX)),
        }
    }

    /// Returns a warning if the keys are those of services that do not write the change feed, and the gateway relies on it:
    /// that is valid, but most likely not intended.
    pub(super) fn feed_warning(&self) -> Option<String> {
        let keys = match (self.key_form, self.keys) {
            (KeyForm::FacetheoryTs, _) => "key_form = \"facetheory-ts\"",
            (KeyForm::Default, Keys::Raw) => "keys = \"raw\"",
            (KeyForm::Default, Keys::Hashed) => return None,
        };
        (self.feed == Some(FeedChoice::Exclusive)).then(|| {
            format!(
                "`feed = \"exclusive\"` with `{keys}`: these are the keys of TypeScript services, which do not write the change \
                 feed; pages that such a service changes in the table are served as they were until their interval ends; \
                 set feed = \"mixed\", unless only FaceTheory gateways write the table"
            )
        })
    }

    /// Reports keys that exclude each other.
    fn check(&self, section: &Section<'_>) {
        if self.key_prefix.is_some() && self.keys == Keys::Hashed {
            let message = "`key_prefix` is used only with keys = \"raw\"; set that, or remove the prefix";
            section.source.report(section.position("key_prefix"), message);
        }
        for (key, url) in [("table", &self.table), ("bodies", &self.bodies)] {
            if self.data.is_some() && url.is_some() {
                let message =
                    format!("`data` and `{key}` exclude each other: `data` holds both table and bodies");
                section.source.report(section.position(key), message);
            }
        }
    }
}

fn table_url(value: &DeValue<'_>) -> Result<String, String> {
    let text = string(value)?;
    text.parse::<Address>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn bodies(value: &DeValue<'_>) -> Result<String, String> {
    let text = string(value)?;
    if ["file:", "s3://", "memory:"].iter().any(|scheme| text.starts_with(scheme)) {
        return Ok(text.to_owned());
    }
    Err("this is not the URL of a body store; write `file:PATH`, `s3://BUCKET/PREFIX` or `memory:`"
        .to_owned())
}

fn key_prefix(value: &DeValue<'_>) -> Result<String, String> {
    let text = string(value)?;
    KeyScheme::raw(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn deployment(value: &DeValue<'_>) -> Result<String, String> {
    short_name(value, "a deployment name")
}

fn policy_version(value: &DeValue<'_>) -> Result<String, String> {
    short_name(value, "a policy version")
}

fn short_name(value: &DeValue<'_>, what: &str) -> Result<String, String> {
    const MAX_BYTES: usize = 128;
    let text = string(value)?;
    if text.is_empty() || text.len() > MAX_BYTES || text.chars().any(char::is_control) {
        return Err(format!("{what} has 1 to {MAX_BYTES} bytes and no control characters"));
    }
    Ok(text.to_owned())
}
