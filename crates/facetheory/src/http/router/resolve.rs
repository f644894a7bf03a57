//! Resolves a request: its route and its cache key, or why it is passed through or rejected.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri};
use tabletheory::Timestamp;

use crate::http::headers::offers_upgrade;
use crate::http::router::host::requested_host;
use crate::http::router::key_form::KeyForm;
use crate::http::router::page_key::cache_key;
use crate::http::router::path::path_error;
use crate::http::router::query::Query;
use crate::http::router::rejection::Rejection;
use crate::http::router::route::Route;
use crate::http::router::routes::{Params, Routes};
use crate::http::router::tenant::{self, TenantFrom};
use crate::protocol::key::{KeyScheme, PageKey, Tenant};

#[cfg(test)]
mod tests;

/// A request whose route and cache key are known: from [`IsrService::resolve`](crate::IsrService::resolve).
///
/// A request is resolved once. A server that resolves it before it calls the service, for example to try
/// [`get_fresh`](crate::IsrService::get_fresh), puts this value into the extensions of the request. A service whose routes
/// or settings differ from those that resolved it, as after a reload, resolves the request again.
///
/// ```
/// # use facetheory::{Bodies, Isr, IsrLayer, Pages, PageStore, Policy, Route, Routes};
/// # use http::Request;
/// # use std::{sync::Arc, time::Duration};
/// # use tower::Layer;
/// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// let routes = Routes::new([Route::new("/posts/{slug}", Policy::every(Duration::from_secs(60)))])?;
/// let service = IsrLayer::new(Isr::new(pages), routes).layer("any service");
/// let (parts, ()) = Request::get("/posts/a").header("host", "example.com").body(()).unwrap().into_parts();
/// let resolved = service.resolve(&parts);
/// assert_eq!(resolved.page().unwrap().cache_key(), "default::example.com/posts/{slug}?slug=a");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ResolvedRequest {
    /// Identifies the routes and settings by which it was resolved.
    pub(crate) generation: u64,
    /// The client's `x-request-id`, or a new one.
    pub(crate) request_id: HeaderValue,
    pub(crate) resolution: Resolution,
}

/// How a request is handled.
#[derive(Clone, Debug)]
pub(crate) enum Resolution {
    /// It is for a page, which may be cached.
    Page(ResolvedPage),
    /// It is forwarded unchanged, and the response is not cached.
    PassThrough(PassReason),
    /// It gets an error response before anything is looked up.
    Rejected(Rejection),
}

/// The page that a request is for.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedPage {
    /// The index of its route, see [`Routes::at`].
    pub(crate) route: usize,
    pub(crate) key: PageKey,
}

/// Why a request is passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassReason {
    Method,
    NoRoute,
    /// See [`Route::bypass`].
    Bypass,
    Body,
    Upgrade,
    Authorization,
    /// See [`Preview`](crate::Preview).
    Preview,
    /// The cache key would be that of another path.
    AmbiguousKey,
}

impl PassReason {
    /// The `detail` of `Cache-Status`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            PassReason::Method => "method",
            PassReason::NoRoute => "no-route",
            PassReason::Bypass => "route",
            PassReason::Body => "body",
            PassReason::Upgrade => "upgrade",
            PassReason::Authorization => "authorization",
            PassReason::Preview => "preview",
            PassReason::AmbiguousKey => "ambiguous-key",
        }
    }
}

impl ResolvedRequest {
    /// Returns the key of the page that the request is for, or `None` if the request is passed through or rejected.
    ///
    /// ```no_run
    /// # fn f(resolved: facetheory::ResolvedRequest) {
    /// let tags = resolved.page().map(|page| page.tags().len());
    /// # }
    /// ```
    #[must_use]
    pub fn page(&self) -> Option<&PageKey> {
        match &self.resolution {
            Resolution::Page(page) => Some(&page.key),
            Resolution::PassThrough(_) | Resolution::Rejected(_) => None,
        }
    }
}

impl Routes {
    /// Resolves a request. The time is needed only where preview cookies are checked.
    pub(crate) fn resolve(
        &self,
        parts: &Parts,
        scheme: &KeyScheme,
        now: impl FnOnce() -> Timestamp,
    ) -> Resolution {
        // Emitted here and not by the callers: the tests that count it would miss a second call.
        tracing::debug!(path = parts.uri.path(), "resolved");
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Resolution::PassThrough(PassReason::Method);
        }
        let path = parts.uri.path();
        let Some((index, params)) = self.locate(path) else {
            return Resolution::PassThrough(PassReason::NoRoute);
        };
        let route = self.at(index);
        if route.bypass {
            return Resolution::PassThrough(PassReason::Bypass);
        }
        match self.page_key(parts, route, params, scheme) {
            Ok(_) if self.is_ambiguous(parts, route, params) => {
                Resolution::PassThrough(PassReason::AmbiguousKey)
            }
            Ok(key) => match self.pass_reason(parts, route, now) {
                Some(reason) => Resolution::PassThrough(reason),
                None => Resolution::Page(ResolvedPage { route: index, key }),
            },
            Err(rejection) => Resolution::Rejected(rejection),
        }
    }

    /// Returns the key of the page at another path of the same host, if its route follows the origin.
    pub(crate) fn page_at(
        &self,
        parts: &Parts,
        address: &PathAndQuery,
        scheme: &KeyScheme,
    ) -> Option<PageKey> {
        let mut parts = parts.clone();
        let mut uri = std::mem::take(&mut parts.uri).into_parts();
        uri.path_and_query = Some(address.clone());
        parts.uri = Uri::from_parts(uri).ok()?;
        let (index, params) = self.locate(parts.uri.path())?;
        let route = self.at(index);
        if route.follow_origin { self.page_key(&parts, route, params, scheme).ok() } else { None }
    }

    /// Whether the query of a request has the name of an optional rest of the path, and the path has no such rest. Keys of
    /// TypeScript services do not tell `/docs?page=a` from `/docs/a` then.
    fn is_ambiguous(&self, parts: &Parts, route: &Route, params: Params<'_>) -> bool {
        let KeyForm::FacetheoryTs { .. } = self.key_form_of(route) else { return false };
        let absent = params.iter().filter(|(_, value)| value.is_empty());
        let absent: Vec<&str> = absent.map(|(name, _)| name).collect();
        // Most paths have all their parameters, and the query need not be parsed again.
        !absent.is_empty() && route.query.has_any(parts.uri.query(), &absent)
    }

    /// Checks a request that is passed through as strictly as one for a page.
    pub(crate) fn check_passed_through(&self, parts: &Parts) -> Result<(), Rejection> {
        check_path(parts)?;
        // One site is served under every host, but the client must name a valid one.
        requested_host(parts).and_then(|_| self.hosts.host(parts)).map(drop)
    }

    fn page_key(
        &self,
        parts: &Parts,
        route: &Route,
        params: Params<'_>,
        scheme: &KeyScheme,
    ) -> Result<PageKey, Rejection> {
        check_path(parts)?;
        let tenant = self.tenant(parts, route, params)?;
        let (host, is_keyed) = self.hosts.host(parts)?;
        let form = self.key_form_of(route);
        let max_bytes = scheme.max_cache_key_bytes();
        let too_long = || {
            let text = format!("the address is longer than the {max_bytes} bytes of a cache key");
            Rejection { status: StatusCode::URI_TOO_LONG, text }
        };
        let query = route.query.keyed_part(parts.uri.query(), form, max_bytes).map_err(|_| too_long())?;
        let name = tenant.as_ref().map_or("default", Tenant::as_str);
        let host = if is_keyed { host } else { "" };
        let (key, query_range) = cache_key(parts, form, route, params, name, host, query.as_deref());
        if key.len() > max_bytes {
            return Err(too_long());
        }
        let key = scheme.page(tenant.as_ref(), key).map_err(|error| Rejection::bad(error.to_string()))?;
        let private = if route.query == Query::All { query_range } else { 0..0 };
        let key = key.at_path(parts.uri.path()).of_known_route(route.name.clone()).with_private_part(private);
        let key = key.expecting_tags(route.tags.clone());
        Ok(if route.follow_origin { key.with_variants() } else { key.with_interval(route.policy.revalidate) })
    }

    fn tenant(&self, parts: &Parts, route: &Route, params: Params<'_>) -> Result<Option<Tenant>, Rejection> {
        let Some(from) = &route.tenant else {
            return tenant::reject_unexpected(&parts.headers, &self.tenant_headers).map(|()| None);
        };
        let tenant = match (from, &route.tenant_header) {
            (TenantFrom::Subdomain(domain), _) => tenant::of_host(requested_host(parts)?, domain),
            (TenantFrom::Param(name), _) => tenant::of_part(params.get(name).unwrap_or_default()),
            (TenantFrom::TrustedHeader(_), Some(name)) => tenant::of_header(&parts.headers, name),
            (TenantFrom::TrustedHeader(name), None) => {
                Err(Rejection::bad(format!("`{name}` is not a valid tenant header")))
            }
        };
        tenant.map(Some)
    }

    /// Returns why a request is passed through although its path has a route.
    fn pass_reason(
        &self,
        parts: &Parts,
        route: &Route,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<PassReason> {
        let headers = &parts.headers;
        let is_empty = |length: &HeaderValue| length.as_bytes() == b"0";
        if headers.contains_key(TRANSFER_ENCODING) || !headers.get_all(CONTENT_LENGTH).iter().all(is_empty) {
            return Some(PassReason::Body);
        }
        // Other upgrades are optional for the server. An origin that decides about caching also decides about them.
        let is_socket = |value: &HeaderValue| value.as_bytes().to_ascii_lowercase().starts_with(b"websocket");
        if headers.get_all(UPGRADE).iter().any(is_socket) || (route.follow_origin && offers_upgrade(headers))
        {
            return Some(PassReason::Upgrade);
        }
        let is_authorized = headers.contains_key(AUTHORIZATION) && !route.headers.contains(&AUTHORIZATION);
        if is_authorized && !route.follow_origin {
            return Some(PassReason::Authorization);
        }
        let preview = self.preview.as_ref()?;
        preview.is_permitted(headers, parts.uri.path(), now()).then_some(PassReason::Preview)
    }
}

fn check_path(parts: &Parts) -> Result<(), Rejection> {
    let reject = |error| Err(Rejection::bad(format!("the path has {error}")));
    path_error(parts.uri.path()).map_or(Ok(()), reject)
}
