//! Fetches a page from the origin, or revalidates the stored one, and decides what is cached of the response.

mod failure;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONTENT_TYPE, DATE, ETAG, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    RANGE, SET_COOKIE, VARY,
};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, response};
use http_body_util::BodyExt as _;
use tabletheory::Timestamp;
use tower::ServiceExt as _;

use crate::engine::{self, MemoryBudget};
use crate::http::body::{Collected, IsrBody, collect};
use crate::http::cacheability::{Limits, MAX_TAGS, Received, Storable, StoreDecision, UncacheableReason};
use crate::http::compression::Coding;
use crate::http::credentials::has_credentials;
use crate::http::headers::restored;
use crate::http::hint::CacheHint;
use crate::http::renderer::Renderer;
use crate::http::router::route::Route;
use crate::http::semantics::cache_control::{CacheControl, Directive};
use crate::http::semantics::conditional::EntityTag;
use crate::http::semantics::date::format_date;
use crate::http::semantics::revalidation::{has_another_tag, updated};
use crate::http::variants;
use crate::pages::render::{OriginUnreachable, Render, Rendered};
use crate::protocol::generation::Content;
use crate::protocol::key::PageKey;
use crate::protocol::row::Meta;

pub(super) use failure::FailedRender;

/// The longest body of a failure that is sent to all requests that waited for the render.
const MAX_FAILURE_BYTES: u64 = 64 * 1024;

/// The outcome of a fetch, and the response of the origin for its initiator: the request that caused it.
pub(super) type FetchResult = engine::RenderResult<OriginResponse>;

/// The outcome of a fetch, and the response for its initiator, if the response is not cached.
type Evaluated = engine::RenderResult<Response<IsrBody>>;

/// The response of the origin to the request that was forwarded, for the client that sent it.
#[derive(Debug, Default)]
pub(super) struct OriginResponse {
    /// `None` if the origin did not respond.
    pub(super) status: Option<StatusCode>,
    /// The response itself, if it is not cached.
    pub(super) response: Option<Response<IsrBody>>,
}

/// A request to the origin for one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch<'a> {
    pub(super) page: &'a PageKey,
    pub(super) route: &'a Route,
    /// The client's request.
    pub(super) client: &'a Parts,
    /// The stored response, if it was stored by the same policy.
    pub(super) stored: Option<&'a Meta>,
    /// Whether the stored response may be revalidated. One that must not be served may not: a 304 would bring it back.
    pub(super) may_revalidate: bool,
    /// Whether the origin sees everything that the client sent.
    pub(super) is_whole_request: bool,
    pub(super) limits: Limits,
    /// The headers of responses that name tags.
    pub(super) tag_headers: &'a [HeaderName],
    /// The budget for the body of the response.
    pub(super) memory: &'a Arc<MemoryBudget>,
    pub(super) requested: Timestamp,
}

impl Fetch<'_> {
    /// Sends a request without conditions, or with those of the stored response, and decides what is cached.
    pub(super) async fn send<S, B>(
        &self,
        service: S,
        request: Request<()>,
        body: impl Fn() -> B,
        now: impl Fn() -> Timestamp,
    ) -> FetchResult
    where
        S: Renderer<B>,
    {
        let mut conditional = request.clone();
        let mut is_conditional = self.add_conditions(conditional.headers_mut());
        let mut next = conditional;
        let response = loop {
            match service.clone().oneshot(next.map(|()| body())).await {
                // A 304 about another response says nothing about the stored one (RFC 9111 §4.3.4).
                Ok(response) if is_conditional && self.is_about_another(&response) => {
                    (next, is_conditional) = (request.clone(), false);
                }
                Ok(response) => break response,
                Err(error) => return FetchResult::failed(error),
            }
        };
        let (status, received) = (response.status(), now());
        let Evaluated { outcome, for_initiator: response } =
            self.evaluate(response, is_conditional, received).await;
        FetchResult { outcome, for_initiator: Some(OriginResponse { status: Some(status), response }) }
    }

    /// Decides what is cached of a response, and reads its body if necessary.
    async fn evaluate<R>(&self, response: Response<R>, is_conditional: bool, received: Timestamp) -> Evaluated
    where
        R: http_body::Body<Data = Bytes, Error: Into<crate::http::body::BoxError>> + Send + 'static,
    {
        let (mut head, body) = response.into_parts();
        if self.route.follow_origin && !head.headers.contains_key(DATE) {
            // A recipient that caches or forwards a response without a date adds one (RFC 9110 §6.6.1).
            let date = format_date(received).and_then(|date| HeaderValue::try_from(date).ok());
            head.headers.extend(date.map(|date| (DATE, date)));
        }
        if let (Some(stored), true, StatusCode::NOT_MODIFIED) = (self.stored, is_conditional, head.status) {
            let hint = head.extensions.get();
            let outcome = Ok(self.revalidated(stored, &head.headers, hint, received));
            return Evaluated { outcome, for_initiator: None };
        }
        let body = body.map_err(Into::into).boxed_unsync();
        // If the headers alone forbid caching, the body is not read.
        match self.decide(&head, None, received) {
            StoreDecision::Decline(reason) => {
                self.declined(&reason, Response::from_parts(head, IsrBody::passed(body)))
            }
            StoreDecision::Fail(reason) if !self.is_shareable_failure(&head) => {
                FailedRender::for_initiator(reason, Response::from_parts(head, IsrBody::passed(body)))
            }
            StoreDecision::Fail(reason) => match collect(body, MAX_FAILURE_BYTES, self.memory).await {
                Collected::Whole(bytes) => FailedRender::read(reason, head, bytes),
                Collected::TooLong(body) | Collected::MemoryFull(body) => {
                    FailedRender::for_initiator(reason, Response::from_parts(head, body))
                }
                Collected::Broken(error) => Evaluated::failed(error),
            },
            StoreDecision::Store(_) => match collect(body, self.limits.max_bytes, self.memory).await {
                Collected::Whole(bytes) => self.stored(head, bytes, received),
                Collected::TooLong(body) => {
                    let reason = UncacheableReason::TooLong { limit: self.limits.max_bytes };
                    self.declined(&reason, Response::from_parts(head, body))
                }
                Collected::MemoryFull(body) => {
                    self.declined(&UncacheableReason::MemoryFull, Response::from_parts(head, body))
                }
                Collected::Broken(error) => {
                    tabletheory::warn_limited!(%error, page = %self.page.redacted(), "the origin's response was cut off");
                    Evaluated::failed(FailedRender::new(UncacheableReason::Truncated))
                }
            },
        }
    }

    /// Decides about a response whose body was read.
    fn stored(&self, head: response::Parts, bytes: Bytes, received: Timestamp) -> Evaluated {
        match self.decide(&head, Some(bytes.len() as u64), received) {
            StoreDecision::Store(storable) => {
                Evaluated { outcome: Ok(self.rendered(&head, storable, bytes).into()), for_initiator: None }
            }
            StoreDecision::Decline(reason) => {
                self.declined(&reason, Response::from_parts(head, bytes.into()))
            }
            StoreDecision::Fail(reason) => Evaluated::failed(FailedRender::new(reason)),
        }
    }

    /// Whether a response that was passed through could have been cached.
    pub(super) fn is_cacheable<R>(&self, response: &Response<R>, received: Timestamp) -> bool {
        let received = self.received(response.status(), response.headers(), received);
        matches!(received.decide(), StoreDecision::Store(_))
    }

    fn decide(&self, head: &response::Parts, bytes: Option<u64>, received: Timestamp) -> StoreDecision {
        let hint = head.extensions.get::<CacheHint>();
        Received { hint, bytes, ..self.received(head.status, &head.headers, received) }.decide()
    }

    fn received<'a>(
        &'a self,
        status: StatusCode,
        headers: &'a HeaderMap,
        received: Timestamp,
    ) -> Received<'a> {
        let is_usable = |stored: &Meta| stored.generation.content.status.is_none_or(|status| status < 500);
        Received {
            route: self.route,
            // Where the origin's headers decide, the origin gets a GET for a HEAD too, and RFC 9111 depends on the
            // method that the origin got. A rule caches the response for either method.
            method: if self.route.follow_origin { &Method::GET } else { &self.client.method },
            request: &self.client.headers,
            status,
            headers,
            hint: None,
            bytes: None,
            requested: self.requested,
            received,
            has_usable_stored: self.stored.is_some_and(is_usable),
            is_revalidated: false,
            limits: self.limits,
            tag_headers: self.tag_headers,
        }
    }

    /// Adds the validators of the stored response to a request. Returns whether there are any.
    fn add_conditions(&self, headers: &mut HeaderMap) -> bool {
        let Some(stored) = self.stored.filter(|_| self.may_revalidate) else { return false };
        let (etag, last_modified) = self.validators(stored);
        let is_conditional = etag.is_some() || last_modified.is_some();
        headers.extend(etag.map(|etag| (IF_NONE_MATCH, etag)));
        headers.extend(last_modified.map(|date| (IF_MODIFIED_SINCE, date)));
        is_conditional
    }

    fn validators(&self, stored: &Meta) -> (Option<HeaderValue>, Option<HeaderValue>) {
        let mut headers = self.stored_headers(stored);
        if self.route.follow_origin {
            if !self.selects(&headers, stored) {
                return (None, None);
            }
            let [etag, last_modified] =
                [ETAG, LAST_MODIFIED].map(|name| headers.remove(name).filter(|value| !value.is_empty()));
            return (etag, last_modified);
        }
        let generation = &stored.generation;
        let last_modified = headers.remove(LAST_MODIFIED);
        // An entity tag that the cache derived from the digest is unknown to the origin, and would override the date.
        let is_derived = |etag: &EntityTag<'_>| {
            let digest = generation.content.digest.as_deref().and_then(|text| text.strip_prefix("sha256:"));
            digest.is_some_and(|digest| !etag.opaque.is_empty() && digest.starts_with(etag.opaque))
        };
        let etag = generation.etag.as_deref().and_then(EntityTag::of_page);
        let etag = etag.filter(|etag| last_modified.is_none() || !is_derived(etag));
        let etag = etag.and_then(|etag| HeaderValue::try_from(etag.in_coding(Coding::Identity)).ok());
        (etag, last_modified)
    }

    /// Whether a response is a 304 about another response than the stored one.
    fn is_about_another<R>(&self, response: &Response<R>) -> bool {
        let is_other = |stored| has_another_tag(&self.stored_headers(stored), response.headers());
        self.route.follow_origin
            && response.status() == StatusCode::NOT_MODIFIED
            && self.stored.is_some_and(is_other)
    }

    /// Whether a stored response was selected by the same headers as this request has.
    fn selects(&self, stored_headers: &HeaderMap, stored: &Meta) -> bool {
        let content = &stored.generation.content;
        let names = variants::names(stored_headers).unwrap_or_default();
        content.initial_age.is_some() && content.variant == variants::digest(&names, &self.client.headers)
    }

    /// Whether a failure may be sent to all requests that waited: the response of an
    /// origin that saw the client's whole request may be for that client alone.
    fn is_shareable_failure(&self, head: &response::Parts) -> bool {
        if !self.route.follow_origin || head.extensions.get::<OriginUnreachable>().is_some() {
            return true;
        }
        let control = CacheControl::of_response(&head.headers);
        let is_forbidden = control.has(Directive::NoStore)
            || control.has(Directive::Private)
            || control.has(Directive::NoCache);
        let is_personal = has_credentials(&self.client.headers)
            || [SET_COOKIE, VARY].iter().any(|name| head.headers.contains_key(name));
        !is_forbidden && !is_personal
    }

    /// The outcome for a response that is not cached.
    fn declined(&self, reason: &UncacheableReason, response: Response<IsrBody>) -> Evaluated {
        tracing::debug!(%reason, page = %self.page.redacted(), "response not cached");
        let outcome = if *reason == UncacheableReason::MemoryFull {
            Render::MemoryFull
        } else if !self.route.follow_origin && reason.invalidates_page() {
            Render::Invalidate
        } else if self.is_requested_part(response.status()) {
            // A part that the client requested says nothing about the whole response, which other requests may share.
            Render::Uncacheable
        } else {
            // Hit-for-pass: for five seconds, other requests do not wait for a response that they could not share.
            Render::Declined
        };
        // If the origin did not get everything that the client sent, its response may be wrong for this client: return
        // none, and the caller forwards the whole request. A limit or a defect concerns every client alike, so that
        // response is returned; the caller still does not send it to a client with cookies.
        let fits_client = self.is_whole_request || reason.is_limit_or_defect();
        Evaluated { outcome: Ok(outcome), for_initiator: fits_client.then_some(response) }
    }

    fn is_requested_part(&self, status: StatusCode) -> bool {
        self.route.follow_origin
            && [StatusCode::PARTIAL_CONTENT, StatusCode::RANGE_NOT_SATISFIABLE].contains(&status)
            && self.stored.is_none()
            && self.client.headers.contains_key(RANGE)
    }

    /// Updates the stored response with the headers of a 304 or of a response to HEAD (RFC 9111 §4.3.4).
    pub(super) fn revalidated(
        &self,
        stored: &Meta,
        response: &HeaderMap,
        hint: Option<&CacheHint>,
        received: Timestamp,
    ) -> Render {
        let (content, follows_origin) = (&stored.generation.content, self.route.follow_origin);
        let stored_headers = self.stored_headers(stored);
        // A response for one client, or about another variant, must not change the stored one.
        if follows_origin && (response.contains_key(SET_COOKIE) || !self.selects(&stored_headers, stored)) {
            tracing::debug!(page = %self.page.redacted(), "revalidation ignored: it is for one client alone");
            return Render::Uncacheable;
        }
        let status = content.status.and_then(|status| StatusCode::from_u16(status).ok());
        // Tags are not among the stored headers of a rule's page, so these are the tags of the 304.
        let headers = updated(&stored_headers, response);
        let received = self.received(status.unwrap_or(StatusCode::OK), &headers, received);
        let storable = match (Received { hint, is_revalidated: true, ..received }).decide() {
            StoreDecision::Store(storable) => storable,
            StoreDecision::Decline(reason) | StoreDecision::Fail(reason) => {
                tracing::debug!(%reason, page = %self.page.redacted(), "unchanged, but no longer cacheable");
                let is_invalidated = !follows_origin && reason.invalidates_page();
                return if is_invalidated { Render::Invalidate } else { Render::Declined };
            }
        };
        let mut rendered = Rendered::unchanged(stored);
        rendered.revalidate = storable.fresh_for;
        rendered.content.initial_age = storable.initial_age;
        let is_never_fresh = storable.fresh_for == Some(Duration::ZERO);
        if follows_origin && is_never_fresh && has_credentials(&self.client.headers) {
            // Others get the stored response whenever stale ones are served, but not the headers of this client's response.
            return rendered.into();
        }
        rendered.content.tags = still_tagged(self.tags(&storable), &content.tags, self.route.tags.len());
        if follows_origin {
            rendered.content.content_type = text(&headers, &CONTENT_TYPE);
        }
        rendered.content.headers = storable.headers;
        rendered.content.variant = storable.variant;
        rendered.into()
    }

    fn rendered(&self, head: &response::Parts, storable: Storable, bytes: Bytes) -> Rendered {
        let content = Content {
            status: Some(head.status.as_u16()),
            content_type: text(&head.headers, &CONTENT_TYPE),
            tags: self.tags(&storable),
            headers: storable.headers,
            initial_age: storable.initial_age,
            variant: storable.variant,
            ..Content::default()
        };
        let mut rendered = Rendered { is_counted: true, ..Rendered::new(bytes, content) };
        // A rule's page gets another entity tag if the origin's is invalid.
        let is_used = |etag: &String| self.route.follow_origin || EntityTag::of_page(etag).is_some();
        rendered.etag = text(&head.headers, &ETAG).filter(is_used);
        rendered.revalidate = storable.fresh_for;
        rendered
    }

    /// The tags of the route, and those of the response.
    fn tags(&self, storable: &Storable) -> Vec<String> {
        if storable.ignored_tags > 0 {
            let (ignored, limit) = (storable.ignored_tags, MAX_TAGS);
            tabletheory::warn_limited!(ignored, limit, page = %self.page.redacted(), "ignored invalid or excess tags");
        }
        self.route.tags.iter().chain(&storable.tags).map(|tag| tag.as_str().to_owned()).collect()
    }

    fn stored_headers(&self, stored: &Meta) -> HeaderMap {
        restored(&stored.generation.content.headers, self.route.follow_origin)
    }
}

/// Returns the tags of a page that has not changed: the new ones, and as many of the old ones as the limit permits, since its
/// content may still have them.
fn still_tagged(mut tags: Vec<String>, before: &[String], of_route: usize) -> Vec<String> {
    let old = before.iter().filter(|tag| !tags.contains(tag)).cloned();
    let old: Vec<String> = old.take((MAX_TAGS + of_route).saturating_sub(tags.len())).collect();
    tags.extend(old);
    tags
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
