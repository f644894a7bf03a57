//! The HTTP purge APIs of Fastly, Cloudflare and Vercel, so that their clients work with another base URL.

use facetheory::InvalidationMode;
use http::header::HeaderMap;
use http::{StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};

use super::dialect::{Rules, is_soft, list_of_header};
use super::pattern::{self, UrlPattern};
use super::{Failed, Parsed, Purge, Purged, Refusal, Scope, names, new_id};
use crate::config::Dialect;

/// The most URLs, hosts and prefixes of one request. More are cheaper to invalidate by everything.
const MAX_PURGES: usize = 500;

/// An operation of one of the APIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    FastlyKeys,
    FastlyKey(String),
    FastlyAll,
    FastlyUrl(String),
    Cloudflare,
    Vercel(InvalidationMode),
}

/// The JSON of Fastly.
#[derive(Deserialize)]
struct SurrogateKeys {
    surrogate_keys: Vec<String>,
}

/// The JSON of Cloudflare: at least one of these.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PurgeCache {
    files: Vec<File>,
    tags: Vec<String>,
    hosts: Vec<String>,
    prefixes: Vec<String>,
    purge_everything: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Url(String),
    /// Its headers select a variant; all are invalidated.
    Page {
        url: String,
    },
}

/// The JSON of Vercel.
#[derive(Deserialize)]
struct EdgeTags {
    tags: OneOrMany,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Endpoint {
    /// The operation at this path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        if let Some(url) = path.strip_prefix("purge/") {
            return Some(Endpoint::FastlyUrl(url.to_owned()));
        }
        Some(match *path.split('/').collect::<Vec<_>>() {
            ["service", _, "purge"] => Endpoint::FastlyKeys,
            ["service", _, "purge", key] => Endpoint::FastlyKey(decoded(key)?),
            ["service", _, "purge_all"] => Endpoint::FastlyAll,
            ["client", "v4", "zones", _, "purge_cache"] => Endpoint::Cloudflare,
            ["v1", "edge-cache", "invalidate-by-tags"] => Endpoint::Vercel(InvalidationMode::Soft),
            ["v1", "edge-cache", "dangerously-delete-by-tags"] => Endpoint::Vercel(InvalidationMode::Hard),
            _ => return None,
        })
    }

    fn dialect(&self) -> Dialect {
        match self {
            Endpoint::FastlyKeys | Endpoint::FastlyKey(_) | Endpoint::FastlyAll | Endpoint::FastlyUrl(_) => {
                Dialect::Fastly
            }
            Endpoint::Cloudflare => Dialect::Cloudflare,
            Endpoint::Vercel(_) => Dialect::Vercel,
        }
    }

    /// The purges that a request means. `None` if the API is switched off.
    pub(crate) fn parse(
        &self,
        rules: &Rules,
        query: Option<&str>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Option<Vec<Parsed>> {
        let dialect = self.dialect();
        if !rules.dialects.contains(&dialect) {
            return None;
        }
        let mode = if is_soft(headers) { InvalidationMode::Soft } else { InvalidationMode::Hard };
        let parsed = |purge, is_widened| Parsed { dialect, purge, is_widened };
        let one = |scope, mode| vec![parsed(Ok(Purge { scope, mode }), false)];
        let tags = |tags: &[String], mode| {
            let tags = tags.iter().flat_map(|tag| names(tag)).map(str::to_owned).collect();
            vec![rules.tags(dialect, tags, mode)]
        };
        let incomplete = || vec![parsed(Err(Refusal::Incomplete), false)];
        Some(match self {
            Endpoint::FastlyKeys => match serde_json::from_slice::<SurrogateKeys>(body) {
                Ok(SurrogateKeys { surrogate_keys }) => tags(&surrogate_keys, mode),
                Err(_) => tags(&list_of_header(headers, "surrogate-key"), mode),
            },
            Endpoint::FastlyKey(key) => tags(std::slice::from_ref(key), mode),
            Endpoint::FastlyAll => one(Scope::Everything, InvalidationMode::Hard),
            Endpoint::FastlyUrl(url) => {
                let query = query.map(|query| format!("?{query}")).unwrap_or_default();
                let scope = scope_of_url(&format!("{url}{query}"));
                let purge = scope.map(|scope| Purge { scope, mode }).ok_or(Refusal::MalformedUrl);
                vec![parsed(purge, false)]
            }
            Endpoint::Vercel(mode) => match serde_json::from_slice::<EdgeTags>(body) {
                Ok(EdgeTags { tags: OneOrMany::One(text) }) => tags(&[text], *mode),
                Ok(EdgeTags { tags: OneOrMany::Many(list) }) => tags(&list, *mode),
                Err(_) => incomplete(),
            },
            Endpoint::Cloudflare => {
                let Ok(request) = serde_json::from_slice::<PurgeCache>(body) else {
                    return Some(incomplete());
                };
                let count = request.files.len() + request.prefixes.len();
                if request.purge_everything {
                    return Some(one(Scope::Everything, mode));
                }
                if !request.hosts.is_empty() {
                    return Some(vec![rules.widen(dialect, Refusal::OfHost, mode)]);
                }
                if count > MAX_PURGES {
                    return Some(vec![rules.widen(dialect, Refusal::TooLong, mode)]);
                }
                let urls = request.files.iter().map(|file| match file {
                    File::Url(url) | File::Page { url } => scope_of_url(url),
                });
                let prefixes = request.prefixes.iter().map(|prefix| Some(scope_of_prefix(prefix)));
                let purge = |scope: Option<Scope>| {
                    parsed(scope.map(|scope| Purge { scope, mode }).ok_or(Refusal::MalformedUrl), false)
                };
                let mut all: Vec<Parsed> = urls.chain(prefixes).map(purge).collect();
                if !request.tags.is_empty() || all.is_empty() {
                    all.extend(tags(&request.tags, mode));
                }
                all
            }
        })
    }

    /// The response, as clients of the API expect it.
    pub(crate) fn respond(
        &self,
        outcome: &Result<Purged, Failed>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> (StatusCode, Value) {
        match (self, outcome) {
            (Endpoint::Cloudflare, Ok(Purged)) => (
                StatusCode::OK,
                json!({ "success": true, "errors": [], "messages": [], "result": { "id": new_id() } }),
            ),
            (Endpoint::Cloudflare, Err(failed)) => {
                let errors = json!([{ "code": failed.status().as_u16(), "message": failed.text() }]);
                (
                    failed.status(),
                    json!({ "success": false, "errors": errors, "messages": [], "result": null }),
                )
            }
            (Endpoint::FastlyKeys, Ok(Purged)) => {
                let keys = serde_json::from_slice::<SurrogateKeys>(body).map(|keys| keys.surrogate_keys);
                let keys = keys.unwrap_or_else(|_| list_of_header(headers, "surrogate-key"));
                (StatusCode::OK, keys.into_iter().map(|key| (key, json!(new_id()))).collect())
            }
            (Endpoint::FastlyAll, Ok(Purged)) => (StatusCode::OK, json!({ "status": "ok" })),
            (Endpoint::FastlyKey(_) | Endpoint::FastlyUrl(_), Ok(Purged)) => {
                (StatusCode::OK, json!({ "status": "ok", "id": new_id() }))
            }
            (Endpoint::Vercel(_), Ok(Purged)) => (StatusCode::OK, json!({})),
            (Endpoint::Vercel(_), Err(failed)) => {
                (failed.status(), json!({ "error": { "code": "purge_failed", "message": failed.text() } }))
            }
            (_, Err(failed)) => (failed.status(), json!({ "msg": failed.text() })),
        }
    }
}

/// The page at a URL, with or without its scheme.
fn scope_of_url(url: &str) -> Option<Scope> {
    let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = with_scheme.split('#').next()?.parse().ok()?;
    let host = uri.authority()?.to_string();
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    Some(Scope::Url { host: Some(host), target })
}

/// The pages whose URLs begin with a host and a path.
fn scope_of_prefix(prefix: &str) -> Scope {
    let prefix = prefix.split_once("://").map_or(prefix, |(_, rest)| rest);
    let path = prefix.find('/').map_or("", |start| &prefix[start..]);
    // Cloudflare compares whole segments: `/foo` covers `/foo` and `/foo/bar`.
    match pattern::below(path, true) {
        UrlPattern::Below(path) => Scope::Prefix(path),
        UrlPattern::All => Scope::Everything,
    }
}

/// A part of a path without percent-encoding.
fn decoded(part: &str) -> Option<String> {
    let query = format!("key={}", part.replace('+', "%2B").replace('&', "%26"));
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(&query).ok()?;
    pairs.into_iter().next().map(|(_, value)| value)
}
