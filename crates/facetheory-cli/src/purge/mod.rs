//! Purge protocols: the requests that plugins of CMSs and frameworks send to a cache in order to invalidate pages.
//!
//! A [`dialect`] turns a request into a [`Purge`], and [`execute`] performs it by the operations of the engine. [`access`] decides who
//! may purge. [`listener`] responds to purges among the requests of clients, and `admin::purge` on
//! the admin listener, where the [`api`]s of CDNs are too.

mod access;
mod api;
mod dialect;
mod execute;
mod listener;
mod pattern;
mod tenants;
#[cfg(test)]
mod tests;

use facetheory::InvalidationMode;

pub(crate) use access::{Access, is_of_program};
pub(crate) use api::Endpoint;
pub(crate) use dialect::{host, is_purge_method};
pub(crate) use execute::Executor;
pub(crate) use listener::{Failed, PurgeRequest, Purged, Purges, denied, new_id, respond};

use crate::config::Dialect;

/// Which pages a request invalidates, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purge {
    pub(crate) scope: Scope,
    pub(crate) mode: InvalidationMode,
}

/// The pages that a request invalidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The page at this path and query of a host, with all variants.
    Url {
        host: Option<String>,
        target: String,
    },
    /// The pages with one of these tags.
    Tags(Vec<String>),
    /// The pages at or below this path, of all hosts.
    Prefix(String),
    Everything,
}

/// A request in the protocol of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) dialect: Dialect,
    pub(crate) purge: Result<Purge, Refusal>,
    /// It was not understood, so more is invalidated than it may mean.
    pub(crate) is_widened: bool,
}

impl Parsed {
    /// The host of the page, if it is about one page.
    pub(crate) fn host(&self) -> Option<&str> {
        match &self.purge {
            Ok(Purge { scope: Scope::Url { host, .. }, .. }) => host.as_deref(),
            _ => None,
        }
    }
}

/// Why a request of a product is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It does not say which pages.
    Incomplete,
    /// A URL in it is malformed.
    MalformedUrl,
    /// It was not understood, and [`OnUnknown::Refuse`](crate::config::OnUnknown) is set.
    Unknown,
    /// It is too long, and `OnUnknown::Refuse` is set.
    TooLong,
    /// It is about pages of tenants, and does not say which tenant.
    UnknownTenant,
    /// It is about all pages of a host, and `OnUnknown::Refuse` is set.
    OfHost,
}

impl Refusal {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Refusal::Incomplete => {
                "the request names no tags; send them in the header that the documentation of your plugin names"
            }
            Refusal::MalformedUrl => "a URL is malformed; write it as https://www.example.com/path",
            Refusal::TooLong => {
                "the request names too many tags or pages; send several requests, or set `on_unknown = \"widen\"` in [purge]"
            }
            Refusal::UnknownTenant => {
                "the request does not say whose pages: routes have tenants, and its host and path name none; send POST /api/v1/invalidate \
                 with `tenant` to the admin listener"
            }
            Refusal::OfHost => {
                "pages cannot be purged by their host; name tags, URLs or prefixes, or set `on_unknown = \"widen\"` in [purge]"
            }
            Refusal::Unknown => {
                "the pattern is of no known form; name tags or a path, or set `on_unknown = \"widen\"` in [purge]"
            }
        }
    }
}

impl Scope {
    /// The name for logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Scope::Url { .. } => "url",
            Scope::Tags(_) => "tags",
            Scope::Prefix(_) => "prefix",
            Scope::Everything => "everything",
        }
    }

    /// The pages in a text for logs, which does not get long.
    fn text(&self) -> String {
        const MAX_NAMES: usize = 10;
        match self {
            Scope::Url { host, target } => {
                // The query may contain secrets.
                let path = target.split('?').next().unwrap_or_default();
                format!("{}{path}", host.as_deref().unwrap_or_default())
            }
            Scope::Tags(tags) if tags.len() > MAX_NAMES => {
                format!("{} and {} more", tags[..MAX_NAMES].join(" "), tags.len() - MAX_NAMES)
            }
            Scope::Tags(tags) => tags.join(" "),
            Scope::Prefix(path) => path.clone(),
            Scope::Everything => String::new(),
        }
    }
}

/// The names in a list, which products separate by commas, spaces or both.
pub(crate) fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(|char: char| char == ',' || char.is_whitespace()).filter(|name| !name.is_empty())
}
