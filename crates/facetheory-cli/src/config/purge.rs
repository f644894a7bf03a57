//! `[purge]`: who may invalidate pages by the purge protocols of other products.

use std::path::PathBuf;

use facetheory::InvalidationMode;
use serde::Serialize;

use super::network::Network;
use super::networks;
use super::section::{Section, table};
use super::value::{header_name, keyword, list_of, optional, path};

table! {
    /// The purge protocols.
    Purge {
        /// The peers that may purge; nobody by default.
        from: Vec<Network> = Vec::new(), networks;
        /// The file with the token that they must send.
        token_file: Option<PathBuf> = None, optional(path);
        /// A header in which the token may be sent, besides those of the known products.
        token_header: Option<String> = None, optional(header_name);
        /// The protocols that are understood.
        dialects: Vec<Dialect> = Dialect::DEFAULT.to_vec(), list_of(keyword);
        /// How `PURGE` of a URL invalidates.
        mode: PurgeMode = PurgeMode::Hard, keyword;
        /// The action for a pattern of no known form.
        on_unknown: OnUnknown = OnUnknown::Widen, keyword;
    }
    check
}

impl Purge {
    fn check(&self, section: &Section<'_>) {
        for (key, is_set) in
            [("token_file", self.token_file.is_some()), ("token_header", self.token_header.is_some())]
        {
            if is_set && self.from.is_empty() {
                let message = format!("`{key}` has no effect without `from`, which lists who may purge");
                section.source.report(section.position(key), &message);
            }
        }
        if self.token_header.is_some() && self.token_file.is_none() && !self.from.is_empty() {
            let message = "`token_header` needs a `token_file`";
            section.source.report(section.position("token_header"), message);
        }
    }
}

/// A family of requests that purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Dialect {
    /// `PURGE` of a URL, of the pages below it, or of everything.
    Url,
    /// `PURGE`, `PURGEKEYS` and `PURGETAGS` with tags in a header.
    Tags,
    /// `BAN`, and `PURGE` of Magento, with patterns in a header.
    Ban,
    /// `GET` with `no-cache`.
    Refresh,
    /// `GET /purge/path`.
    NginxHelper,
    /// The HTTP API of Fastly, on the admin listener.
    Fastly,
    /// The HTTP API of Cloudflare, on the admin listener.
    Cloudflare,
    /// The HTTP API of Vercel, on the admin listener.
    Vercel,
}

impl Dialect {
    /// All but the one that takes paths away from the site.
    const DEFAULT: [Dialect; 7] = [
        Dialect::Url,
        Dialect::Tags,
        Dialect::Ban,
        Dialect::Refresh,
        Dialect::Fastly,
        Dialect::Cloudflare,
        Dialect::Vercel,
    ];

    /// The name in metrics and logs, which is that in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Dialect::Url => "url",
            Dialect::Tags => "tags",
            Dialect::Ban => "ban",
            Dialect::Refresh => "refresh",
            Dialect::NginxHelper => "nginx-helper",
            Dialect::Fastly => "fastly",
            Dialect::Cloudflare => "cloudflare",
            Dialect::Vercel => "vercel",
        }
    }
}

/// Whether pages that were purged may be served while they are regenerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PurgeMode {
    Hard,
    Soft,
}

impl From<PurgeMode> for InvalidationMode {
    fn from(mode: PurgeMode) -> Self {
        match mode {
            PurgeMode::Hard => InvalidationMode::Hard,
            PurgeMode::Soft => InvalidationMode::Soft,
        }
    }
}

/// The action for a purge that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnUnknown {
    /// Everything is invalidated.
    Widen,
    /// It is refused with 400.
    Refuse,
}
