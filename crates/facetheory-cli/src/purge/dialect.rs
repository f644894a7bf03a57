//! Turns the request of a product into a [`Purge`]. `docs/guides/purge-from-a-cms.md` lists the products.

use facetheory::InvalidationMode;
use http::header::{HOST, HeaderMap};
use http::request::Parts;

use super::pattern::{self, Dot, TagPattern, UrlPattern};
use super::{Parsed, Purge, Refusal, Scope, names};
use crate::config::{self, Dialect, OnUnknown};

/// The most tags of one request. More are cheaper to invalidate by everything, which is one write.
const MAX_TAGS: usize = 1024;

/// Headers with a list of tags.
const LISTS: [&str; 9] = [
    "xkey",
    "xkey-purge",
    "surrogate-key",
    "x-cache-tags",
    "cache-tags",
    "cache-tag",
    "purge-cache-tags",
    "x-ban-tags",
    "key",
];
/// A header with a list of tags that are invalidated softly.
const SOFT_LIST: &str = "xkey-softpurge";
/// Headers with a pattern that is compared with the tags of pages, and how dots are written in it.
const PATTERNS: [(&str, Dot); 7] = [
    ("x-magento-tags-pattern", Dot::Literal),
    ("apiplatform-ban-regex", Dot::Escaped),
    ("x-cache-tags", Dot::Escaped),
    ("cache-tags", Dot::Literal),
    ("purge-cache-tags", Dot::Literal),
    ("x-ban-tags", Dot::Literal),
    ("surrogate-key", Dot::Literal),
];
/// The tag by which eZ Platform means all pages.
const ALL_OF_EZ: &str = "ez-all";

/// Whether requests with this method are purges.
pub(crate) fn is_purge_method(method: &str) -> bool {
    matches!(method, "PURGE" | "BAN" | "PURGEKEYS" | "PURGETAGS")
}

/// How requests are understood.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) dialects: Vec<Dialect>,
    /// The mode of a `PURGE` that says none.
    pub(crate) mode: InvalidationMode,
    pub(crate) on_unknown: OnUnknown,
}

impl From<&config::Purge> for Rules {
    fn from(purge: &config::Purge) -> Self {
        Rules { dialects: purge.dialects.clone(), mode: purge.mode.into(), on_unknown: purge.on_unknown }
    }
}

/// What a request means, before it is decided what happens if it was not understood.
enum Meaning {
    Purge(Scope),
    Soft(Scope),
    Incomplete,
    Unknown,
}

impl Rules {
    /// Parses a request with a [purge method](is_purge_method). `None` if its dialect is off.
    pub(crate) fn parse(&self, request: &Parts) -> Option<Parsed> {
        let headers = &request.headers;
        if let Some(parsed) = self.parse_nginx_helper(request) {
            return Some(parsed);
        }
        let (dialect, meaning) = match request.method.as_str() {
            "BAN" => ban(request),
            "PURGEKEYS" | "PURGETAGS" => (Dialect::Tags, list(headers).unwrap_or(Meaning::Incomplete)),
            _ => purge(request),
        };
        let is_on = self.dialects.contains(&dialect);
        is_on.then(|| self.decide(dialect, meaning, is_soft(headers)))
    }

    /// A request of the nginx helper for a page: `GET /purge/path`. `None` if the request is another one.
    pub(crate) fn parse_nginx_helper(&self, request: &Parts) -> Option<Parsed> {
        let path = request.uri.path().strip_prefix("/purge").filter(|path| path.starts_with('/'))?;
        if !self.dialects.contains(&Dialect::NginxHelper) {
            return None;
        }
        let query = request.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let scope = Scope::Url { host: host(request), target: format!("{path}{query}") };
        Some(self.decide(Dialect::NginxHelper, Meaning::Purge(scope), false))
    }

    /// The invalidation of pages with these tags.
    pub(crate) fn tags(&self, dialect: Dialect, tags: Vec<String>, mode: InvalidationMode) -> Parsed {
        let meaning = of_names(tags).map_or(Meaning::Incomplete, Meaning::Purge);
        Rules { mode, ..self.clone() }.decide(dialect, meaning, false)
    }

    fn decide(&self, dialect: Dialect, meaning: Meaning, is_soft: bool) -> Parsed {
        let mode = match (&meaning, dialect) {
            (Meaning::Soft(_), _) => InvalidationMode::Soft,
            _ if is_soft => InvalidationMode::Soft,
            // Products that send tags expect that pages with them are not served again.
            (_, Dialect::Tags | Dialect::Ban) => InvalidationMode::Hard,
            _ => self.mode,
        };
        let purge = |scope| Ok(Purge { scope, mode });
        let too_many = |scope: &Scope| matches!(scope, Scope::Tags(tags) if tags.len() > MAX_TAGS);
        let (purge, is_widened) = match meaning {
            Meaning::Purge(scope) | Meaning::Soft(scope) if too_many(&scope) => {
                (purge(Scope::Everything), true)
            }
            Meaning::Purge(scope) | Meaning::Soft(scope) => (purge(scope), false),
            Meaning::Incomplete => (Err(Refusal::Incomplete), false),
            Meaning::Unknown if self.on_unknown == OnUnknown::Widen => (purge(Scope::Everything), true),
            Meaning::Unknown => (Err(Refusal::Unknown), false),
        };
        Parsed { dialect, purge, is_widened }
    }
}

/// `PURGE`: of tags in a list, of a pattern of Magento, or of a URL.
fn purge(request: &Parts) -> (Dialect, Meaning) {
    let headers = &request.headers;
    if let Some(pattern) = text(headers, "x-magento-tags-pattern") {
        return (Dialect::Ban, tag_pattern(pattern, Dot::Literal));
    }
    if let Some(meaning) = list(headers) {
        return (Dialect::Tags, meaning);
    }
    // Pages are not stored with the pool that served them.
    if text(headers, "x-pool").is_some() {
        return (Dialect::Ban, Meaning::Unknown);
    }
    let is_all = |name: &str| text(headers, name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let (path, query) = (request.uri.path(), request.uri.query());
    if is_all("clear-cache") || path == "/purgeall" {
        return (Dialect::Url, Meaning::Purge(Scope::Everything));
    }
    let is_pattern = text(headers, "x-purge-method") == Some("regex");
    let scope = wildcard(path, query, is_pattern).unwrap_or_else(|| Scope::Url {
        host: host(request),
        target: request.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
    });
    (Dialect::Url, Meaning::Purge(scope))
}

/// `BAN`: of tags or of URLs, by patterns or lists.
fn ban(request: &Parts) -> (Dialect, Meaning) {
    let headers = &request.headers;
    if text(headers, "x-ban-all").is_some() {
        return (Dialect::Ban, Meaning::Purge(Scope::Everything));
    }
    let meaning = match patterns(headers) {
        // All tags, so the pattern of URLs decides.
        Some(Meaning::Purge(Scope::Everything)) => ban_of_urls(request, true),
        Some(meaning) => meaning,
        None => list(headers).unwrap_or_else(|| ban_of_urls(request, false)),
    };
    (Dialect::Ban, meaning)
}

/// The tags of all headers with patterns. `None` if there is no such header.
fn patterns(headers: &HeaderMap) -> Option<Meaning> {
    let lines =
        PATTERNS.iter().flat_map(|(name, dot)| headers.get_all(*name).iter().map(|line| (line, *dot)));
    let meanings = lines.map(|(line, dot)| match std::str::from_utf8(line.as_bytes()) {
        Ok(line) => tag_pattern(line.trim(), dot),
        // Tags of pages are texts.
        Err(_) => Meaning::Unknown,
    });
    meanings.reduce(Meaning::or)
}

impl Meaning {
    /// The pages of both.
    fn or(self, other: Meaning) -> Meaning {
        match (self, other) {
            (Meaning::Purge(Scope::Tags(mut tags)), Meaning::Purge(Scope::Tags(others))) => {
                tags.extend(others);
                Meaning::Purge(Scope::Tags(tags))
            }
            (Meaning::Purge(Scope::Tags(_)), wider) => wider,
            (wider, _) => wider,
        }
    }
}

fn ban_of_urls(request: &Parts, has_tags: bool) -> Meaning {
    let mut urls = request.headers.get_all("x-url").iter().map(|line| line.to_str().unwrap_or_default());
    if let Some(url) = urls.next() {
        return Meaning::Purge(match (pattern::url(url.trim()), urls.next()) {
            (UrlPattern::Below(path), None) => Scope::Prefix(path),
            _ => Scope::Everything,
        });
    }
    match request.uri.path() {
        // Drupal names its bans by their paths.
        "/" | "/site" => Meaning::Purge(Scope::Everything),
        "/tags" => Meaning::Incomplete,
        _ if has_tags => Meaning::Purge(Scope::Everything),
        path => wildcard(path, request.uri.query(), false).map_or(Meaning::Unknown, Meaning::Purge),
    }
}

/// The pages that a path with a wildcard at its end means, or with an expression at its end if it `is_pattern`.
fn wildcard(path: &str, query: Option<&str>, is_pattern: bool) -> Option<Scope> {
    let url = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let before = url.strip_suffix(".*").or_else(|| url.strip_suffix('*'));
    let before = before.or_else(|| is_pattern.then_some(&*url))?;
    // Whatever is an expression may stand for any text.
    let literal = before.split(['*', '(', '[', '|', '^', '$', '+', '\\']).next().unwrap_or_default();
    Some(match pattern::below(literal, false) {
        UrlPattern::Below(path) => Scope::Prefix(path),
        UrlPattern::All => Scope::Everything,
    })
}

fn tag_pattern(value: &str, dot: Dot) -> Meaning {
    match pattern::tags(value, dot) {
        TagPattern::All => Meaning::Purge(Scope::Everything),
        TagPattern::Tags(tags) => Meaning::Purge(Scope::Tags(tags)),
        TagPattern::Unknown => Meaning::Unknown,
    }
}

/// The tags of all headers with lists. `None` if there is no such header.
fn list(headers: &HeaderMap) -> Option<Meaning> {
    let is_soft = !LISTS.iter().any(|name| headers.contains_key(*name));
    if is_soft && !headers.contains_key(SOFT_LIST) {
        return None;
    }
    let mut tags = Vec::new();
    for line in LISTS.iter().chain([&SOFT_LIST]).flat_map(|name| headers.get_all(*name)) {
        // Tags of pages are texts.
        let Ok(line) = std::str::from_utf8(line.as_bytes()) else { return Some(Meaning::Unknown) };
        tags.extend(names(line).map(str::to_owned));
        // Some servers are configured for patterns in these headers.
        if line.contains(['(', '|', '*']) {
            match pattern::tags(line, Dot::Literal) {
                TagPattern::Tags(more) => tags.extend(more),
                TagPattern::All => return Some(Meaning::Purge(Scope::Everything)),
                TagPattern::Unknown => return Some(Meaning::Unknown),
            }
        }
    }
    Some(match of_names(tags) {
        Some(scope) if is_soft => Meaning::Soft(scope),
        Some(scope) => Meaning::Purge(scope),
        None => Meaning::Incomplete,
    })
}

/// The pages with one of these tags; `None` if there is no tag.
fn of_names(mut tags: Vec<String>) -> Option<Scope> {
    tags.sort_unstable();
    tags.dedup();
    if tags.is_empty() {
        return None;
    }
    Some(if tags.iter().any(|tag| tag == ALL_OF_EZ) { Scope::Everything } else { Scope::Tags(tags) })
}

/// Whether the request says that pages may be served while they are regenerated.
pub(super) fn is_soft(headers: &HeaderMap) -> bool {
    text(headers, "fastly-soft-purge") == Some("1")
}

/// The names in all lines of a header.
pub(super) fn list_of_header(headers: &HeaderMap, name: &'static str) -> Vec<String> {
    let lines = headers.get_all(name).iter().filter_map(|line| std::str::from_utf8(line.as_bytes()).ok());
    lines.flat_map(names).map(str::to_owned).collect()
}

/// The host of the pages that a request is about.
pub(crate) fn host(request: &Parts) -> Option<String> {
    let named = text(&request.headers, HOST.as_str()).map(str::to_owned);
    named.or_else(|| request.uri.authority().map(ToString::to_string))
}

/// The value of a header; `None` if it is absent or not a text.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}
