//! Asks an origin for a response, or whether the stored one is still right, and decides what is kept of its answer.

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, DATE, ETAG, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, SET_COOKIE, VARY,
};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, response};
use http_body::Body;
use http_body_util::BodyExt as _;
use tabletheory::Timestamp;
use tower::{Service, ServiceExt as _};

use crate::http::body::{BoxError, Collected, IsrBody, collect};
use crate::http::cacheability::UncacheableReason;
use crate::http::cacheability_rfc9111::{Limits, Received, Storing};
use crate::http::fetch::{FailedRender, MAX_FAILURE_BYTES, Rendering, declined, failed, still_tagged};
use crate::http::headers::restored_by_origin;
use crate::http::hint::CacheHint;
use crate::http::semantics::date::format_date;
use crate::http::semantics::directives::ResponseDirectives;
use crate::http::semantics::revalidation::{has_another_tag, updated};
use crate::http::variants;
use crate::pages::render::{OriginUnreachable, Render, Rendered};
use crate::protocol::epoch::Tag;
use crate::protocol::generation::Content;
use crate::protocol::row::Meta;

/// The conditions of a visitor, which we answer ourselves.
const CONDITIONS: [HeaderName; 4] = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];

/// What is asked for, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch<'a> {
    /// The visitor's request.
    pub(crate) visitor: &'a Parts,
    /// What is stored, if it is.
    pub(crate) stored: Option<&'a Meta>,
    /// Whether that is offered to the origin for validation. What must not be served is not: it would come back unseen.
    pub(crate) offered: bool,
    pub(crate) limits: Limits,
    /// What its route tags it with.
    pub(crate) tags: &'a [Tag],
    pub(crate) requested: Timestamp,
}

impl Fetch<'_> {
    /// The request that the origin gets: the visitor's own, with conditions of ours.
    fn request(&self) -> Request<()> {
        let mut request = self.unconditional();
        let Some(stored) = self.stored.filter(|_| self.offered) else { return request };
        let (headers, kept) = (request.headers_mut(), restored_by_origin(&stored.generation.content.headers));
        if self.selects(&kept, stored) {
            for (condition, name) in [(IF_NONE_MATCH, ETAG), (IF_MODIFIED_SINCE, LAST_MODIFIED)] {
                if let Some(value) = kept.get(name).filter(|value| !value.is_empty()) {
                    headers.insert(condition, value.clone());
                }
            }
        }
        request
    }

    /// The same without conditions.
    fn unconditional(&self) -> Request<()> {
        let visitor = self.visitor;
        let mut request = Request::new(());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = visitor.uri.clone();
        *request.version_mut() = visitor.version;
        *request.headers_mut() = visitor.headers.clone();
        *request.extensions_mut() = visitor.extensions.clone();
        let headers = request.headers_mut();
        CONDITIONS.iter().for_each(|name| drop(headers.remove(name)));
        // The whole of it is stored already, or will be.
        if self.stored.is_some() {
            [RANGE, IF_RANGE].iter().for_each(|name| drop(headers.remove(name)));
        }
        request
    }

    /// Asks an origin, with what this makes of a request.
    pub(crate) async fn ask<S, B, R>(
        &self,
        service: S,
        complete: impl Fn(Request<()>) -> Request<B>,
        now: impl Fn() -> Timestamp,
    ) -> (Rendering, Option<StatusCode>)
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        S::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let mut request = self.request();
        let (response, conditional) = loop {
            let conditional = CONDITIONS.iter().any(|name| request.headers().contains_key(name));
            match service.clone().oneshot(complete(request)).await {
                // It says nothing of what is stored, so all of what it is of is asked for (RFC 9111 §4.3.4).
                Ok(response) if conditional && self.is_of_another(&response) => {
                    request = self.unconditional();
                }
                Ok(response) => break (response, conditional),
                Err(error) => return (Rendering { outcome: Err(error.into()), private: None }, None),
            }
        };
        let (status, received) = (response.status(), now());
        (self.weigh(response, conditional, received).await, Some(status))
    }

    async fn weigh<R>(&self, response: Response<R>, conditional: bool, received: Timestamp) -> Rendering
    where
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (mut head, body) = response.into_parts();
        // Whoever keeps or passes on what has no date dates it (RFC 9110 §6.6.1).
        if let (false, Some(date)) = (head.headers.contains_key(DATE), format_date(received)) {
            head.headers.extend(HeaderValue::try_from(date).ok().map(|date| (DATE, date)));
        }
        if let (Some(stored), true, StatusCode::NOT_MODIFIED) = (self.stored, conditional, head.status) {
            return Rendering { outcome: Ok(self.freshened(stored, &head.headers, received)), private: None };
        }
        let body = body.map_err(Into::into).boxed_unsync();
        // A failure while something is stored is for whoever knows whether that may be served (RFC 9111 §4.3.3).
        if head.status.is_server_error() && self.stored.is_some_and(|stored| !is_failure(stored)) {
            let reason = UncacheableReason::ServerError(head.status);
            if !self.is_for_everyone(&head) {
                let (failure, body) = (FailedRender::new(reason), IsrBody::passed(body));
                return Rendering {
                    outcome: Err(failure.into()),
                    private: Some(Response::from_parts(head, body)),
                };
            }
            return match collect(body, MAX_FAILURE_BYTES).await {
                Collected::Whole(bytes) => failed(reason, head, bytes),
                Collected::TooLong(body) => {
                    let failure = FailedRender::new(reason);
                    Rendering {
                        outcome: Err(failure.into()),
                        private: Some(Response::from_parts(head, body)),
                    }
                }
                Collected::Broken(error) => Rendering { outcome: Err(error), private: None },
            };
        }
        let told = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let storing = match self.storing(&head, told.unwrap_or(0), received) {
            Ok(storing) => storing,
            // Whoever asked for a part got one, which says nothing of the whole.
            Err(reason) if self.is_partial(&head) => {
                let rendering = declined(&reason, Response::from_parts(head, IsrBody::passed(body)));
                return Rendering { outcome: Ok(Render::Uncacheable), ..rendering };
            }
            Err(reason) => return declined(&reason, Response::from_parts(head, IsrBody::passed(body))),
        };
        match collect(body, self.limits.max_bytes).await {
            Collected::Whole(bytes) if told.is_some_and(|told| told != bytes.len() as u64) => Rendering {
                outcome: Err(FailedRender::new(UncacheableReason::Truncated).into()),
                private: None,
            },
            Collected::Whole(bytes) => {
                Rendering { outcome: Ok(page(&head, storing, self.tags, bytes).into()), private: None }
            }
            Collected::TooLong(body) => {
                let reason = UncacheableReason::TooLong { limit: self.limits.max_bytes };
                declined(&reason, Response::from_parts(head, body))
            }
            Collected::Broken(error) => {
                tracing::warn!(%error, "the body of a response broke off");
                Rendering {
                    outcome: Err(FailedRender::new(UncacheableReason::Truncated).into()),
                    private: None,
                }
            }
        }
    }

    fn storing(
        &self,
        head: &response::Parts,
        bytes: u64,
        received: Timestamp,
    ) -> Result<Storing, UncacheableReason> {
        let hint = head.extensions.get::<CacheHint>();
        Received { hint, bytes, ..self.received(head.status, &head.headers, received) }.storing(self.limits)
    }

    fn received<'a>(
        &'a self,
        status: StatusCode,
        headers: &'a HeaderMap,
        received: Timestamp,
    ) -> Received<'a> {
        let (requested, request) = (self.requested, &self.visitor.headers);
        let (hint, bytes) = (None, 0);
        Received { method: &Method::GET, request, status, headers, hint, bytes, requested, received }
    }

    /// Whether it is a 304 of another response than the one that is stored.
    fn is_of_another<R>(&self, response: &Response<R>) -> bool {
        let kept = |stored: &Meta| restored_by_origin(&stored.generation.content.headers);
        response.status() == StatusCode::NOT_MODIFIED
            && self.stored.is_some_and(|stored| has_another_tag(&kept(stored), response.headers()))
    }

    /// Whether a failure says nothing that may be for this visitor alone, so that all who waited may see it.
    fn is_for_everyone(&self, head: &response::Parts) -> bool {
        if head.extensions.get::<OriginUnreachable>().is_some() {
            return true;
        }
        let (said, visitor) = (ResponseDirectives::of(&head.headers).control, &self.visitor.headers);
        let forbidden = said.no_store || said.private.is_some() || said.no_cache.is_some();
        let own = [COOKIE, AUTHORIZATION].iter().any(|name| visitor.contains_key(name))
            || [SET_COOKIE, VARY].iter().any(|name| head.headers.contains_key(name));
        !forbidden && !own
    }

    fn is_partial(&self, head: &response::Parts) -> bool {
        let partial = [StatusCode::PARTIAL_CONTENT, StatusCode::RANGE_NOT_SATISFIABLE].contains(&head.status);
        partial && self.stored.is_none() && self.visitor.headers.contains_key(RANGE)
    }

    fn selects(&self, kept: &HeaderMap, stored: &Meta) -> bool {
        let content = &stored.generation.content;
        let names = variants::names(kept).unwrap_or_default();
        content.initial_age.is_some() && content.variant == variants::digest(&names, &self.visitor.headers)
    }

    /// The stored response, as its origin says that it still is (RFC 9111 §4.3.4); nothing if it is to be kept no longer.
    pub(crate) fn freshened(&self, stored: &Meta, answer: &HeaderMap, received: Timestamp) -> Render {
        let content = &stored.generation.content;
        let status =
            content.status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
        let kept = restored_by_origin(&content.headers);
        // What is said to one visitor alone, or of what another selects, is nothing to keep for all.
        if answer.contains_key(SET_COOKIE) || !self.selects(&kept, stored) {
            tracing::debug!("a response has not changed, which is told to one visitor alone");
            return Render::Uncacheable;
        }
        let headers = updated(&kept, answer);
        let storing = match self.received(status, &headers, received).still_storing(self.limits) {
            Ok(storing) => storing,
            Err(reason) => {
                tracing::debug!(%reason, "a response has not changed, and is not to be kept any longer");
                return Render::Declined;
            }
        };
        let mut rendered = Rendered::unchanged(stored);
        let tags = self.tags.iter().chain(&storing.tags).map(|tag| tag.as_str().to_owned()).collect();
        rendered.content.tags = still_tagged(tags, &content.tags, self.tags.len());
        rendered.content.headers = storing.headers;
        rendered.content.content_type = text(&headers, &CONTENT_TYPE);
        rendered.content.initial_age = Some(storing.initial_age);
        rendered.content.variant = storing.variant;
        rendered.revalidate = Some(storing.fresh_for);
        rendered.into()
    }
}

/// Whether what is stored is a failure itself, which protects nobody from another.
fn is_failure(stored: &Meta) -> bool {
    stored.generation.content.status.is_some_and(|status| status >= 500)
}

fn page(head: &response::Parts, storing: Storing, tags: &[Tag], bytes: Bytes) -> Rendered {
    let mut content = Content {
        status: Some(head.status.as_u16()),
        content_type: text(&head.headers, &CONTENT_TYPE),
        headers: storing.headers,
        initial_age: Some(storing.initial_age),
        variant: storing.variant,
        ..Content::default()
    };
    content.tags.extend(tags.iter().chain(&storing.tags).map(|tag| tag.as_str().to_owned()));
    let mut rendered = Rendered::new(bytes, content);
    rendered.etag = text(&head.headers, &ETAG);
    rendered.revalidate = Some(storing.fresh_for);
    rendered
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

#[cfg(test)]
mod tests;
