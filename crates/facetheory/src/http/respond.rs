//! Turns a cached page into the response to one request, with the headers of the cache: `Age`, `Cache-Control`, `Cache-Status`.

use http::header::{
    ACCEPT_RANGES, AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, DATE, ETAG, HeaderName, HeaderValue, VARY,
};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body as _;
use tabletheory::Timestamp;

use crate::engine::state::State;
use crate::engine::{BypassReason, Served};
use crate::http::body::IsrBody;
use crate::http::compression::Coding;
use crate::http::forced_regenerations::ReachedLimit;
use crate::http::headers::{CACHE_STATUS, REQUEST_ID, STATE};
use crate::http::representation::Representation;
use crate::http::router::rejection::{Rejected, Rejection};
use crate::http::router::route::Route;
use crate::http::semantics::cache_control::{self, CacheControl};
use crate::http::semantics::cache_status::CacheStatus;
use crate::http::semantics::conditional::EntityTag;
use crate::http::semantics::date::format_date;
use crate::http::semantics::{reuse, vary};

/// The request that a page is the response to, and how the page was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseContext<'a> {
    pub(super) request: &'a Parts,
    pub(super) route: &'a Route,
    pub(super) now: Timestamp,
    pub(super) request_id: &'a HeaderValue,
    /// The cache key of the page, for `Cache-Status` of routes that follow their origin.
    pub(super) cache_key: &'a str,
    /// Why the request was forwarded, as a token of RFC 9211, on routes that follow their origin.
    pub(super) forward_reason: Option<&'static str>,
    /// The status of the origin's response to this request, on routes that follow their origin.
    pub(super) origin_status: Option<StatusCode>,
    /// The limit because of which directives of the request were ignored.
    pub(super) reached_limit: Option<ReachedLimit>,
}

impl ResponseContext<'_> {
    /// Returns the response with this page.
    pub(super) fn respond(&self, served: &Served) -> Response<IsrBody> {
        let page = Representation::negotiate(&served.page, self.route, &self.request.headers);
        let selection = page.select(self.request, self.now);
        let (status, headers) = page.head(&selection, self.headers(served, page.coding));
        response(status, headers, page.body(&selection, &self.request.method))
    }

    /// Returns the headers of all responses with this page in this coding, whatever they select of it.
    pub(super) fn headers(&self, served: &Served, coding: Coding) -> HeaderMap {
        let mut headers = served.page.headers().clone();
        let status = if self.route.follow_origin {
            self.set_origin_headers(&mut headers, served)
        } else {
            self.set_rule_headers(&mut headers, served, coding)
        };
        set_status(&mut headers, served.state, &status, self.request_id);
        headers
    }

    /// Adds `Age` to the origin's own headers.
    fn set_origin_headers(&self, headers: &mut HeaderMap, served: &Served) -> CacheStatus<'_> {
        let page = &*served.page;
        let is_cached = served.state != State::Bypass;
        let usual = status_of(served);
        let status = CacheStatus {
            detail: usual.detail.or(self.reached_limit.map(ReachedLimit::as_str)),
            forward: self.forward_reason,
            rendered: self.origin_status,
            stored: served.state == State::Miss,
            ttl: is_cached.then(|| reuse::remaining(page, self.now)),
            key: Some(self.cache_key).filter(|_| is_cached),
            ..usual
        };
        // A response that was just received has the age that it came with.
        let is_new = matches!(served.state, State::Miss | State::Bypass);
        let age = if is_new {
            page.generation().content.initial_age.unwrap_or(0)
        } else {
            reuse::age(page.generation(), self.now)
        };
        if !is_new || age > 0 {
            headers.insert(AGE, HeaderValue::from(age));
        }
        status
    }

    /// Adds the headers that the cache is responsible for where a rule decides about freshness.
    fn set_rule_headers(
        &self,
        headers: &mut HeaderMap,
        served: &Served,
        coding: Coding,
    ) -> CacheStatus<'static> {
        let (page, route, generation) = (&*served.page, self.route, served.page.generation());
        let mut set = |name: HeaderName, value: Option<HeaderValue>| {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        };
        let text = |text: &str| HeaderValue::from_str(text).ok();
        set(CONTENT_TYPE, page.content_type().and_then(text));
        set(CONTENT_SECURITY_POLICY, page.content_security_policy().and_then(text));
        let etag = generation.etag.as_deref().and_then(EntityTag::of_page);
        set(ETAG, etag.and_then(|etag| HeaderValue::try_from(etag.in_coding(coding)).ok()));
        set(CONTENT_ENCODING, coding.as_str().map(HeaderValue::from_static));
        set(VARY, vary::for_clients(page.headers(), route, page.has_or_gets_compressed_forms()));
        set(ACCEPT_RANGES, Some(HeaderValue::from_static("bytes")));
        set(DATE, format_date(self.now).and_then(|date| HeaderValue::try_from(date).ok()));
        if served.state == State::Bypass {
            // The page could not be published.
            set(CACHE_CONTROL, Some(HeaderValue::from_static("no-store")));
            return CacheStatus { rendered: StatusCode::from_u16(page.status()).ok(), ..status_of(served) };
        }
        let age = self.now.seconds().saturating_sub(generation.generated_at).max(0);
        let remaining = generation.revalidate_seconds.saturating_sub(age);
        let is_fresh = matches!(served.state, State::Hit | State::Miss | State::WaitHit);
        let stale_age = (!is_fresh).then_some(age);
        let directives = CacheControl::of(page.headers());
        let interval = generation.revalidate_seconds;
        set(CACHE_CONTROL, Some(cache_control::for_clients(route, interval, stale_age, &directives)));
        set(AGE, Some(HeaderValue::from(age)));
        // Since when a page is stale that was invalidated before its time is not known.
        let ttl = (is_fresh || remaining <= 0).then_some(remaining);
        let stored = served.state == State::Miss;
        let rendered = StatusCode::from_u16(page.status()).ok().filter(|_| stored);
        CacheStatus { ttl, stored, rendered, ..status_of(served) }
    }
}

/// The part of `Cache-Status` that says why a page was not served in the usual way.
fn status_of(served: &Served) -> CacheStatus<'static> {
    let unpublished = (served.state == State::Bypass).then_some("not-published");
    let detail = served.reason.map(BypassReason::as_str).or(unpublished);
    CacheStatus { detail, collapsed: served.is_collapsed, ..CacheStatus::default() }
}

/// Adds the headers of the cache to a response of the origin that is passed through.
pub(super) fn pass_through(
    mut response: Response<IsrBody>,
    status: CacheStatus<'_>,
    request_id: &HeaderValue,
) -> Response<IsrBody> {
    let status = CacheStatus { rendered: Some(response.status()), ..status };
    set_status(response.headers_mut(), State::Bypass, &status, request_id);
    response
}

/// Removes the body of a response to HEAD, and announces its length.
pub(super) fn without_body(mut response: Response<IsrBody>) -> Response<IsrBody> {
    let length = response.body().size_hint();
    if let (Some(length), false) = (length.exact(), response.headers().contains_key(CONTENT_LENGTH)) {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = IsrBody::unsent(length);
    response
}

/// Returns an error response with an explanation.
pub(super) fn rejected(
    rejection: &Rejection,
    detail: &'static str,
    request_id: &HeaderValue,
) -> Response<IsrBody> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let status = CacheStatus { detail: Some(detail), ..CacheStatus::default() };
    set_status(&mut headers, State::Bypass, &status, request_id);
    let mut response = response(rejection.status, headers, IsrBody::from(format!("{}\n", rejection.text)));
    response.extensions_mut().insert(Rejected);
    response
}

fn set_status(headers: &mut HeaderMap, state: State, status: &CacheStatus<'_>, request_id: &HeaderValue) {
    headers.insert(STATE, HeaderValue::from_static(state.as_str()));
    // Caches between us and the origin have added their own entries (RFC 9211 §2).
    headers.append(CACHE_STATUS, status.value(state));
    headers.insert(REQUEST_ID, request_id.clone());
}

pub(super) fn response(status: StatusCode, headers: HeaderMap, body: IsrBody) -> Response<IsrBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
