//! From a stored response to what a visitor gets: as its origin sent it, with `Age` (RFC 9111 §4 and §4.3.2).

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderValue,
    LAST_MODIFIED,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::{Body as _, SizeHint};
use tabletheory::Timestamp;

use crate::engine::Served;
use crate::engine::state::State;
use crate::http::body::IsrBody;
use crate::http::compression::Coding;
use crate::http::respond::{refusing, reply, slice, tell};
use crate::http::semantics::cache_status::CacheStatus;
use crate::http::semantics::conditional::{Condition, EntityTag, Validators, evaluate};
use crate::http::semantics::date::date_of;
use crate::http::semantics::range::Part;
use crate::http::semantics::reuse::{age, left};

/// How a visitor came to a response, besides its state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForwardInfo<'a> {
    /// Under which key the response is kept.
    pub(crate) key: &'a str,
    /// Why the origin was asked, in the words of RFC 9211.
    pub(crate) forward: Option<&'static str>,
    /// What it answered to this visitor's request.
    pub(crate) answered: Option<StatusCode>,
}

/// A stored response, as a visitor gets it.
pub(crate) fn page(
    parts: &Parts,
    served: &Served,
    way: ForwardInfo<'_>,
    now: Timestamp,
    id: &HeaderValue,
) -> Response<IsrBody> {
    let page = &*served.page;
    let mut headers = headers(served, way, now, id);
    let etag = page.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
    let validators = Validators {
        etag: etag.and_then(EntityTag::of_page),
        last_modified: date_of(page.headers(), &LAST_MODIFIED),
        exact: true,
    };
    // What does not say when it was modified was there on its date (RFC 9111 §4.3.2).
    let last_modified = validators.last_modified.or_else(|| date_of(page.headers(), &DATE));
    let there = Validators { last_modified, ..validators };
    match evaluate(&parts.headers, page.status(), &there, now) {
        Condition::Send => {}
        Condition::NotModified => {
            for name in [CONTENT_TYPE, CONTENT_ENCODING] {
                headers.remove(name);
            }
            return reply(StatusCode::NOT_MODIFIED, headers, IsrBody::unsent(SizeHint::new()));
        }
        Condition::Failed => return refusing(StatusCode::PRECONDITION_FAILED, headers),
    }
    let bytes = page.bytes().clone();
    let length = bytes.len() as u64;
    let status = StatusCode::from_u16(page.status()).unwrap_or(StatusCode::OK);
    let part = if parts.method == Method::GET && status == StatusCode::OK {
        Part::of(&parts.headers, &validators, Coding::Identity, length)
    } else {
        Part::Whole
    };
    if let Some(range) = part.content_range(length).and_then(|range| HeaderValue::try_from(range).ok()) {
        headers.insert(CONTENT_RANGE, range);
    }
    let (status, bytes) = match part {
        Part::None => return refusing(StatusCode::RANGE_NOT_SATISFIABLE, headers),
        Part::Bytes(range) => (StatusCode::PARTIAL_CONTENT, slice(&bytes, *range.start(), *range.end())),
        Part::Whole => (status, bytes),
    };
    if status != StatusCode::NO_CONTENT {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    }
    let body = IsrBody::from(bytes);
    let body = if parts.method == Method::HEAD { IsrBody::unsent(body.size_hint()) } else { body };
    reply(status, headers, body)
}

fn headers(served: &Served, way: ForwardInfo<'_>, now: Timestamp, id: &HeaderValue) -> HeaderMap {
    let page = &*served.page;
    let mut headers = page.headers().clone();
    let mut status = CacheStatus::of(served.state);
    status.forward = way.forward;
    status.rendered = way.answered;
    if served.state == State::Bypass {
        status.detail = Some("not-published");
    } else {
        status.stored = served.state == State::Miss;
        status.ttl = Some(left(page, now));
        status.key = Some(way.key);
    }
    let new = matches!(served.state, State::Miss | State::Bypass);
    // What has just come has the age that it came with.
    let age =
        if new { page.generation().content.initial_age.unwrap_or(0) } else { age(page.generation(), now) };
    if !new || age > 0 {
        headers.insert(AGE, HeaderValue::from(age));
    }
    tell(&mut headers, &status, id);
    headers
}
