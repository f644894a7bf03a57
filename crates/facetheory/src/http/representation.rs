//! A page in the coding of one response, and the part of it that a request selects by its conditions and its range
//! (RFC 9110 §13, §14). Every response with a page is made by these functions, on the fast path and behind it.

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE,
    ETAG, HeaderName, HeaderValue, LAST_MODIFIED, RANGE,
};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use http_body::SizeHint;
use tabletheory::Timestamp;

use crate::engine::CachedPage;
use crate::http::body::IsrBody;
use crate::http::compression::{Coding, choose};
use crate::http::headers::CONDITIONS;
use crate::http::router::route::Route;
use crate::http::semantics::conditional::{Condition, EntityTag, Validators, evaluate};
use crate::http::semantics::date::date_of;
use crate::http::semantics::range::Part;

/// Responses that never have a body.
const WITHOUT_BODY: [StatusCode; 2] = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];

/// A page in the coding that was negotiated. The coding is chosen once, since a page may get more compressed forms at any
/// moment.
#[derive(Clone, Debug)]
pub(super) struct Representation<'a> {
    page: &'a CachedPage,
    follows_origin: bool,
    pub(super) coding: Coding,
    bytes: Bytes,
}

/// The content of a response with a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// The page, or a range of it.
    Part(Part),
    /// Nothing: the client has the page.
    NotModified,
    /// Nothing: the page is not in the state that the client requires.
    Failed,
}

impl<'a> Representation<'a> {
    /// Chooses the coding of a response.
    pub(super) fn negotiate(page: &'a CachedPage, route: &Route, request: &HeaderMap) -> Self {
        let forms = page.compressed();
        let coding = if forms.is_empty() {
            Coding::Identity
        } else {
            choose(request, |coding| forms.iter().any(|(available, _)| *available == coding))
        };
        let form = forms.iter().find(|(available, _)| *available == coding);
        let bytes = form.map_or_else(|| page.bytes(), |(_, form)| form).clone();
        Representation { page, follows_origin: route.follow_origin, coding, bytes }
    }

    /// Evaluates the conditions and the range of a request.
    pub(super) fn select(&self, request: &Parts, now: Timestamp) -> Selection {
        const WHOLE: Selection = Selection::Part(Part::Whole);
        let is_selective = |name: &HeaderName| *name == RANGE || CONDITIONS.contains(name);
        if !request.headers.keys().any(is_selective) {
            return WHOLE;
        }
        let validators = self.validators();
        // A response without `Last-Modified` existed at its `Date` (RFC 9111 §4.3.2).
        let date = || if self.follows_origin { date_of(self.page.headers(), &DATE) } else { None };
        let last_modified = validators.last_modified.or_else(date);
        let compared = Validators { last_modified, ..validators };
        match evaluate(&request.headers, self.page.status(), &compared, now) {
            Condition::NotModified => Selection::NotModified,
            Condition::Failed => Selection::Failed,
            Condition::Send if request.method == Method::GET && self.status() == StatusCode::OK => {
                Selection::Part(Part::of(&request.headers, &validators, self.coding, self.bytes.len()))
            }
            Condition::Send => WHOLE,
        }
    }

    /// Returns the status and the headers of a response. `headers` are those of all responses with this representation.
    pub(super) fn head(&self, selection: &Selection, mut headers: HeaderMap) -> (StatusCode, HeaderMap) {
        let part = match selection {
            Selection::Part(part) => part,
            Selection::NotModified => {
                headers.remove(CONTENT_TYPE);
                headers.remove(CONTENT_ENCODING);
                if !self.follows_origin {
                    headers.remove(ACCEPT_RANGES);
                }
                return (StatusCode::NOT_MODIFIED, headers);
            }
            Selection::Failed => return failed(StatusCode::PRECONDITION_FAILED, headers),
        };
        let content_range = part.content_range(self.bytes.len());
        if let Some(range) = content_range.and_then(|range| HeaderValue::try_from(range).ok()) {
            headers.insert(CONTENT_RANGE, range);
        }
        let (status, length) = match part {
            Part::None => return failed(StatusCode::RANGE_NOT_SATISFIABLE, headers),
            Part::Bytes(range) => (StatusCode::PARTIAL_CONTENT, range.end() - range.start() + 1),
            Part::Whole => (self.status(), self.bytes.len()),
        };
        if !WITHOUT_BODY.contains(&status) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        (status, headers)
    }

    /// Returns the body of a response to this method.
    pub(super) fn body(&self, selection: &Selection, method: &Method) -> IsrBody {
        let bytes = match selection {
            Selection::NotModified => return IsrBody::unsent(SizeHint::new()),
            Selection::Part(Part::Whole) if WITHOUT_BODY.contains(&self.status()) => {
                return IsrBody::unsent(SizeHint::new());
            }
            Selection::Part(Part::Whole) => self.bytes.clone(),
            Selection::Part(Part::Bytes(range)) => self.bytes.slice(range.clone()),
            Selection::Part(Part::None) | Selection::Failed => Bytes::new(),
        };
        if *method == Method::HEAD {
            return IsrBody::unsent(SizeHint::with_exact(bytes.len() as u64));
        }
        IsrBody::from(bytes)
    }

    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.page.status()).unwrap_or(StatusCode::OK)
    }

    /// Returns what conditions are compared with: the origin's own validators, or those of the page, which has one entity tag
    /// in all its codings.
    fn validators(&self) -> Validators<'a> {
        let by_origin = || self.page.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        let is_exact = self.follows_origin;
        let etag = if is_exact { by_origin() } else { self.page.generation().etag.as_deref() };
        Validators {
            etag: etag.and_then(EntityTag::of_page),
            last_modified: date_of(self.page.headers(), &LAST_MODIFIED),
            exact: is_exact,
        }
    }
}

/// Returns an error about the condition or range of one request. It must not be cached: a cache in front of us would fail
/// the requests of others with it.
fn failed(status: StatusCode, mut headers: HeaderMap) -> (StatusCode, HeaderMap) {
    for name in [CONTENT_TYPE, CONTENT_ENCODING, ETAG, LAST_MODIFIED, AGE] {
        headers.remove(name);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    (status, headers)
}
