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
    Credentials,
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
    MemoryFull,
}

impl UncacheableReason {
    /// Whether the origin forbids caching the page.
    pub(crate) fn invalidates_page(&self) -> bool {
        let is_about_client = matches!(self, Self::Method | Self::Authorization | Self::Credentials);
        !is_about_client && !self.is_limit_or_defect()
    }

    /// Whether the reason is a limit or a defect, not a statement of the origin about caching.
    pub(crate) fn is_limit_or_defect(&self) -> bool {
        let is_limit = matches!(
            self,
            Self::TooLong { .. } | Self::TooManyHeaders | Self::TooManyPages | Self::MemoryFull
        );
        let is_defect = matches!(self, Self::UnreadableHeader(_) | Self::Empty | Self::NoLocation);
        is_limit || is_defect || *self == Self::ContentEncoded
    }
}

impl fmt::Display for UncacheableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServerError(status) => {
                return write!(f, "the origin failed with status {}", status.as_u16());
            }
            Self::Status(status) => {
                return write!(f, "responses with status {} are not cached", status.as_u16());
            }
            Self::TooLong { limit } => return write!(f, "the page is longer than {limit} bytes"),
            Self::Vary(name) => {
                return write!(f, "the response varies on {name}; list that header in the route to cache it");
            }
            Self::UnreadableHeader(name) => return write!(f, "the value of the header {name} is not UTF-8"),
            Self::TooManyRequests => "the origin limits the request rate (429)",
            Self::Informational => "the origin sent no final response (1xx)",
            Self::NotModified => "the origin sent 304 to a request without a condition",
            Self::Partial => "the origin sent a part (206) of the page",
            Self::Truncated => "the body is shorter or longer than its Content-Length, or was cut off",
            Self::Method => "only responses to GET and HEAD are cached",
            Self::Authorization => {
                "the request has Authorization; list that header in the route to cache a page for each value"
            }
            Self::NeverCached => "the cache hint says that it is never cached",
            Self::Empty => "the page is empty",
            Self::SetCookie => "the response sets a cookie",
            Self::Credentials => {
                "the request has a cookie or other credentials, and the response does not say for how long it may be shared"
            }
            Self::NoStore => "the response says no-store",
            Self::Private => "the response says private",
            Self::NoCache => "the response says no-cache",
            Self::NeverFresh => "the response is never fresh",
            Self::VaryAnything => "the response varies on everything (Vary: *)",
            Self::ContentEncoded => "the response has a Content-Encoding that was not requested",
            Self::NoLocation => "the redirect has no Location",
            Self::TooManyHeaders => "the headers are too many or too long to be cached",
            Self::TooManyPages => "too many new pages in this second",
            Self::MemoryFull => "the page does not fit into the memory budget now",
        })
    }
}
