//! The headers of a cached page, parsed once and attached to it.

use std::sync::OnceLock;

use http::HeaderMap;
use http::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue};

use crate::engine::CachedPage;
use crate::http::headers::restored;
use crate::http::semantics::reuse::StoredDirectives;

struct ParsedPage {
    headers: HeaderMap,
    /// Parsed on first use: only responses that follow their origin need it.
    directives: OnceLock<StoredDirectives>,
}

// The memory tier accounts for the parsed form in advance, by these constants.
const _: () = {
    let reference_counts = 2 * size_of::<usize>();
    assert!(size_of::<ParsedPage>() + reference_counts <= CachedPage::DERIVED_BYTES);
    let header = size_of::<HeaderName>() + size_of::<HeaderValue>();
    assert!(4 * header <= CachedPage::DERIVED_BYTES_PER_HEADER);
    assert!(size_of::<HeaderName>() <= CachedPage::DERIVED_BYTES_PER_VARY);
};

impl CachedPage {
    fn parsed(&self) -> &ParsedPage {
        self.derived(|page| {
            let headers = restored(&page.generation().content.headers, page.follows_origin());
            ParsedPage { headers, directives: OnceLock::new() }
        })
    }

    /// The response headers that are stored with this page.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parsed().headers
    }

    /// The origin's directives about reusing this response.
    pub(crate) fn stored(&self) -> &StoredDirectives {
        let parsed = self.parsed();
        parsed
            .directives
            .get_or_init(|| StoredDirectives::of(self.status(), &parsed.headers, self.generation()))
    }

    /// The content security policy of the object, for a row without one: services in other languages write it there.
    pub(crate) fn content_security_policy(&self) -> Option<&str> {
        let in_row = self.headers().contains_key(CONTENT_SECURITY_POLICY);
        self.object_content_security_policy().filter(|_| !in_row)
    }
}
