//! ResponseCache that many visitors get within a second: their headers are put together once, and then copied.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};

use crate::engine::{CachedPage, Served};
use crate::http::body::IsrBody;
use crate::http::compression::Coding;
use crate::http::headers::REQUEST_ID;
use crate::http::respond::Visitor;
use crate::protocol::key::PageKey;

/// The most replies that are prepared. Pages share these places, and the last one to come has it.
const PLACES: usize = 1024;

/// The replies that visitors got last.
#[derive(Debug)]
pub(super) struct ResponseCache(Box<[ArcSwapOption<Prepared>]>);

impl Default for ResponseCache {
    fn default() -> Self {
        ResponseCache((0..PLACES).map(|_| ArcSwapOption::empty()).collect())
    }
}

/// The head of a reply, and for whom it is right: whoever asks plainly for this page while it is fresh, by the same route,
/// in the same second, and gets it in the same coding.
#[derive(Debug)]
struct Prepared {
    /// It does not keep the page, but no other page can come to lie where this one does.
    page: Weak<CachedPage>,
    second: i64,
    route: Arc<str>,
    coding: Coding,
    status: StatusCode,
    headers: HeaderMap,
    /// The same as a connection of HTTP/1.1 sends it, up to the id of the request: made when it is first asked for.
    http1: OnceLock<Bytes>,
}

/// A page that is at hand, as its visitor gets it: from [`IsrService::get_fresh`](crate::IsrService::get_fresh).
///
/// ```no_run
/// # fn f(service: facetheory::IsrService<()>, request: http::request::Parts) {
/// if let Some(hit) = service.get_fresh(&request, &service.resolve(&request)) {
///     assert_eq!(hit.into_response().headers()["x-facetheory-isr"], "hit");
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Hit<'a> {
    prepared: Arc<Prepared>,
    id: HeaderValue,
    bytes: Bytes,
    pub(super) page: Option<Cow<'a, PageKey>>,
}

impl Hit<'_> {
    /// Its status.
    ///
    /// ```no_run
    /// # fn f(hit: facetheory::Hit<'_>) {
    /// assert_eq!(hit.status(), http::StatusCode::OK);
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.prepared.status
    }

    /// The bytes of its body.
    ///
    /// ```no_run
    /// # fn f(hit: facetheory::Hit<'_>) {
    /// assert!(!hit.body().is_empty());
    /// # }
    /// ```
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.bytes
    }

    /// The key of the page, where [the layer tells it](crate::IsrLayer::expose_page_key).
    ///
    /// ```no_run
    /// # fn f(hit: facetheory::Hit<'_>) {
    /// let key = hit.page().map(|page| page.redacted().to_string());
    /// # }
    /// ```
    #[must_use]
    pub fn page(&self) -> Option<&PageKey> {
        self.page.as_deref()
    }

    /// As a response, whatever protocol it is sent with.
    ///
    /// ```no_run
    /// # fn f(hit: facetheory::Hit<'_>) {
    /// assert_eq!(hit.into_response().status(), http::StatusCode::OK);
    /// # }
    /// ```
    #[must_use]
    pub fn into_response(self) -> Response<IsrBody> {
        let mut response = Response::new(IsrBody::from(self.bytes));
        *response.status_mut() = self.prepared.status;
        *response.headers_mut() = self.prepared.headers.clone();
        response.headers_mut().insert(REQUEST_ID, self.id);
        if let Some(page) = self.page {
            response.extensions_mut().insert(page.into_owned());
        }
        response
    }

    /// Everything that a connection of HTTP/1.1 sends before the body, for servers that write it themselves: putting it
    /// together from a response takes longer than all else about a hit. It is for connections that go on after it, and not
    /// for a status that has no body (1xx, 204, 304).
    ///
    /// ```no_run
    /// # fn f(hit: facetheory::Hit<'_>) {
    /// assert!(hit.http1_head().starts_with(b"HTTP/1.1 200 OK\r\n"));
    /// # }
    /// ```
    #[must_use]
    pub fn http1_head(&self) -> Bytes {
        const END: &[u8] = b"\r\n\r\n";
        let begun = self.prepared.http1.get_or_init(|| self.prepared.http1());
        let mut head = Vec::with_capacity(begun.len() + self.id.len() + END.len());
        head.extend_from_slice(begun);
        head.extend_from_slice(self.id.as_bytes());
        head.extend_from_slice(END);
        head.into()
    }
}

impl Prepared {
    fn http1(&self) -> Bytes {
        let mut head = Vec::with_capacity(1024);
        let mut add = |piece: &[u8]| head.extend_from_slice(piece);
        add(b"HTTP/1.1 ");
        add(self.status.as_str().as_bytes());
        add(b" ");
        add(self.status.canonical_reason().unwrap_or_default().as_bytes());
        add(b"\r\n");
        for (name, value) in self.headers.iter().filter(|(name, _)| **name != REQUEST_ID) {
            add(name.as_str().as_bytes());
            add(b": ");
            add(value.as_bytes());
            add(b"\r\n");
        }
        add(REQUEST_ID.as_str().as_bytes());
        add(b": ");
        head.into()
    }
}

/// Whether a request asks for the whole of a page, whatever its visitor has of it already.
pub(super) fn is_plain(request: &Parts) -> bool {
    const ASKING_FOR_LESS: [http::HeaderName; 5] =
        [IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE, IF_MATCH, IF_UNMODIFIED_SINCE];
    request.method == Method::GET && !request.headers.keys().any(|name| ASKING_FOR_LESS.contains(name))
}

impl ResponseCache {
    /// A page that is fresh, as this visitor gets it who [asks plainly](is_plain). What makes the response is asked at most
    /// once a second.
    pub(super) fn reply<'a>(
        &self,
        visitor: &Visitor<'_>,
        served: &Served,
        (coding, bytes): (Coding, Bytes),
        response: impl FnOnce((Coding, Bytes)) -> Response<IsrBody>,
    ) -> Hit<'a> {
        let (second, route) = (visitor.now.seconds(), &visitor.route.name);
        let place = self.place(&served.page);
        let last = place.load();
        let last = last.as_ref().filter(|prepared| {
            std::ptr::eq(prepared.page.as_ptr(), Arc::as_ptr(&served.page))
                && prepared.second == second
                && prepared.coding == coding
                && Arc::ptr_eq(&prepared.route, route)
        });
        let prepared = last.cloned().unwrap_or_else(|| {
            let (head, _) = response((coding, bytes.clone())).into_parts();
            let prepared = Arc::new(Prepared {
                page: Arc::downgrade(&served.page),
                second,
                route: route.clone(),
                coding,
                status: head.status,
                headers: head.headers,
                http1: OnceLock::new(),
            });
            place.store(Some(prepared.clone()));
            prepared
        });
        Hit { prepared, id: visitor.id.clone(), bytes, page: None }
    }

    fn place(&self, page: &Arc<CachedPage>) -> &ArcSwapOption<Prepared> {
        // Pages lie at multiples of some bytes, so the lowest bits of where they lie say little.
        let number = Arc::as_ptr(page).addr() / size_of::<CachedPage>();
        &self.0[number % PLACES]
    }
}
