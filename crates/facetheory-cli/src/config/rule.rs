//! A rule of `[routes]`: how the paths that match its pattern are cached.

use std::time::Duration;

use facetheory::protocol::LeaseTerms;
use facetheory::{History, Mode, Policy, Query, Route, TenantFrom};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use toml::de::{DeTable, DeValue};

use super::section::{RULE, Section, Source};
use super::units::format_duration;
use super::value::{boolean, decimal, describe, duration, duration_from, number, string, strings};

/// The most versions of a page that can be retained.
const MAX_VERSIONS: u64 = 10_000;
/// The upper bound of `early_refresh`: beyond it every request would regenerate the page.
const MAX_EAGERNESS: f64 = 100.0;
/// How long a page is stored that is no longer used, by default.
const DEFAULT_RETENTION: Duration = Duration::from_secs(30 * 86_400);
/// The rows of tags outlive pages that are stored for so long.
const MAX_RETENTION: Duration = Duration::from_secs(90 * 86_400);
/// Keys that `cache = "origin"` excludes, since the headers of the origin decide.
const DECIDED_BY_ORIGIN: &str = "isr ignore_origin_cache_control stale_while_revalidate blocking stale_if_error \
                                 negative_ttl headers cookies versions lease render_timeout wait_timeout early_refresh";
const PASS_THROUGH: &str =
    "to pass paths through without caching, write `false` instead of the table: \"/cart/**\" = false";

/// The effective settings of a rule: its own keys, those of the broader rules it refines, and defaults.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    /// The source of the freshness lifetime; `None` if neither this rule nor a broader one sets it.
    pub(crate) freshness: Option<FreshnessSource>,
    /// How pages are regenerated, if the rule has an interval.
    policy: Policy,
    ignore_origin_cache_control: bool,
    query: Query,
    headers: Vec<String>,
    cookies: Vec<String>,
    /// `None` forwards all.
    forward_headers: Option<Vec<String>>,
    tags: Vec<String>,
    tenant: Option<TenantFrom>,
}

/// The source of the freshness lifetime of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreshnessSource {
    /// The rule: `isr = "60s"`.
    Interval,
    /// The headers of the origin: `cache = "origin"`.
    Origin,
}

impl Default for Rule {
    fn default() -> Self {
        let mut policy = Policy::every(Duration::ZERO);
        policy.lease = Some(LeaseTerms::default().duration);
        policy.history = History::Latest;
        policy.retention = Some(DEFAULT_RETENTION);
        Rule {
            freshness: None,
            policy,
            ignore_origin_cache_control: false,
            query: Query::default(),
            headers: Vec::new(),
            cookies: Vec::new(),
            forward_headers: None,
            tags: Vec::new(),
            tenant: None,
        }
    }
}

impl Rule {
    /// Overrides the settings with the keys of a table, and reports its errors.
    pub(crate) fn apply<'a>(&mut self, source: &'a Source, table: &'a DeTable<'a>) {
        let mut section = Section::new(source, RULE, Some(table));
        let interval = section.read("isr", interval);
        section.read("cache", cache);
        // An interval and `cache = "origin"` replace each other. A key with an invalid value counts as set: its error is
        // reported, and must not cause another one for every rule that refines this one.
        if section.has("cache") {
            self.freshness = Some(FreshnessSource::Origin);
        } else if section.has("isr") && interval != Some(None) {
            self.freshness = Some(FreshnessSource::Interval);
            self.policy.revalidate = interval.flatten().unwrap_or_default();
        }
        let policy = &mut self.policy;
        section.set("ignore_origin_cache_control", &mut self.ignore_origin_cache_control, boolean);
        apply_stale_while_revalidate(policy, &mut section);
        section.set("stale_if_error", &mut policy.stale_if_error, stale_limit);
        section.set("negative_ttl", &mut policy.negative_ttl, whole_seconds);
        section.set("tags", &mut self.tags, strings);
        section.set("query", &mut self.query, query);
        section.set("headers", &mut self.headers, strings);
        section.set("cookies", &mut self.cookies, strings);
        section.set("forward_headers", &mut self.forward_headers, forward_headers);
        if let Some(versions) = section.read("versions", versions) {
            policy.versions = (versions > 0).then_some(versions);
            policy.history = if versions == 0 { History::Latest } else { History::Versions };
        }
        section.set("retention", &mut policy.retention, |value| retention(value).map(Some));
        section.set("lease", &mut policy.lease, |value| lease(value).map(Some));
        section.set("render_timeout", &mut policy.render_timeout, duration_from(Duration::from_millis(1)));
        section.set("wait_timeout", &mut policy.wait, duration);
        section.set("early_refresh", &mut policy.early_refresh, eagerness);
        section.set("tenant", &mut self.tenant, |value| tenant(source, value));
        if section.has("cache") {
            for key in DECIDED_BY_ORIGIN.split(' ').filter(|key| section.has(key)) {
                let message = format!(
                    "`{key}` and `cache = \"origin\"` exclude each other: the headers of the origin decide; remove one of them"
                );
                source.report(section.position(key), message);
            }
        }
        if interval.flatten().is_some() && section.has("forward_headers") {
            let message = "`isr` and `forward_headers` exclude each other: only headers that are part of the cache key reach the \
                           origin; list them in `headers`";
            source.report(section.position("forward_headers"), message);
        }
        section.finish();
    }

    /// Returns how pages are regenerated, or `None` if the headers of the origin decide.
    pub(crate) fn policy(&self) -> Option<&Policy> {
        (self.freshness == Some(FreshnessSource::Interval)).then_some(&self.policy)
    }

    /// Returns the route of these pages for one pattern.
    pub(crate) fn route(&self, pattern: String) -> Route {
        let mut route = match self.policy() {
            Some(policy) => {
                // The interval of a rule overrides the lifetime in the origin's headers.
                let route = Route::new(pattern, *policy).fixed_interval();
                route.headers(&self.headers).cookies(self.cookies.iter().cloned())
            }
            None => {
                let route = Route::follow_origin(pattern).retention(self.retention());
                match &self.forward_headers {
                    Some(names) => route.forward_headers(names),
                    None => route,
                }
            }
        };
        if self.policy().is_some() && self.ignore_origin_cache_control {
            route = route.overriding();
        }
        if let Some(tenant) = &self.tenant {
            route = route.tenant(tenant.clone());
        }
        route.query(self.query.clone()).tags(self.tags.iter().cloned())
    }

    /// Returns how long a page is stored that is no longer used.
    fn retention(&self) -> Duration {
        self.policy.retention.unwrap_or(DEFAULT_RETENTION)
    }

    /// Returns the source of the tenant, if pages belong to tenants.
    pub(crate) fn tenant(&self) -> Option<&TenantFrom> {
        self.tenant.as_ref()
    }

    /// Returns the request header that names the tenant, if there is one.
    pub(crate) fn tenant_header(&self) -> Option<&str> {
        match &self.tenant {
            Some(TenantFrom::TrustedHeader(name)) => Some(name),
            _ => None,
        }
    }
}

/// Writes all settings as a table of `[routes]`.
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.policy() {
            None => {
                map.serialize_entry("cache", "origin")?;
                match &self.forward_headers {
                    Some(names) => map.serialize_entry("forward_headers", names)?,
                    None => map.serialize_entry("forward_headers", &true)?,
                }
            }
            Some(policy) => {
                let swr = match policy.mode {
                    Mode::Blocking => Some(Duration::ZERO),
                    _ => policy.stale_while_revalidate,
                };
                map.serialize_entry("isr", &format_duration(policy.revalidate))?;
                map.serialize_entry("ignore_origin_cache_control", &self.ignore_origin_cache_control)?;
                map.serialize_entry("stale_while_revalidate", &StaleLimit(swr))?;
                map.serialize_entry("stale_if_error", &StaleLimit(policy.stale_if_error))?;
                map.serialize_entry("negative_ttl", &format_duration(policy.negative_ttl))?;
                map.serialize_entry("headers", &self.headers)?;
                map.serialize_entry("cookies", &self.cookies)?;
                map.serialize_entry("versions", &policy.versions.unwrap_or(0))?;
                map.serialize_entry("lease", &format_duration(policy.lease.unwrap_or_default()))?;
                map.serialize_entry("render_timeout", &format_duration(policy.render_timeout))?;
                map.serialize_entry("wait_timeout", &format_duration(policy.wait))?;
                map.serialize_entry("early_refresh", &policy.early_refresh.unwrap_or(0.0))?;
            }
        }
        map.serialize_entry("retention", &format_duration(self.retention()))?;
        map.serialize_entry("tags", &self.tags)?;
        match &self.query {
            Query::Only(names) => map.serialize_entry("query", names)?,
            query => map.serialize_entry("query", &(*query == Query::All))?,
        }
        let tenant = match &self.tenant {
            Some(TenantFrom::Subdomain(domain)) => Some(("subdomain", domain)),
            Some(TenantFrom::Param(name)) => Some(("param", name)),
            Some(TenantFrom::TrustedHeader(name)) => Some(("header", name)),
            _ => None,
        };
        match tenant {
            Some((key, value)) => {
                map.serialize_entry("tenant", &std::collections::BTreeMap::from([(key, value)]))?
            }
            None => map.serialize_entry("tenant", &false)?,
        }
        map.end()
    }
}

/// How long a stale page may be served: `true` without a limit (`None`), `false` not at all (zero), or a duration.
struct StaleLimit(Option<Duration>);

impl Serialize for StaleLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => serializer.serialize_bool(true),
            Some(Duration::ZERO) => serializer.serialize_bool(false),
            Some(limit) => serializer.serialize_str(&format_duration(limit)),
        }
    }
}

fn stale_limit(value: &DeValue<'_>) -> Result<Option<Duration>, String> {
    match value {
        DeValue::Boolean(true) => Ok(None),
        DeValue::Boolean(false) => Ok(Some(Duration::ZERO)),
        other => duration(other).map(Some),
    }
}

/// `blocking = true` means `stale_while_revalidate = false`, and the reverse.
fn apply_stale_while_revalidate(policy: &mut Policy, section: &mut Section<'_>) {
    let swr = section.read("stale_while_revalidate", stale_limit);
    let blocking = section.read("blocking", boolean);
    let is_never = |limit: Option<Duration>| limit == Some(Duration::ZERO);
    if let (Some(swr), Some(blocking)) = (swr, blocking)
        && blocking != is_never(swr)
    {
        let message = "`blocking` and `stale_while_revalidate` contradict each other; remove one of them";
        section.source.report(section.position("blocking"), message);
    }
    let blocking = blocking.map(|blocking| blocking.then_some(Duration::ZERO));
    if let Some(limit) = swr.or(blocking) {
        policy.mode = if is_never(limit) { Mode::Blocking } else { Mode::Swr };
        policy.stale_while_revalidate = limit.filter(|limit| !limit.is_zero());
    }
}

/// The interval of `isr`; `true` inherits the interval of the broader rule.
fn interval(value: &DeValue<'_>) -> Result<Option<Duration>, String> {
    match value {
        DeValue::Boolean(true) => Ok(None),
        DeValue::Boolean(false) => Err(PASS_THROUGH.to_owned()),
        other => whole_seconds(other).map(Some),
    }
}

fn cache(value: &DeValue<'_>) -> Result<(), String> {
    match value {
        DeValue::String(text) if text == "origin" => Ok(()),
        DeValue::Boolean(false) => Err(PASS_THROUGH.to_owned()),
        other => Err(format!(
            "{} is not allowed; write \"origin\" to follow the headers of the origin, or isr = \"60s\" instead",
            describe(other)
        )),
    }
}

/// A duration as rows store it.
fn whole_seconds(value: &DeValue<'_>) -> Result<Duration, String> {
    let duration = duration(value)?;
    if duration.subsec_nanos() == 0 {
        return Ok(duration);
    }
    Err(format!("{} is not a whole number of seconds", describe(value)))
}

fn lease(value: &DeValue<'_>) -> Result<Duration, String> {
    duration_from(Duration::from_secs(1))(value)?;
    whole_seconds(value)
}

/// Returns why requests may give up before the lease of a process that died is free, if they do. The expiry of a lease rounds up
/// to whole seconds.
pub(super) fn lease_warning(policy: &Policy) -> Option<String> {
    const ROUNDING: Duration = Duration::from_secs(1);
    let (lease, wait) = (policy.lease?, policy.wait);
    (lease.saturating_add(ROUNDING) > wait).then(|| {
        format!(
            "`lease` ({}) is not at least a second shorter than `wait_timeout` ({}): if a process dies while it renders a \
             page, requests for the page give up before another process may take over; shorten `lease` or extend \
             `wait_timeout`",
            format_duration(lease),
            format_duration(wait)
        )
    })
}

fn retention(value: &DeValue<'_>) -> Result<Duration, String> {
    let retention = duration_from(Duration::from_secs(1))(value)?;
    if retention > MAX_RETENTION {
        return Err(format!(
            "{} is too long; the maximum is {}",
            describe(value),
            format_duration(MAX_RETENTION)
        ));
    }
    whole_seconds(value)
}

fn query(value: &DeValue<'_>) -> Result<Query, String> {
    match value {
        DeValue::Boolean(true) => Ok(Query::All),
        DeValue::Boolean(false) => Ok(Query::None),
        DeValue::Array(_) => strings(value).map(Query::Only),
        other => Err(format!(
            "{} is not allowed; list the parameters that are part of the cache key, such as [\"page\"], or write `true` \
             for the whole query or `false` for none of it",
            describe(other)
        )),
    }
}

fn forward_headers(value: &DeValue<'_>) -> Result<Option<Vec<String>>, String> {
    match value {
        DeValue::Boolean(true) => Ok(None),
        DeValue::Array(_) => strings(value).map(Some),
        other => Err(format!(
            "{} is not allowed; list the headers that reach the origin, or write `true` for all of them",
            describe(other)
        )),
    }
}

fn versions(value: &DeValue<'_>) -> Result<usize, String> {
    let versions = number(0, MAX_VERSIONS)(value)?;
    usize::try_from(versions).map_err(|error| error.to_string())
}

/// The factor of early refresh; `None` if it is disabled.
fn eagerness(value: &DeValue<'_>) -> Result<Option<f64>, String> {
    let number: Option<f64> = match value {
        DeValue::Boolean(enabled) => Some(if *enabled { 1.0 } else { 0.0 }),
        value => decimal(value),
    };
    // The range does not contain NaN.
    let number = number.filter(|number| (0.0..=MAX_EAGERNESS).contains(number));
    number.map(|number| Some(number).filter(|number| *number > 0.0)).ok_or_else(|| {
        let value = describe(value);
        format!("{value} is not allowed; write `true`, `false`, or a number from 0 to {MAX_EAGERNESS}; `true` means 1")
    })
}

/// The source of the tenant; `None` if pages belong to no tenant.
fn tenant<'a>(source: &'a Source, value: &'a DeValue<'a>) -> Result<Option<TenantFrom>, String> {
    const FORMS: &str =
        "write { subdomain = \"example.com\" }, { param = \"tenant\" } or { header = \"x-tenant-id\" }";
    let table = match value {
        DeValue::Boolean(false) => return Ok(None),
        DeValue::Table(table) => table,
        other => return Err(format!("{} is not allowed; {FORMS}, or `false`", describe(other))),
    };
    let mut section = Section::new(source, "`tenant`", Some(table));
    let mut read = |key| section.read(key, |value| string(value).map(str::to_owned));
    let sources = [
        read("subdomain").map(TenantFrom::Subdomain),
        read("param").map(TenantFrom::Param),
        read("header").map(TenantFrom::TrustedHeader),
    ];
    section.finish();
    let mut sources = sources.into_iter().flatten();
    match (sources.next(), sources.next()) {
        (Some(from), None) => Ok(Some(from)),
        _ => Err(format!("name exactly one source of the tenant; {FORMS}")),
    }
}
