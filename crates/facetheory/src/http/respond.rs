//! From a page to the response that a visitor gets: conditions, ranges, codings, and what is told of it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, DATE, ETAG, HeaderName, HeaderValue, LAST_MODIFIED, VARY,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::{Body as _, SizeHint};
use tabletheory::Timestamp;

use crate::engine::state::State;
use crate::engine::{CachedPage, Served};
use crate::http::body::IsrBody;
use crate::http::compression::{Coding, choose};
use crate::http::headers::{CACHE_STATUS, REQUEST_ID, STATE, remove_hop_by_hop_headers};
use crate::http::router::rejection::Rejection;
use crate::http::router::route::Route;
use crate::http::semantics::cache_control::{self, CacheControl, Lifetime};
use crate::http::semantics::cache_status::CacheStatus;
use crate::http::semantics::conditional::{Condition, EntityTag, Validators, evaluate};
use crate::http::semantics::date::{date_of, format_date};
use crate::http::semantics::range::Part;
use crate::http::semantics::vary;

/// What a visitor asked for, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visitor<'a> {
    pub(super) parts: &'a Parts,
    pub(super) route: &'a Route,
    pub(super) now: Timestamp,
    /// The id of the request.
    pub(super) id: &'a HeaderValue,
}

impl Visitor<'_> {
    /// The page, as this visitor gets it.
    pub(super) fn page(&self, served: &Served) -> Response<IsrBody> {
        self.coded_page(served, coded(&served.page, &self.parts.headers))
    }

    /// The same in a coding that was chosen before. It is chosen once, since a page may get more of them at any moment.
    pub(super) fn coded_page(&self, served: &Served, (coding, bytes): (Coding, Bytes)) -> Response<IsrBody> {
        let page = &*served.page;
        let asked = &self.parts.headers;
        let mut headers = self.headers(served, coding);
        let validators = Validators {
            etag: page.generation().etag.as_deref().and_then(EntityTag::of_page),
            last_modified: date_of(&headers, &LAST_MODIFIED),
            exact: false,
        };
        match evaluate(asked, page.status(), &validators, self.now) {
            Condition::Send => {}
            Condition::NotModified => {
                for name in [CONTENT_TYPE, CONTENT_ENCODING, ACCEPT_RANGES] {
                    headers.remove(name);
                }
                return reply(StatusCode::NOT_MODIFIED, headers, IsrBody::unsent(SizeHint::new()));
            }
            Condition::Failed => return refusing(StatusCode::PRECONDITION_FAILED, headers),
        }
        let length = bytes.len() as u64;
        let status = StatusCode::from_u16(page.status()).unwrap_or(StatusCode::OK);
        let part = if self.parts.method == Method::GET && status == StatusCode::OK {
            Part::of(asked, &validators, coding, length)
        } else {
            Part::Whole
        };
        if let Some(range) = part.content_range(length).and_then(|range| HeaderValue::try_from(range).ok()) {
            headers.insert(CONTENT_RANGE, range);
        }
        if part == Part::None {
            return refusing(StatusCode::RANGE_NOT_SATISFIABLE, headers);
        }
        let (status, bytes) = match part {
            Part::Bytes(range) => (StatusCode::PARTIAL_CONTENT, slice(&bytes, *range.start(), *range.end())),
            Part::Whole | Part::None => (status, bytes),
        };
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        let body = IsrBody::from(bytes);
        let body = if self.parts.method == Method::HEAD { IsrBody::unsent(body.size_hint()) } else { body };
        reply(status, headers, body)
    }

    fn headers(&self, served: &Served, coding: Coding) -> HeaderMap {
        let (page, route) = (&*served.page, self.route);
        let generation = page.generation();
        let mut headers = page.headers().clone();
        let mut set = |name: HeaderName, value: Option<HeaderValue>| {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        };
        let text = |text: &str| HeaderValue::from_str(text).ok();
        set(CONTENT_TYPE, page.content_type().and_then(text));
        if let Some(policy) = page.content_security_policy() {
            set(CONTENT_SECURITY_POLICY, text(policy));
        }
        let etag = generation.etag.as_deref().and_then(EntityTag::of_page);
        set(ETAG, etag.and_then(|etag| HeaderValue::try_from(etag.in_coding(coding)).ok()));
        set(CONTENT_ENCODING, coding.as_str().map(HeaderValue::from_static));
        set(VARY, vary::told(page.headers(), route, page.has_or_gets_compressed_forms()));
        set(ACCEPT_RANGES, Some(HeaderValue::from_static("bytes")));
        set(DATE, format_date(self.now).and_then(|date| HeaderValue::try_from(date).ok()));
        let mut status = CacheStatus::of(served.state);
        if served.state == State::Bypass {
            // It was rendered for this visitor, and could not be published.
            set(CACHE_CONTROL, Some(HeaderValue::from_static("no-store")));
            status.detail = Some("not-published");
        } else {
            let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            let age = self.now.seconds().saturating_sub(generation.generated_at).max(0);
            let left = generation.revalidate_seconds.saturating_sub(age);
            let fresh = matches!(served.state, State::Hit | State::Miss | State::WaitHit);
            let life = Lifetime {
                age: seconds(age),
                interval: seconds(generation.revalidate_seconds),
                remaining: if fresh { seconds(left) } else { Duration::ZERO },
            };
            let said = CacheControl::of(page.headers());
            set(CACHE_CONTROL, Some(cache_control::told(&route.policy, life, route.audience(), &said)));
            set(AGE, Some(HeaderValue::from(life.age.as_secs())));
            // Of a page that was made stale before its time, nobody knows since when.
            status.ttl = (fresh || left <= 0).then_some(left);
            status.stored = served.state == State::Miss;
            status.rendered = status.stored.then(|| StatusCode::from_u16(page.status()).ok()).flatten();
        }
        tell(&mut headers, &status, self.id);
        headers
    }
}

/// An answer of the renderer's own, which is not kept.
pub(super) fn passed(
    mut response: Response<IsrBody>,
    detail: &'static str,
    id: &HeaderValue,
    head_only: bool,
) -> Response<IsrBody> {
    let mut status = CacheStatus::of(State::Bypass);
    status.rendered = Some(response.status());
    status.detail = Some(detail);
    tell(response.headers_mut(), &status, id);
    if head_only { without_body(response) } else { response }
}

/// The same for a HEAD: how long the body would be is told, and it is not sent.
pub(super) fn without_body(mut response: Response<IsrBody>) -> Response<IsrBody> {
    let length = response.body().size_hint();
    if let (Some(length), false) = (length.exact(), response.headers().contains_key(CONTENT_LENGTH)) {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = IsrBody::unsent(length);
    response
}

/// The same, of an answer that came through a cache and may have said things about another connection.
pub(super) fn without_hops(mut response: Response<IsrBody>) -> Response<IsrBody> {
    remove_hop_by_hop_headers(response.headers_mut());
    response
}

/// An error that is told in words.
pub(super) fn refused(refusal: &Rejection, detail: &'static str, id: &HeaderValue) -> Response<IsrBody> {
    let mut response = Response::new(IsrBody::from(format!("{}\n", refusal.text)));
    *response.status_mut() = refusal.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let mut status = CacheStatus::of(State::Bypass);
    status.detail = Some(detail);
    tell(headers, &status, id);
    response
}

pub(super) fn tell(headers: &mut HeaderMap, status: &CacheStatus<'_>, id: &HeaderValue) {
    headers.insert(STATE, HeaderValue::from_static(status.state.as_str()));
    // Caches behind us have told their part already (RFC 9211 §2).
    headers.append(CACHE_STATUS, status.value());
    headers.insert(REQUEST_ID, id.clone());
}

/// The coding that a visitor gets a page in, and its bytes.
pub(super) fn coded(page: &CachedPage, asked: &HeaderMap) -> (Coding, Bytes) {
    let forms = page.compressed();
    if forms.is_empty() {
        return (Coding::Identity, page.bytes().clone());
    }
    let available: Vec<Coding> = forms.iter().map(|(coding, _)| *coding).collect();
    let coding = choose(asked, &available);
    let form = forms.iter().find(|(available, _)| *available == coding);
    (coding, form.map_or_else(|| page.bytes(), |(_, form)| form).clone())
}

pub(super) fn slice(bytes: &Bytes, first: u64, last: u64) -> Bytes {
    let index = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(bytes.len());
    let (first, end) = (index(first), index(last.saturating_add(1)));
    bytes.slice(first.min(end)..end)
}

/// What a visitor asked for cannot be had of this page. That is for this visitor alone: a cache in front of us that kept it
/// would refuse the page to everyone.
pub(super) fn refusing(status: StatusCode, mut headers: HeaderMap) -> Response<IsrBody> {
    for name in [CONTENT_TYPE, CONTENT_ENCODING, ETAG, LAST_MODIFIED, AGE] {
        headers.remove(name);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    reply(status, headers, IsrBody::from(Bytes::new()))
}

pub(super) fn reply(status: StatusCode, headers: HeaderMap, body: IsrBody) -> Response<IsrBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
