//! A rule: what it says of its pages, as written and once all that it refines is put together.

use std::time::Duration;

use facetheory::protocol::LeaseTerms;
use facetheory::{History, Mode, Policy, Query, Route, TenantFrom};
use serde::{Serialize, Serializer};

use super::duration;

/// What a table of `[routes]` says; what it leaves out is inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Settings {
    /// For how long a render is fresh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) isr: Option<Interval>,
    /// Who says for how long instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<Cache>,
    /// Whether pages are kept although their headers forbid it.
    #[serde(rename = "ignore_origin_cache_control", skip_serializing_if = "Option::is_none")]
    pub(crate) overrides: Option<bool>,
    /// Whether, and for how long, a stale page is served while it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stale_while_revalidate: Option<Grace>,
    /// Whether, and for how long, a stale page is served because it cannot be renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stale_if_error: Option<Grace>,
    /// For how long a page is fresh that says that there is none.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_duration")]
    pub(crate) negative_ttl: Option<Duration>,
    /// Tags that all its pages have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tags: Option<Vec<String>>,
    /// Which parameters of the query tell its pages apart.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_query")]
    pub(crate) query: Option<Query>,
    /// Which headers do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) headers: Option<Vec<String>>,
    /// Which cookies do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cookies: Option<Vec<String>>,
    /// How many versions are kept besides the one that is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) versions: Option<usize>,
    /// How long a lease is held unless it is refreshed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_duration")]
    pub(crate) lease: Option<Duration>,
    /// How long a render may take.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_duration")]
    pub(crate) render_timeout: Option<Duration>,
    /// How long a visitor waits for a renewal by another process.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_duration")]
    pub(crate) wait_timeout: Option<Duration>,
    /// How eagerly a page that is often visited is renewed before it goes stale; 0 for not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) early_refresh: Option<f64>,
    /// How its tenants are told apart, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<Tenancy>,
}

/// For how long a render is fresh: `"60s"`, or `true` for as long as the rule says that it refines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    Inherited,
    Every(Duration),
}

/// Who says for how long pages are kept, where no interval does: `cache = "origin"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cache {
    /// The origin, by its own headers.
    Origin,
}

/// For how long a stale page is good enough: `true`, `"1h"` or `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grace {
    Unlimited,
    For(Duration),
    Never,
}

/// How tenants are told apart: `false`, or for example `{ header = "x-tenant-id" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tenancy {
    None,
    From(TenantFrom),
}

/// How pages are renewed and told apart, with nothing left open.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    /// How they are renewed, and what visitors get meanwhile; none where the origin says it by its own headers.
    pub(crate) policy: Option<Policy>,
    overrides: bool,
    query: Query,
    headers: Vec<String>,
    cookies: Vec<String>,
    tags: Vec<String>,
    tenant: Option<TenantFrom>,
}

impl Settings {
    /// This, refined by what a more specific rule says.
    pub(crate) fn refined(self, by: Settings) -> Settings {
        // An interval and the origin's headers exclude each other, so that the more specific word ends the other.
        let (isr, cache) = match (by.isr, by.cache) {
            (Some(Interval::Every(_)), cache) | (_, cache @ Some(_)) => (by.isr, cache),
            (interval, None) => (self.isr.or(interval), self.cache),
        };
        Settings {
            isr,
            cache,
            overrides: by.overrides.or(self.overrides),
            stale_while_revalidate: by.stale_while_revalidate.or(self.stale_while_revalidate),
            stale_if_error: by.stale_if_error.or(self.stale_if_error),
            negative_ttl: by.negative_ttl.or(self.negative_ttl),
            tags: by.tags.or(self.tags),
            query: by.query.or(self.query),
            headers: by.headers.or(self.headers),
            cookies: by.cookies.or(self.cookies),
            versions: by.versions.or(self.versions),
            lease: by.lease.or(self.lease),
            render_timeout: by.render_timeout.or(self.render_timeout),
            wait_timeout: by.wait_timeout.or(self.wait_timeout),
            early_refresh: by.early_refresh.or(self.early_refresh),
            tenant: by.tenant.or(self.tenant),
        }
    }

    /// The rule that this is, if it says how often pages are renewed, or who does.
    pub(crate) fn resolved(self) -> Option<Rule> {
        let policy = match (self.cache, self.isr) {
            (Some(Cache::Origin), _) => None,
            (None, Some(Interval::Every(interval))) => Some(self.policy(interval)),
            (None, None | Some(Interval::Inherited)) => return None,
        };
        Some(Rule {
            overrides: policy.is_some() && self.overrides.unwrap_or(false),
            query: self.query.unwrap_or_default(),
            headers: self.headers.filter(|_| policy.is_some()).unwrap_or_default(),
            cookies: self.cookies.filter(|_| policy.is_some()).unwrap_or_default(),
            tags: self.tags.unwrap_or_default(),
            tenant: self.tenant.and_then(|tenancy| match tenancy {
                Tenancy::None => None,
                Tenancy::From(from) => Some(from),
            }),
            policy,
        })
    }

    fn policy(&self, interval: Duration) -> Policy {
        let mut policy = Policy::every(interval);
        match self.stale_while_revalidate {
            None | Some(Grace::Unlimited) => {}
            Some(Grace::For(limit)) => policy.stale_while_revalidate = Some(limit),
            Some(Grace::Never) => policy.mode = Mode::Blocking,
        }
        policy.stale_if_error = match self.stale_if_error {
            None | Some(Grace::Unlimited) => None,
            Some(Grace::For(limit)) => Some(limit),
            Some(Grace::Never) => Some(Duration::ZERO),
        };
        let versions = self.versions.unwrap_or(0);
        policy.history = if versions == 0 { History::Latest } else { History::Versions };
        policy.wait = self.wait_timeout.unwrap_or(policy.wait);
        policy.render_timeout = self.render_timeout.unwrap_or(policy.render_timeout);
        policy.negative_ttl = self.negative_ttl.unwrap_or(policy.negative_ttl);
        policy.early_refresh = self.early_refresh.filter(|eagerness| *eagerness > 0.0);
        policy.lease = Some(self.lease.unwrap_or(LeaseTerms::default().duration));
        policy.versions = (versions > 0).then_some(versions);
        policy
    }
}

impl Rule {
    /// The route of these pages under one pattern.
    pub(crate) fn route(&self, pattern: String) -> Route {
        let route = match self.policy {
            // A rule wins over headers where both speak.
            Some(policy) => Route::new(pattern, policy)
                .fixed_interval()
                .headers(&self.headers)
                .cookies(self.cookies.iter().cloned()),
            None => Route::follow_origin(pattern),
        };
        let route = route.query(self.query.clone()).tags(self.tags.iter().cloned());
        let route = if self.overrides { route.overriding() } else { route };
        match &self.tenant {
            Some(tenant) => route.tenant(tenant.clone()),
            None => route,
        }
    }

    /// The header that names the tenant, where one does.
    pub(crate) fn tenant_header(&self) -> Option<&str> {
        match &self.tenant {
            Some(TenantFrom::TrustedHeader(name)) => Some(name),
            _ => None,
        }
    }

    /// All that it says, as it could be written.
    pub(crate) fn settings(&self) -> Settings {
        let grace = |limit: Option<Duration>| match limit {
            None => Grace::Unlimited,
            Some(Duration::ZERO) => Grace::Never,
            Some(limit) => Grace::For(limit),
        };
        let settings = Settings {
            tags: Some(self.tags.clone()),
            query: Some(self.query.clone()),
            tenant: Some(self.tenant.clone().map_or(Tenancy::None, Tenancy::From)),
            ..Settings::default()
        };
        let Some(policy) = &self.policy else { return Settings { cache: Some(Cache::Origin), ..settings } };
        Settings {
            isr: Some(Interval::Every(policy.revalidate)),
            overrides: Some(self.overrides),
            stale_while_revalidate: Some(match policy.mode {
                Mode::Swr => grace(policy.stale_while_revalidate),
                Mode::Blocking => Grace::Never,
            }),
            stale_if_error: Some(grace(policy.stale_if_error)),
            negative_ttl: Some(policy.negative_ttl),
            headers: Some(self.headers.clone()),
            cookies: Some(self.cookies.clone()),
            versions: Some(policy.versions.unwrap_or(0)),
            lease: Some(policy.lease.unwrap_or(LeaseTerms::default().duration)),
            render_timeout: Some(policy.render_timeout),
            wait_timeout: Some(policy.wait),
            early_refresh: Some(policy.early_refresh.unwrap_or(0.0)),
            ..settings
        }
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Interval::Inherited => serializer.serialize_bool(true),
            Interval::Every(interval) => serializer.serialize_str(&duration::print(*interval)),
        }
    }
}

impl Serialize for Grace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Grace::Unlimited => serializer.serialize_bool(true),
            Grace::For(limit) => serializer.serialize_str(&duration::print(*limit)),
            Grace::Never => serializer.serialize_bool(false),
        }
    }
}

impl Serialize for Tenancy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tenancy::From(TenantFrom::Subdomain(domain)) => serializer.collect_map([("subdomain", domain)]),
            Tenancy::From(TenantFrom::Param(name)) => serializer.collect_map([("param", name)]),
            Tenancy::From(TenantFrom::TrustedHeader(name)) => serializer.collect_map([("header", name)]),
            Tenancy::None | Tenancy::From(_) => serializer.serialize_bool(false),
        }
    }
}

fn some_duration<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(duration::print).serialize(serializer)
}

fn some_query<S: Serializer>(value: &Option<Query>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(Query::Only(names)) => names.serialize(serializer),
        Some(query) => serializer.serialize_bool(*query == Query::All),
        None => serializer.serialize_none(),
    }
}
