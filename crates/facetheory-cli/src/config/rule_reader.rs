//! The tables of `[routes]`, read.

use std::time::Duration;

use facetheory::{Query, TenantFrom};
use toml::de::DeValue;

use super::rule::{Cache, Grace, Interval, Settings, Tenancy};
use super::section::{RULE, Section, Source};
use super::value::{duration, duration_from, names, number, text, told, yes_or_no};

/// The most versions that are kept of a page.
const MAX_VERSIONS: u64 = 10_000;
/// The most eager early refresh: beyond it a page would be renewed at every visit.
const MAX_EAGERNESS: f64 = 100.0;
/// The shortest time that a render, and a lease, may have.
const SECOND: Duration = Duration::from_secs(1);

/// What a rule is: a table, or `false` for paths that are passed by.
pub(crate) fn rule<'a>(source: &'a Source, value: &'a DeValue<'a>) -> Result<Option<Settings>, String> {
    match value {
        DeValue::Boolean(false) => Ok(None),
        DeValue::Table(table) => Ok(Some(settings(Section::new(source, RULE, Some(table))))),
        DeValue::String(interval) => {
            Err(format!("a rule is a table or `false`; write {{ isr = \"{interval}\" }}"))
        }
        other => Err(format!(
            "{} is no rule; write a table such as {{ isr = \"60s\" }}, or `false` to pass these paths by",
            told(other)
        )),
    }
}

fn settings(mut section: Section<'_>) -> Settings {
    let settings = Settings {
        // One that is wrong is told once, and not as missing, too, here and in every rule that refines this one.
        isr: section.read("isr", |value| Ok(interval(value))).map(|read| match read {
            Ok(interval) => interval,
            Err(fault) => {
                section.source.fault(section.place("isr"), format!("`isr`: {fault}"));
                Interval::Every(Duration::ZERO)
            }
        }),
        cache: section.read("cache", |value| Ok(cache(value))).map(|read| match read {
            Ok(cache) => cache,
            Err(fault) => {
                section.source.fault(section.place("cache"), format!("`cache`: {fault}"));
                Cache::Origin
            }
        }),
        overrides: section.read("ignore_origin_cache_control", yes_or_no),
        stale_while_revalidate: renewal(&mut section),
        stale_if_error: section.read("stale_if_error", grace),
        negative_ttl: section.read("negative_ttl", whole_seconds),
        tags: section.read("tags", names),
        query: section.read("query", query),
        headers: section.read("headers", names),
        cookies: section.read("cookies", names),
        versions: section.read("versions", versions),
        lease: section.read("lease", |value| duration_from(SECOND)(value).and_then(|_| whole_seconds(value))),
        render_timeout: section.read("render_timeout", duration_from(Duration::from_millis(1))),
        wait_timeout: section.read("wait_timeout", duration),
        early_refresh: section.read("early_refresh", eagerness),
        tenant: tenancy(&mut section),
    };
    if settings.cache.is_some() {
        for key in SAID_BY_HEADERS.into_iter().filter(|key| !section.lacks(&[key])) {
            let fault = format!(
                "`{key}` and `cache = \"origin\"` exclude each other: the origin's own headers say it; leave out one of them"
            );
            section.source.fault(section.place(key), fault);
        }
    }
    section.finish();
    settings
}

/// What a rule cannot say of pages whose origin is followed.
const SAID_BY_HEADERS: [&str; 13] = [
    "isr",
    "ignore_origin_cache_control",
    "stale_while_revalidate",
    "blocking",
    "stale_if_error",
    "negative_ttl",
    "headers",
    "cookies",
    "versions",
    "lease",
    "render_timeout",
    "wait_timeout",
    "early_refresh",
];

fn cache(value: &DeValue<'_>) -> Result<Cache, String> {
    match value {
        DeValue::String(text) if text == "origin" => Ok(Cache::Origin),
        DeValue::Boolean(false) => {
            Err("to pass paths by, write `false` instead of the whole table: \"/cart/**\" = false".to_owned())
        }
        other => Err(format!(
            "{} is not understood; write \"origin\" to follow the origin's own headers, or isr = \"60s\" instead",
            told(other)
        )),
    }
}

/// `stale_while_revalidate` and `blocking` say one thing in two ways, and may not contradict each other.
fn renewal(section: &mut Section<'_>) -> Option<Grace> {
    let stale_while_revalidate = section.read("stale_while_revalidate", grace);
    let blocking = section.read("blocking", yes_or_no);
    match (stale_while_revalidate, blocking) {
        (stale_while_revalidate, None) => stale_while_revalidate,
        (None, Some(true)) => Some(Grace::Never),
        (None, Some(false)) => Some(Grace::Unlimited),
        (Some(stale_while_revalidate), Some(blocking)) => {
            if blocking != (stale_while_revalidate == Grace::Never) {
                let place = section.place("blocking");
                let fault = "`blocking` and `stale_while_revalidate` contradict each other; say one of them: visitors of a stale page \
                             either wait for the new one, or do not";
                section.source.fault(place, fault);
            }
            Some(stale_while_revalidate)
        }
    }
}

fn interval(value: &DeValue<'_>) -> Result<Interval, String> {
    match value {
        DeValue::Boolean(true) => Ok(Interval::Inherited),
        DeValue::Boolean(false) => {
            Err("to pass paths by, write `false` instead of the whole table: \"/cart/**\" = false".to_owned())
        }
        other => whole_seconds(other).map(Interval::Every),
    }
}

/// A duration that the table can tell.
fn whole_seconds(value: &DeValue<'_>) -> Result<Duration, String> {
    let duration = duration(value)?;
    if duration.subsec_nanos() == 0 {
        return Ok(duration);
    }
    Err(format!("{} is not a number of whole seconds, in which pages tell their times", told(value)))
}

fn grace(value: &DeValue<'_>) -> Result<Grace, String> {
    Ok(match value {
        DeValue::Boolean(true) => Grace::Unlimited,
        DeValue::Boolean(false) => Grace::Never,
        other => match duration(other)? {
            Duration::ZERO => Grace::Never,
            limit => Grace::For(limit),
        },
    })
}

fn query(value: &DeValue<'_>) -> Result<Query, String> {
    match value {
        DeValue::Boolean(true) => Ok(Query::All),
        DeValue::Boolean(false) => Ok(Query::None),
        DeValue::Array(_) => names(value).map(Query::Only),
        other => Err(format!(
            "{} is not understood; write the parameters that tell pages apart, such as [\"page\"], or `true` for all \
             of the query, or `false` for none of it",
            told(other)
        )),
    }
}

fn versions(value: &DeValue<'_>) -> Result<usize, String> {
    let versions = number(0, MAX_VERSIONS)(value)?;
    usize::try_from(versions).map_err(|error| error.to_string())
}

fn eagerness(value: &DeValue<'_>) -> Result<f64, String> {
    let number = match value {
        DeValue::Boolean(true) => Some(1.0),
        DeValue::Boolean(false) => Some(0.0),
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Integer(number) => number.as_str().parse().ok().filter(|_| number.radix() == 10),
        _ => None,
    };
    // What is no number at all is within no bounds.
    number.filter(|number| (0.0..=MAX_EAGERNESS).contains(number)).map(|number: f64| number.abs()).ok_or_else(
        || {
            format!(
                "{} is not allowed; write `true`, `false`, or a number from 0 to {MAX_EAGERNESS}; 1 is usual",
                told(value)
            )
        },
    )
}

fn tenancy(section: &mut Section<'_>) -> Option<Tenancy> {
    const FORMS: &str =
        "write { subdomain = \"example.com\" }, { param = \"tenant\" } or { header = \"x-tenant-id\" }";
    let source = section.source;
    let (value, span) = section.value("tenant")?;
    let table = match value {
        DeValue::Boolean(false) => return Some(Tenancy::None),
        DeValue::Table(table) => table,
        other => {
            source.fault(span, format!("`tenant`: {} is not understood; {FORMS}, or `false`", told(other)));
            return None;
        }
    };
    let mut section = Section::new(source, "`tenant`", Some(table));
    let mut read = |key| section.read(key, |value| text(value).map(str::to_owned));
    let ways = [
        read("subdomain").map(TenantFrom::Subdomain),
        read("param").map(TenantFrom::Param),
        read("header").map(TenantFrom::TrustedHeader),
    ];
    section.finish();
    let mut ways = ways.into_iter().flatten();
    match (ways.next(), ways.next()) {
        (Some(way), None) => Some(Tenancy::From(way)),
        _ => {
            source.fault(span, format!("`tenant`: it must say one way to tell tenants apart; {FORMS}"));
            None
        }
    }
}
