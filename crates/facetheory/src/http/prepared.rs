//! Replies that many visitors get within a second: their headers are put together once, and then copied.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};

use crate::http::body::IsrBody;
use crate::http::encoding::Coding;
use crate::http::header::REQUEST_ID;
use crate::http::reply::{Visitor, coded};
use crate::isr::{CachedPage, Served};

/// The most replies that are prepared. Pages share these places, and the last one to come has it.
const PLACES: usize = 1024;

/// The replies that visitors got last.
#[derive(Debug)]
pub(super) struct Replies(Box<[ArcSwapOption<Prepared>]>);

impl Default for Replies {
    fn default() -> Self {
        Replies((0..PLACES).map(|_| ArcSwapOption::empty()).collect())
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
}

/// Whether a request asks for the whole of a page, whatever its visitor has of it already.
pub(super) fn is_plain(request: &Parts) -> bool {
    const ASKING_FOR_LESS: [http::HeaderName; 5] =
        [IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE, IF_MATCH, IF_UNMODIFIED_SINCE];
    request.method == Method::GET && !request.headers.keys().any(|name| ASKING_FOR_LESS.contains(name))
}

impl Replies {
    /// A page that is fresh, as this visitor gets it who [asks plainly](is_plain).
    pub(super) fn reply(&self, visitor: &Visitor<'_>, served: &Served) -> Response<IsrBody> {
        let (coding, bytes) = coded(&served.page, &visitor.parts.headers);
        let (second, route) = (visitor.now.seconds(), &visitor.route.name);
        let place = self.place(&served.page);
        let last = place.load();
        let prepared = last.as_ref().filter(|prepared| {
            std::ptr::eq(prepared.page.as_ptr(), Arc::as_ptr(&served.page))
                && prepared.second == second
                && prepared.coding == coding
                && Arc::ptr_eq(&prepared.route, route)
        });
        if let Some(prepared) = prepared {
            let mut response = Response::new(IsrBody::from(bytes));
            *response.status_mut() = prepared.status;
            *response.headers_mut() = prepared.headers.clone();
            response.headers_mut().insert(REQUEST_ID, visitor.id.clone());
            return response;
        }
        let response = visitor.page(served);
        place.store(Some(Arc::new(Prepared {
            page: Arc::downgrade(&served.page),
            second,
            route: route.clone(),
            coding,
            status: response.status(),
            headers: response.headers().clone(),
        })));
        response
    }

    fn place(&self, page: &Arc<CachedPage>) -> &ArcSwapOption<Prepared> {
        // Pages lie at multiples of some bytes, so the lowest bits of where they lie say little.
        let number = Arc::as_ptr(page).addr() / size_of::<CachedPage>();
        &self.0[number % PLACES]
    }
}
