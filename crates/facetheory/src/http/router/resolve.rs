//! From a request to its page: the key that tells it apart, and all that the renderer may see of the request.

use std::borrow::Cow;
use std::ops::Range;

use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use sha2::{Digest, Sha256};
use tabletheory::Timestamp;

use crate::http::headers::offers_protocol;
use crate::http::router::cookie;
use crate::http::router::host::asked;
use crate::http::router::path::{fault, push_hex, push_part};
use crate::http::router::rejection::Rejection;
use crate::http::router::route::{Query, Route};
use crate::http::router::routes::{Params, Routes};
use crate::http::router::tenant::{self, TenantFrom};
use crate::protocol::key::{MAX_CACHE_KEY_BYTES, Tenant};

#[cfg(test)]
mod tests;

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Resolved<'a> {
    /// It is for a page.
    Page(ResolvedPage<'a>),
    /// It is passed on as it is, and nothing is kept of the answer.
    Pass(PassReason),
    /// It is answered with an error before anything is looked up.
    Refused(Rejection),
}

/// Why a request is not for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassReason {
    Method,
    NoRoute,
    /// Its route says so, see [`Route::bypass`].
    Bypass,
    Body,
    Upgrade,
    Authorization,
    /// An editor's, see [`Preview`](crate::Preview).
    Draft,
}

impl PassReason {
    /// In a word, for `Cache-Status`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            PassReason::Method => "method",
            PassReason::NoRoute => "no-route",
            PassReason::Bypass => "route",
            PassReason::Body => "body",
            PassReason::Upgrade => "upgrade",
            PassReason::Authorization => "authorization",
            PassReason::Draft => "draft",
        }
    }
}

/// The page that a request is for.
#[derive(Debug)]
pub(crate) struct ResolvedPage<'a> {
    pub(crate) route: &'a Route,
    /// The number of the route, for those who keep neither it nor the request.
    pub(crate) number: usize,
    pub(crate) path: &'a str,
    pub(crate) tenant: Option<Tenant>,
    /// The cache key. By itself it tells all pages apart, also those of different tenants.
    pub(crate) key: String,
    /// Where in the key a query is that the route does not list; nowhere if there is none.
    pub(crate) private: Range<usize>,
    /// In whatever case; keys and renderers get it in lower case.
    host: &'a str,
    /// Whether it is a part of the key.
    keyed: bool,
    query: Option<Cow<'a, str>>,
}

impl Routes {
    /// What becomes of a request.
    ///
    /// The key has the form of [`CacheKey`](crate::CacheKey), with the host before the pattern unless there is one
    /// site only, and `https://` before that if the request has the extension [`Scheme::HTTPS`]:
    /// `acme::acme.example.com/news/{slug}?slug=hello&page=2#auth=<24 hex>&cookies=<24 hex>`, where `auth` is over all headers that
    /// the route lists.
    pub(crate) fn visit<'a>(&'a self, parts: &'a Parts, now: Timestamp) -> Resolved<'a> {
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Resolved::Pass(PassReason::Method);
        }
        let path = parts.uri.path();
        let Some((number, params)) = self.locate(path) else { return Resolved::Pass(PassReason::NoRoute) };
        let route = self.at(number);
        if route.bypass {
            return Resolved::Pass(PassReason::Bypass);
        }
        match self.page(parts, number, params, path) {
            Ok(page) => match self.pass(parts, route, now) {
                Some(reason) => Resolved::Pass(reason),
                None => Resolved::Page(page),
            },
            Err(refusal) => Resolved::Refused(refusal),
        }
    }

    fn page<'a>(
        &'a self,
        parts: &'a Parts,
        number: usize,
        params: Params<'a>,
        path: &'a str,
    ) -> Result<ResolvedPage<'a>, Rejection> {
        let route = self.at(number);
        if let Some(fault) = fault(path) {
            return Err(Rejection::bad(format!("the path has {fault}")));
        }
        let tenant = match (&route.tenant, &route.tenant_header) {
            (None, _) => {
                tenant::refuse_uninvited(&parts.headers, &self.tenant_headers)?;
                None
            }
            (Some(TenantFrom::Subdomain(domain)), _) => Some(tenant::of_host(asked(parts)?, domain)?),
            (Some(TenantFrom::Param(name)), _) => {
                Some(tenant::of_part(params.get(name).unwrap_or_default())?)
            }
            (Some(TenantFrom::TrustedHeader(_)), Some(name)) => {
                Some(tenant::of_header(&parts.headers, name)?)
            }
            (Some(TenantFrom::TrustedHeader(name)), None) => {
                return Err(Rejection::bad(format!("`{name}` is no header that names a tenant")));
            }
        };
        let (host, keyed) = self.site.host(parts)?;
        let query = kept_query(&route.query, parts.uri.query());
        let owner = tenant.as_ref().map_or("default", Tenant::as_str);
        let shown = if keyed { host } else { "" };
        // Pages of a site may differ by it, in the addresses that they name.
        let scheme = if is_secure(parts) { "https://" } else { "" };
        let (key, asked) = key(owner, [scheme, shown], route, params, query.as_deref(), &parts.headers);
        let private = if route.query == Query::All { asked } else { 0..0 };
        if key.len() > MAX_CACHE_KEY_BYTES {
            let text = format!("the address is longer than the {MAX_CACHE_KEY_BYTES} bytes of a cache key");
            return Err(Rejection { status: StatusCode::URI_TOO_LONG, text });
        }
        Ok(ResolvedPage { route, number, path, tenant, key, private, host, keyed, query })
    }

    /// The host that a request asks for; none for one that has none.
    pub(crate) fn host(&self, parts: &Parts) -> Option<String> {
        asked(parts).ok().map(str::to_owned)
    }

    /// What is made of the page at an address of the host that a request is for, if that follows its origin.
    pub(crate) fn target<T>(
        &self,
        parts: &Parts,
        address: &PathAndQuery,
        make: impl FnOnce(ResolvedPage<'_>) -> T,
    ) -> Option<T> {
        let mut parts = parts.clone();
        let mut uri = std::mem::take(&mut parts.uri).into_parts();
        uri.path_and_query = Some(address.clone());
        parts.uri = Uri::from_parts(uri).ok()?;
        let path = parts.uri.path();
        let (number, params) = self.locate(path)?;
        self.page(&parts, number, params, path).ok().filter(|page| page.route.follow_origin).map(make)
    }

    /// What is wrong with a request that is passed on, where the same is expected of it as of one for a page.
    pub(crate) fn fault(&self, parts: &Parts) -> Option<Rejection> {
        if let Some(fault) = fault(parts.uri.path()) {
            return Some(Rejection::bad(format!("the path has {fault}")));
        }
        // One site is served under whatever host is asked for, but that must be a host.
        asked(parts).and_then(|_| self.site.host(parts)).err()
    }

    /// Why a request for a path with a route is passed on all the same.
    fn pass(&self, parts: &Parts, route: &Route, now: Timestamp) -> Option<PassReason> {
        let headers = &parts.headers;
        let is_empty = |length: &HeaderValue| length.as_bytes() == b"0";
        if headers.contains_key(TRANSFER_ENCODING) || !headers.get_all(CONTENT_LENGTH).iter().all(is_empty) {
            return Some(PassReason::Body);
        }
        // Any other upgrade is an offer, which need not be taken; but who follows its origin leaves that to it.
        let is_socket = |value: &HeaderValue| value.as_bytes().to_ascii_lowercase().starts_with(b"websocket");
        if headers.get_all(UPGRADE).iter().any(is_socket) || (route.follow_origin && offers_protocol(headers))
        {
            return Some(PassReason::Upgrade);
        }
        let authorized = headers.contains_key(AUTHORIZATION) && !route.headers.contains(&AUTHORIZATION);
        if authorized && !route.follow_origin {
            return Some(PassReason::Authorization);
        }
        let draft =
            self.preview.as_ref().is_some_and(|preview| preview.let_in(headers, parts.uri.path(), now));
        draft.then_some(PassReason::Draft)
    }
}

/// Whether whoever received the request says that it came over a secure connection. The visitor's own word, in the address
/// of the request or in a header, is not asked.
fn is_secure(parts: &Parts) -> bool {
    parts.extensions.get::<Scheme>() == Some(&Scheme::HTTPS)
}

/// The key, and where in it the query is.
fn key(
    owner: &str,
    [scheme, host]: [&str; 2],
    route: &Route,
    params: Params<'_>,
    query: Option<&str>,
    headers: &HeaderMap,
) -> (String, Range<usize>) {
    /// More than the separators and the digests take.
    const ROOM: usize = 96;
    let names: usize = params.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let query_length = query.map_or(0, str::len);
    let mut key = String::with_capacity(
        owner.len() + scheme.len() + host.len() + route.pattern().len() + names + query_length + ROOM,
    );
    key.push_str(owner);
    key.push_str("::");
    key.push_str(scheme);
    let start = key.len();
    key.push_str(host);
    key[start..].make_ascii_lowercase();
    key.push_str(route.pattern());
    let mut separator = '?';
    let mut begin = |key: &mut String| key.push(std::mem::replace(&mut separator, '&'));
    for place in &route.by_name {
        let (name, value) = params.at(*place);
        begin(&mut key);
        key.push_str(name);
        key.push('=');
        push_part(&mut key, value);
    }
    let mut asked = 0..0;
    if let Some(query) = query {
        begin(&mut key);
        asked = key.len()..key.len() + query.len();
        key.push_str(query);
    }
    if separator == '?' {
        key.push('?');
    }
    let listed = route.headers.iter().flat_map(|name| {
        headers.get_all(name).iter().map(move |value| (name.as_str().as_bytes(), value.as_bytes()))
    });
    let auth = push_digest(&mut key, "#auth=", listed);
    let cookies = cookie::listed(headers, &route.cookies).into_iter();
    push_digest(&mut key, if auth { "&cookies=" } else { "#cookies=" }, cookies);
    (key, asked)
}

/// Writes a digest of pairs that are sorted by name, as [`CacheKey`](crate::CacheKey) does; nothing for no pairs.
fn push_digest<'a>(key: &mut String, label: &str, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> bool {
    let mut digest = Sha256::new();
    let mut last: Option<&[u8]> = None;
    for (name, value) in pairs {
        if last == Some(name) {
            digest.update(b"\0");
        } else {
            digest.update(if last.is_some() { &b"\n"[..] } else { b"" });
            digest.update(name);
            digest.update(b"=");
        }
        digest.update(value);
        last = Some(name);
    }
    if last.is_some() {
        key.push_str(label);
        digest.finalize().iter().take(12).for_each(|byte| push_hex(key, *byte, b"0123456789abcdef"));
    }
    last.is_some()
}

/// What of a query is kept, for the key and the renderer alike; none where nothing is.
fn kept_query<'q>(kept: &Query, query: Option<&'q str>) -> Option<Cow<'q, str>> {
    let query = query.filter(|query| !query.is_empty())?;
    match kept {
        Query::All => Some(Cow::Borrowed(query)),
        Query::None => None,
        Query::Only(names) => {
            let name = |pair: &'q str| pair.split_once('=').map_or(pair, |(name, _)| name);
            let mut pairs: Vec<&str> =
                query.split('&').filter(|pair| names.iter().any(|listed| listed == name(pair))).collect();
            pairs.sort_by_key(|pair| name(pair));
            (!pairs.is_empty()).then(|| Cow::Owned(pairs.join("&")))
        }
    }
}

impl ResolvedPage<'_> {
    /// The request that the renderer gets: GET, the host, the path, and what the route lists.
    ///
    /// Nothing else of the visitor's request is in it. What the key has and what is
    /// in it must be the same, so a request that cannot be put together again is refused.
    pub(crate) fn request(&self, visitor: &Parts) -> Result<Request<()>, Rejection> {
        let broken = || Rejection::bad("the request cannot be passed on as it came");
        let mut request = Request::new(());
        *request.uri_mut() = self.uri().ok_or_else(broken)?;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::try_from(self.host.to_ascii_lowercase()).map_err(|_| broken())?);
        for name in self.route.headers.iter().chain(&self.route.tenant_header) {
            // The header of the tenant may be listed as well.
            if !headers.contains_key(name) {
                visitor.headers.get_all(name).iter().for_each(|value| {
                    headers.append(name.clone(), value.clone());
                });
            }
        }
        let cookies: Vec<Vec<u8>> = cookie::listed(&visitor.headers, &self.route.cookies)
            .into_iter()
            .map(|(name, value)| [name, b"=", value].concat())
            .collect();
        if !cookies.is_empty() {
            let line = cookies.join(&b"; "[..]);
            headers.insert(COOKIE, HeaderValue::from_bytes(&line).map_err(|_| broken())?);
        }
        Ok(request)
    }

    /// The host that an origin is told that sees all of the request, if it is not the visitor's: where the key has no host, one
    /// visitor must not choose what others get.
    pub(crate) fn own_host(&self) -> Option<HeaderValue> {
        if self.keyed { None } else { HeaderValue::try_from(self.host.to_ascii_lowercase()).ok() }
    }

    /// What an origin is asked for that sees all of the request, if the key does not have all of the query; none if it
    /// does.
    pub(crate) fn target(&self) -> Option<Uri> {
        if self.route.query == Query::All { None } else { self.uri() }
    }

    fn uri(&self) -> Option<Uri> {
        let text = match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.to_owned(),
        };
        PathAndQuery::try_from(text).map(Uri::from).ok()
    }
}
