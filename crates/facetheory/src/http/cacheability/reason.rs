//! Why a response is not cached.

use std::fmt;

use http::StatusCode;
use http::header::HeaderName;

/// Why a response is not cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UncacheableReason {
    ServerError(StatusCode),
    TooManyRequests,
    Informational,
    NotModified,
    Partial,
    Truncated,
    Method,
    Authorization,
    NeverCached,
    Status(StatusCode),
    Empty,
    TooLong { limit: u64 },
    SetCookie,
    Cookie,
    NoStore,
    Private,
    NoCache,
    NeverFresh,
    VaryAnything,
    Vary(HeaderName),
    ContentEncoded,
    NoLocation,
    UnreadableHeader(HeaderName),
    TooManyHeaders,
    TooManyPages,
}

impl UncacheableReason {
    /// Whether the origin forbids caching the page.
    pub(crate) fn invalidates_page(&self) -> bool {
        let is_about_client = matches!(
            self,
            UncacheableReason::Method | UncacheableReason::Authorization | UncacheableReason::Cookie
        );
        !is_about_client && !self.is_technical()
    }

    /// Whether the reason is a limit or a defect, not a statement of the origin about caching.
    pub(crate) fn is_technical(&self) -> bool {
        use UncacheableReason::{
            ContentEncoded, Empty, NoLocation, TooLong, TooManyHeaders, TooManyPages, UnreadableHeader,
        };
        matches!(
            self,
            TooLong { .. }
                | UnreadableHeader(_)
                | TooManyHeaders
                | TooManyPages
                | Empty
                | ContentEncoded
                | NoLocation
        )
    }
}

impl fmt::Display for UncacheableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UncacheableReason::ServerError(status) => {
                return write!(f, "the origin failed with status {}", status.as_u16());
            }
            UncacheableReason::Status(status) => {
                return write!(f, "responses with status {} are not cached", status.as_u16());
            }
            UncacheableReason::TooLong { limit } => {
                return write!(f, "the page is longer than {limit} bytes");
            }
            UncacheableReason::Vary(name) => {
                return write!(f, "the response varies on {name}; list that header in the route to cache it");
            }
            UncacheableReason::UnreadableHeader(name) => {
                return write!(f, "the value of the header {name} is not UTF-8");
            }
            UncacheableReason::TooManyRequests => "the origin limits the request rate (429)",
            UncacheableReason::Informational => "the origin sent no final response (1xx)",
            UncacheableReason::NotModified => "the origin sent 304 to a request without a condition",
            UncacheableReason::Partial => "the origin sent a part (206) of the page",
            UncacheableReason::Truncated => {
                "the body is shorter or longer than its Content-Length, or was cut off"
            }
            UncacheableReason::Method => "only responses to GET and HEAD are cached",
            UncacheableReason::Authorization => {
                "the request has Authorization; list that header in the route to cache a page for each value"
            }
            UncacheableReason::NeverCached => "the cache hint says that it is never cached",
            UncacheableReason::Empty => "the page is empty",
            UncacheableReason::SetCookie => "the response sets a cookie",
            UncacheableReason::Cookie => {
                "the request has a cookie, and the response does not say how it is cached"
            }
            UncacheableReason::NoStore => "the response says no-store",
            UncacheableReason::Private => "the response says private",
            UncacheableReason::NoCache => "the response says no-cache",
            UncacheableReason::NeverFresh => "the response is never fresh",
            UncacheableReason::VaryAnything => "the response varies on everything (Vary: *)",
            UncacheableReason::ContentEncoded => "the response has a Content-Encoding that was not requested",
            UncacheableReason::NoLocation => "the redirect has no Location",
            UncacheableReason::TooManyHeaders => "the headers are too many or too long to be cached",
            UncacheableReason::TooManyPages => "too many new pages in this second",
        })
    }
}
