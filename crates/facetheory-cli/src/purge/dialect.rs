//! Turns the request of a product into a [`Purge`]. `docs/guides/purge-from-a-cms.md` lists the products.

use facetheory::InvalidationMode;
use http::header::{HOST, HeaderMap};
use http::request::Parts;

use super::pattern::{self, Dot, TagPattern, UrlPattern};
use super::{Parsed, Purge, Refusal, Scope, names};
use crate::config::{Config, Dialect, OnUnknown};

/// The most tags of one request. More are cheaper to invalidate by everything, which is one write.
const MAX_TAGS: usize = 1024;

/// Headers with a list of tags, besides those that are configured.
const LISTS: [&str; 15] = [
    "xkey",
    "xkey-purge",
    "surrogate-key",
    "x-cache-tags",
    "x-tags",
    "cache-tags",
    "cache-tag",
    "purge-cache-tags",
    "x-drupal-cache-tags",
    "x-magento-tags",
    "edge-cache-tag",
    "netlify-cache-tag",
    "vercel-cache-tag",
    "x-ban-tags",
    "key",
];
/// A header with a list of tags that are invalidated softly.
const SOFT_LIST: &str = "xkey-softpurge";
/// Headers with a pattern that is compared with the tags of pages, and how dots are written in it.
const PATTERNS: [(&str, Dot); 2] =
    [("x-magento-tags-pattern", Dot::Literal), ("apiplatform-ban-regex", Dot::Escaped)];
/// Headers with such a pattern in a `BAN`, and with a list in other requests.
const PATTERNS_OF_BANS: [(&str, Dot); 5] = [
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
    /// The headers by which the origin names tags, if they are configured.
    pub(crate) tag_headers: Vec<String>,
}

impl From<&Config> for Rules {
    fn from(config: &Config) -> Self {
        let purge = &config.purge;
        Rules {
            dialects: purge.dialects.clone(),
            mode: purge.mode.into(),
            on_unknown: purge.on_unknown,
            tag_headers: config.tag_headers.clone().unwrap_or_default(),
        }
    }
}

/// The meaning of a request, before `on_unknown` applies to one that was not understood.
enum Meaning {
    Purge(Scope),
    Soft(Scope),
    Incomplete,
    Unknown,
    /// It is about more than one request may name.
    TooLong,
}

impl Rules {
    /// Parses a request with a [purge method](is_purge_method). `None` if its dialect is off.
    pub(crate) fn parse(&self, request: &Parts) -> Option<Parsed> {
        let headers = &request.headers;
        if let Some(parsed) = self.parse_nginx_helper(request) {
            return Some(parsed);
        }
        let (dialect, meaning) = match request.method.as_str() {
            "BAN" => (Dialect::Ban, self.ban(request)),
            "PURGEKEYS" | "PURGETAGS" => {
                self.named_tags(headers).unwrap_or((Dialect::Tags, Meaning::Incomplete))
            }
            _ => self.purge(request),
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
        let query = request.uri.query();
        let scope = wildcard(path, query, false).unwrap_or_else(|| {
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            Scope::Url { host: host(request), target: format!("{path}{query}") }
        });
        Some(self.decide(Dialect::NginxHelper, Meaning::Purge(scope), false))
    }

    /// The invalidation of pages with these tags.
    pub(crate) fn tags(&self, dialect: Dialect, tags: Vec<String>, mode: InvalidationMode) -> Parsed {
        let meaning = of_names(tags).map_or(Meaning::Incomplete, Meaning::Purge);
        Rules { mode, ..self.clone() }.decide(dialect, meaning, false)
    }

    /// `PURGE`: of tags in a list or a pattern, or of a URL.
    fn purge(&self, request: &Parts) -> (Dialect, Meaning) {
        let headers = &request.headers;
        if let Some(named) = self.named_tags(headers) {
            return named;
        }
        // Pages are not stored with the pool that served them.
        if headers.contains_key("x-pool") {
            return (Dialect::Ban, Meaning::Unknown);
        }
        let is_all = |name: &str| text(headers, name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let (path, query) = (request.uri.path(), request.uri.query());
        if is_all("clear-cache") || path == "/purgeall" {
            return (Dialect::Url, Meaning::Purge(Scope::Everything));
        }
        if headers.contains_key("x-url") {
            return (Dialect::Ban, ban_of_urls(request, false));
        }
        let is_pattern = text(headers, "x-purge-method") == Some("regex");
        let scope = wildcard(path, query, is_pattern).unwrap_or_else(|| Scope::Url {
            host: host(request),
            target: request.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        });
        (Dialect::Url, Meaning::Purge(scope))
    }

    /// The tags that a request other than a `BAN` names. `None` if it has no header for tags.
    fn named_tags(&self, headers: &HeaderMap) -> Option<(Dialect, Meaning)> {
        let list = self.list(headers, &[]);
        match patterns(headers, &PATTERNS) {
            Some(pattern) => Some((Dialect::Ban, [pattern].into_iter().chain(list).reduce(Meaning::or)?)),
            None => Some((Dialect::Tags, list?)),
        }
    }

    /// `BAN`: of tags or of URLs, by patterns or lists.
    fn ban(&self, request: &Parts) -> Meaning {
        let headers = &request.headers;
        if headers.contains_key("x-ban-all") {
            return Meaning::Purge(Scope::Everything);
        }
        let patterns = [patterns(headers, &PATTERNS), patterns(headers, &PATTERNS_OF_BANS)];
        let list = self.list(headers, &PATTERNS_OF_BANS);
        match patterns.into_iter().chain([list]).flatten().reduce(Meaning::or) {
            // All tags, so the pattern of URLs decides.
            Some(Meaning::Purge(Scope::Everything)) => ban_of_urls(request, true),
            Some(meaning) => meaning,
            None => ban_of_urls(request, false),
        }
    }

    /// The tags of all headers with lists, but for those that have patterns. `None` if there is no such header.
    fn list(&self, headers: &HeaderMap, patterns: &[(&str, Dot)]) -> Option<Meaning> {
        let is_list = |name: &&str| !patterns.iter().any(|(pattern, _)| pattern.eq_ignore_ascii_case(name));
        let lists = LISTS.into_iter().chain(self.tag_headers.iter().map(String::as_str)).filter(is_list);
        let lists: Vec<&str> = lists.filter(|name| headers.contains_key(*name)).collect();
        let is_soft = lists.is_empty();
        if is_soft && !headers.contains_key(SOFT_LIST) {
            return None;
        }
        let mut tags = Vec::new();
        for line in lists.into_iter().chain([SOFT_LIST]).flat_map(|name| headers.get_all(name)) {
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

    fn decide(&self, dialect: Dialect, meaning: Meaning, is_soft: bool) -> Parsed {
        let mode = match (&meaning, dialect) {
            (Meaning::Soft(_), _) => InvalidationMode::Soft,
            _ if is_soft => InvalidationMode::Soft,
            // Products that send tags expect that pages with them are not served again.
            (_, Dialect::Tags | Dialect::Ban) => InvalidationMode::Hard,
            _ => self.mode,
        };
        let meaning = match meaning {
            Meaning::Purge(Scope::Tags(tags)) | Meaning::Soft(Scope::Tags(tags)) if tags.len() > MAX_TAGS => {
                Meaning::TooLong
            }
            meaning => meaning,
        };
        let refusal = match meaning {
            Meaning::Purge(scope) | Meaning::Soft(scope) => {
                return Parsed { dialect, purge: Ok(Purge { scope, mode }), is_widened: false };
            }
            Meaning::Incomplete => Refusal::Incomplete,
            Meaning::Unknown => Refusal::Unknown,
            Meaning::TooLong => Refusal::TooLong,
        };
        self.widen(dialect, refusal, mode)
    }

    /// The invalidation of everything instead of a request that is not executed, if that is configured.
    pub(super) fn widen(&self, dialect: Dialect, refusal: Refusal, mode: InvalidationMode) -> Parsed {
        let is_widened = refusal != Refusal::Incomplete && self.on_unknown == OnUnknown::Widen;
        let purge = if is_widened { Ok(Purge { scope: Scope::Everything, mode }) } else { Err(refusal) };
        Parsed { dialect, purge, is_widened }
    }
}

/// The tags of all these headers with patterns. `None` if there is no such header.
fn patterns(headers: &HeaderMap, names: &[(&str, Dot)]) -> Option<Meaning> {
    let lines = names.iter().flat_map(|(name, dot)| headers.get_all(*name).iter().map(|line| (line, *dot)));
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
            (Meaning::Incomplete, meaning) | (meaning, Meaning::Incomplete) => meaning,
            (Meaning::Unknown, _) | (_, Meaning::Unknown) => Meaning::Unknown,
            (Meaning::TooLong, _) | (_, Meaning::TooLong) => Meaning::TooLong,
            (Meaning::Soft(one), Meaning::Soft(other)) => Meaning::Soft(one.or(other)),
            (Meaning::Purge(one) | Meaning::Soft(one), Meaning::Purge(other) | Meaning::Soft(other)) => {
                Meaning::Purge(one.or(other))
            }
        }
    }
}

impl Scope {
    /// The pages of both, which are tags or everything.
    fn or(self, other: Scope) -> Scope {
        match (self, other) {
            (Scope::Tags(mut tags), Scope::Tags(others)) => {
                tags.extend(others);
                Scope::Tags(tags)
            }
            _ => Scope::Everything,
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
