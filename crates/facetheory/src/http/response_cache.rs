//! Heads of hits, built once a second for each page and then copied.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderMap, Response, StatusCode};

use crate::engine::{CachedPage, Served};
use crate::http::body::IsrBody;
use crate::http::compression::Coding;
use crate::http::headers::REQUEST_ID;
use crate::http::representation::{Representation, Selection};
use crate::http::respond::{self, ResponseContext};
use crate::http::semantics::range::Part;
use crate::protocol::key::PageKey;

/// The number of cached heads. Pages share these slots, and the latest page replaces the others.
const SLOTS: usize = 1024;

/// The heads of the latest hits.
#[derive(Debug)]
pub(super) struct ResponseCache(Box<[ArcSwapOption<Prepared>]>);

impl Default for ResponseCache {
    fn default() -> Self {
        ResponseCache((0..SLOTS).map(|_| ArcSwapOption::empty()).collect())
    }
}

/// The head of a response, for requests that select the same of this page while it is fresh, by the same route, in the same
/// second and coding.
#[derive(Debug)]
struct Prepared {
    /// A weak reference does not keep the page in memory, but no other page can have its address.
    page: Weak<CachedPage>,
    second: i64,
    route: Arc<str>,
    coding: Coding,
    selection: Selection,
    status: StatusCode,
    headers: HeaderMap,
    /// The head in the format of HTTP/1.1, up to the request id. Built on first use.
    http1: OnceLock<Bytes>,
}

/// The response with a page that is in memory and fresh: from [`IsrService::get_fresh`](crate::IsrService::get_fresh).
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
    body: IsrBody,
    pub(super) page: Option<Cow<'a, PageKey>>,
}

impl Hit<'_> {
    /// The status.
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

    /// The body as it is sent: empty for `HEAD`, and for a status that has none.
    ///
    /// ```no_run
    /// # fn f(hit: facetheory::Hit<'_>) {
    /// assert!(hit.status() == http::StatusCode::NOT_MODIFIED || !hit.body().is_empty());
    /// # }
    /// ```
    #[must_use]
    pub fn body(&self) -> Bytes {
        self.body.in_memory()
    }

    /// The key of the page, if the layer [exposes it](crate::IsrLayer::expose_page_key).
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

    /// Converts the hit to a response.
    ///
    /// ```no_run
    /// # fn f(hit: facetheory::Hit<'_>) {
    /// assert_eq!(hit.into_response().status(), http::StatusCode::OK);
    /// # }
    /// ```
    #[must_use]
    pub fn into_response(self) -> Response<IsrBody> {
        let (status, headers) = (self.prepared.status, self.prepared.headers.clone());
        let mut response = respond::response(status, headers, self.body);
        response.headers_mut().insert(REQUEST_ID, self.id);
        if let Some(page) = self.page {
            response.extensions_mut().insert(page.into_owned());
        }
        response
    }

    /// Returns everything that an HTTP/1.1 connection sends before the body, for servers that write it themselves:
    /// serializing a response takes longer than the rest of a hit. Only for connections that stay open, and not for an
    /// informational status (1xx).
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

impl ResponseCache {
    /// Returns the response with a fresh page. `headers` builds the headers of a representation; it is called at most once a
    /// second for each page, route, coding and selection.
    pub(super) fn get_or_build<'a>(
        &self,
        context: &ResponseContext<'_>,
        served: &Served,
        headers: impl FnOnce(Coding) -> HeaderMap,
    ) -> Hit<'a> {
        let page = Representation::negotiate(&served.page, context.route, &context.request.headers);
        let selection = page.select(context.request, context.now);
        let body = page.body(&selection, &context.request.method);
        let (second, route) = (context.now.seconds(), &context.route.name);
        let slot = self.slot(&served.page, page.coding, &selection);
        let last = slot.load();
        let last = last.as_ref().filter(|prepared| {
            std::ptr::eq(prepared.page.as_ptr(), Arc::as_ptr(&served.page))
                && prepared.second == second
                && prepared.coding == page.coding
                && prepared.selection == selection
                && Arc::ptr_eq(&prepared.route, route)
        });
        let prepared = last.cloned().unwrap_or_else(|| {
            let (status, headers) = page.head(&selection, headers(page.coding));
            let prepared = Arc::new(Prepared {
                page: Arc::downgrade(&served.page),
                second,
                route: route.clone(),
                coding: page.coding,
                selection,
                status,
                headers,
                http1: OnceLock::new(),
            });
            slot.store(Some(prepared.clone()));
            prepared
        });
        Hit { prepared, id: context.request_id.clone(), body, page: None }
    }

    /// Returns the slot of a head. The codings of a page, and whole pages, 304 and parts, do not replace each other.
    fn slot(
        &self,
        page: &Arc<CachedPage>,
        coding: Coding,
        selection: &Selection,
    ) -> &ArcSwapOption<Prepared> {
        const SELECTIONS: usize = 3;
        const DISTANCE: usize = SLOTS / (Coding::ALL.len() * SELECTIONS);
        let selection = match selection {
            Selection::Part(Part::Whole) => 0,
            Selection::NotModified => 1,
            Selection::Part(_) | Selection::Failed => 2,
        };
        // Pages are aligned, so the lowest bits of their addresses are the same.
        let number = Arc::as_ptr(page).addr() / size_of::<CachedPage>();
        &self.0[(number + DISTANCE * (coding as usize * SELECTIONS + selection)) % SLOTS]
    }
}
