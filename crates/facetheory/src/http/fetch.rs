//! A service as a renderer: what it answers becomes a page, a failure, or an answer for one visitor alone.

use std::fmt;

use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, SET_COOKIE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, response};
use http_body::Body;
use http_body_util::BodyExt as _;
use tower::{Service, ServiceExt as _};

use crate::engine;
use crate::http::body::{BoxError, Collected, IsrBody, collect};
use crate::http::cacheability::{Answer, Kept, MAX_TAGS, UncacheableReason, Verdict};
use crate::http::compression::Coding;
use crate::http::headers::restored;
use crate::http::hint::CacheHint;
use crate::http::router::route::Route;
use crate::http::semantics::conditional::EntityTag;
use crate::http::semantics::revalidation::updated;
use crate::pages::render::{OriginUnreachable, Render, RenderContext, Rendered};
use crate::protocol::generation::Content;
use crate::protocol::row::Meta;

/// The longest body of a failure that is shown to all who waited for the render.
pub(super) const MAX_FAILURE_BYTES: u64 = 64 * 1024;

/// What a visitor asked for, as far as keeping the answer is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreContext<'a> {
    pub(super) route: &'a Route,
    pub(super) method: &'a Method,
    pub(super) authorized: bool,
    pub(super) max_bytes: u64,
    /// Whether the page may be kept, if it was not before.
    pub(super) welcome: bool,
    /// Whether the renderer sees all that the visitor sent.
    pub(super) whole: bool,
    /// Which deployment renders, if that is known.
    pub(super) deployment: Option<&'a str>,
}

/// The outcome of a request to the origin; the private value is a response that is not cached.
pub(super) type Rendering = engine::Rendering<Response<IsrBody>>;

/// Asks a service for a page.
pub(super) async fn render<S, B, R>(
    service: S,
    mut request: Request<B>,
    context: &RenderContext,
    wish: StoreContext<'_>,
) -> Rendering
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let conditional = context
        .served
        .as_ref()
        .filter(|served| wish.may_be_unchanged(served) && ask_whether_changed(request.headers_mut(), served));
    let response = match service.oneshot(request).await {
        Ok(response) => response,
        Err(error) => return Rendering { outcome: Err(error.into()), private: None },
    };
    let (head, body) = response.into_parts();
    if let Some(served) = conditional
        && head.status == StatusCode::NOT_MODIFIED
    {
        return Rendering { outcome: Ok(unchanged(wish, head, served)), private: None };
    }
    let body = body.map_err(Into::into).boxed_unsync();
    let told = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // What the headers alone forbid is not even read.
    match wish.verdict(&head, told.unwrap_or(1), true) {
        Verdict::Decline(reason) => wish.not_kept(&reason, Response::from_parts(head, IsrBody::passed(body))),
        Verdict::Fail(reason) => match collect(body, MAX_FAILURE_BYTES).await {
            Collected::Whole(bytes) => failed(reason, head, bytes),
            Collected::TooLong(body) => {
                let failure = FailedRender { reason, answer: None, silent: None };
                Rendering { outcome: Err(failure.into()), private: Some(Response::from_parts(head, body)) }
            }
            Collected::Broken(error) => Rendering { outcome: Err(error), private: None },
        },
        Verdict::Store(_) => match collect(body, wish.max_bytes).await {
            Collected::Whole(bytes) => match wish.verdict(&head, bytes.len() as u64, true) {
                Verdict::Store(kept) => {
                    Rendering { outcome: Ok(page(wish, &head, kept, bytes).into()), private: None }
                }
                Verdict::Decline(reason) => wish.not_kept(&reason, Response::from_parts(head, bytes.into())),
                Verdict::Fail(reason) => {
                    let failure = FailedRender { reason, answer: None, silent: None };
                    Rendering { outcome: Err(failure.into()), private: None }
                }
            },
            Collected::TooLong(body) => {
                let reason = UncacheableReason::TooLong { limit: wish.max_bytes };
                wish.not_kept(&reason, Response::from_parts(head, body))
            }
            Collected::Broken(error) => {
                tracing::warn!(%error, "the body of a page broke off");
                let failure = FailedRender::new(UncacheableReason::Truncated);
                Rendering { outcome: Err(failure.into()), private: None }
            }
        },
    }
}

impl StoreContext<'_> {
    /// Whether what is stored may still be right: what another deployment has rendered is not, whatever its tag says, and
    /// what must not be served would come back unseen.
    fn may_be_unchanged(&self, stored: &Meta) -> bool {
        let deployment = stored.generation.content.deployment.as_deref();
        !stored.must_not_serve && self.deployment.is_none_or(|ours| deployment == Some(ours))
    }

    /// An answer that is not kept, by which the renderer may take back what is. Where it may depend on what the renderer has
    /// not seen, it is nobody's: whoever waits is to ask with all of the request.
    fn not_kept(&self, reason: &UncacheableReason, own: Response<IsrBody>) -> Rendering {
        let mut rendering = declined(reason, own);
        rendering.private = rendering.private.filter(|_| self.whole || reason.is_for_all());
        if reason.takes_back() {
            rendering.outcome = Ok(Render::Invalidate);
        }
        rendering
    }

    /// The tags of its route, and those that its renderer gives it.
    fn tags(&self, kept: &Kept) -> Vec<String> {
        if kept.tags_left_out > 0 {
            tracing::warn!(left_out = kept.tags_left_out, "some tags of a page are none, or too many");
        }
        self.route.tags.iter().chain(&kept.tags).map(|tag| tag.as_str().to_owned()).collect()
    }

    fn verdict(&self, head: &response::Parts, bytes: u64, complete: bool) -> Verdict {
        let answer = Answer {
            method: self.method,
            authorized: self.authorized,
            status: head.status,
            headers: &head.headers,
            hint: head.extensions.get::<CacheHint>(),
            bytes,
            complete,
            welcome: self.welcome,
        };
        Verdict::of(&answer, &self.route.terms(self.max_bytes))
    }
}

/// Asks for the page only if it is another than the one that is served. False if nothing tells them apart.
fn ask_whether_changed(headers: &mut HeaderMap, served: &Meta) -> bool {
    let page = &served.generation;
    if page.follows_origin() {
        // What another rule has stored may be for one visitor only.
        return false;
    }
    let last_modified = restored(&page.content.headers).remove(LAST_MODIFIED);
    // A tag that we made of the content means nothing to the renderer, and would outweigh the date, which does.
    let is_ours = |etag: &EntityTag<'_>| {
        let digest = page.content.digest.as_deref().and_then(|digest| digest.strip_prefix("sha256:"));
        digest.is_some_and(|digest| !etag.opaque.is_empty() && digest.starts_with(etag.opaque))
    };
    let etag = page.etag.as_deref().and_then(EntityTag::of_page);
    let etag = etag.filter(|etag| last_modified.is_none() || !is_ours(etag));
    let etag = etag.and_then(|etag| HeaderValue::try_from(etag.in_coding(Coding::Identity)).ok());
    let asks = etag.is_some() || last_modified.is_some();
    let mut ask = |name: HeaderName, value: Option<HeaderValue>| {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    };
    ask(IF_NONE_MATCH, etag);
    ask(IF_MODIFIED_SINCE, last_modified);
    asks
}

/// The page that is served is still right, as the renderer says now that it is (RFC 9111 §4.3.4); unless it is to be kept no
/// longer: then visitors ask for themselves.
fn unchanged(wish: StoreContext<'_>, mut head: response::Parts, served: &Meta) -> Render {
    let content = &served.generation.content;
    let status = content.status.and_then(|status| StatusCode::from_u16(status).ok());
    head.status = status.unwrap_or(StatusCode::OK);
    // Tags are not kept as headers, so these are of what the renderer says now.
    head.headers = updated(&restored(&content.headers), &head.headers);
    let kept = match wish.verdict(&head, 1, true) {
        Verdict::Store(kept) => kept,
        Verdict::Decline(reason) | Verdict::Fail(reason) => {
            tracing::debug!(%reason, "a page has not changed, and is not to be kept any longer");
            return if reason.takes_back() { Render::Invalidate } else { Render::Declined };
        }
    };
    let mut rendered = Rendered::unchanged(served);
    rendered.content.tags = still_tagged(wish.tags(&kept), &content.tags, wish.route.tags.len());
    rendered.content.headers = kept.headers;
    rendered.revalidate = kept.revalidate;
    rendered.into()
}

/// The tags of a page that has not changed: those that it is given now, and those that it had, which may still be in it. Only
/// where that becomes too much, besides those of its route, is it left out.
pub(super) fn still_tagged(mut tags: Vec<String>, before: &[String], of_route: usize) -> Vec<String> {
    let left = before.iter().filter(|tag| !tags.contains(tag)).cloned();
    let left: Vec<String> = left.take((MAX_TAGS + of_route).saturating_sub(tags.len())).collect();
    tags.extend(left);
    tags
}

fn page(wish: StoreContext<'_>, head: &response::Parts, kept: Kept, bytes: Bytes) -> Rendered {
    let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    let content = Content {
        status: Some(head.status.as_u16()),
        content_type: text(CONTENT_TYPE).map(str::to_owned),
        tags: wish.tags(&kept),
        headers: kept.headers,
        ..Content::default()
    };
    let mut rendered = Rendered::new(bytes, content);
    rendered.etag = text(ETAG).filter(|etag| EntityTag::of_page(etag).is_some()).map(str::to_owned);
    rendered.revalidate = kept.revalidate;
    rendered
}

pub(super) fn declined(reason: &UncacheableReason, own: Response<IsrBody>) -> Rendering {
    tracing::debug!(%reason, "an answer is not kept");
    Rendering { outcome: Ok(Render::Declined), private: Some(own) }
}

pub(super) fn failed(reason: UncacheableReason, head: response::Parts, bytes: Bytes) -> Rendering {
    let silent = head.extensions.get::<OriginUnreachable>().copied();
    // What was set for one visitor is not for the others who waited.
    if head.headers.contains_key(SET_COOKIE) {
        let failure = FailedRender { reason, answer: None, silent };
        let private = Some(Response::from_parts(head, bytes.into()));
        return Rendering { outcome: Err(failure.into()), private };
    }
    let answer = Some((head.status, head.headers, bytes));
    Rendering { outcome: Err(FailedRender { reason, answer, silent }.into()), private: None }
}

/// Why a render failed, and what the renderer said to it, for all who waited.
#[derive(Debug)]
pub(super) struct FailedRender {
    reason: UncacheableReason,
    answer: Option<(StatusCode, HeaderMap, Bytes)>,
    /// Whether it was given in the place of somebody who did not answer.
    silent: Option<OriginUnreachable>,
}

impl FailedRender {
    /// A failure that the renderer said nothing to.
    pub(super) fn new(reason: UncacheableReason) -> Self {
        FailedRender { reason, answer: None, silent: None }
    }

    /// What the renderer said, if an error comes of that.
    pub(super) fn answer_in(error: &crate::Error) -> Option<Response<IsrBody>> {
        let (status, headers, bytes) = FailedRender::behind(error)?.answer.as_ref()?;
        let mut response = Response::new(IsrBody::from(bytes.clone()));
        *response.status_mut() = *status;
        *response.headers_mut() = headers.clone();
        Some(response)
    }

    /// With what status the renderer said something to the one visitor alone for whom it was asked, if it did.
    pub(super) fn of_another(error: &crate::Error) -> Option<StatusCode> {
        match FailedRender::behind(error)? {
            FailedRender { reason: UncacheableReason::ServerError(status), answer: None, .. } => {
                Some(*status)
            }
            _ => None,
        }
    }

    fn behind(error: &crate::Error) -> Option<&FailedRender> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(failure) = error.downcast_ref() {
                return Some(failure);
            }
            cause = error.source();
        }
        None
    }
}

impl fmt::Display for FailedRender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for FailedRender {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.silent.as_ref().map(|silent| silent as _)
    }
}
