//! How a layer is set up.

use std::sync::Arc;
use std::time::Duration;

use tabletheory::SystemRandom;

use super::{IsrLayer, Site};
use crate::engine::Isr;
use crate::http::new_page_limiter::NewPageLimiter;
use crate::http::router::routes::Routes;
use crate::http::semantics::cache_status::RequestIds;
use crate::http::variant_limiter::{VARIANTS_A_PAGE, VariantLimiter};
use crate::protocol::key::KeyScheme;

/// The longest page that is kept, unless another limit is chosen.
const MAX_PAGE_BYTES: u64 = 16 * 1024 * 1024;

impl IsrLayer {
    /// The pages of these routes, kept by this engine. What has no route is passed on.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, IsrLayer, Pages, PageStore, Routes};
    /// # use std::sync::Arc;
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let layer = IsrLayer::new(Isr::new(pages), Routes::new([])?);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn new(isr: Isr, routes: Routes) -> Self {
        let site = Site {
            isr,
            routes,
            scheme: KeyScheme::Hashed,
            max_page_bytes: MAX_PAGE_BYTES,
            strict: false,
            newcomers: None,
            variants: Arc::new(VariantLimiter::of_all(VARIANTS_A_PAGE)),
            tells_page: false,
            strips_tags: false,
            ids: Arc::new(RequestIds::new(&SystemRandom)),
            replies: Arc::default(),
        };
        IsrLayer { site: Arc::new(site) }
    }

    /// The same, keeping no page that is longer than this; 16 MiB by default.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.max_page_bytes(1024 * 1024);
    /// # }
    /// ```
    #[must_use]
    pub fn max_page_bytes(mut self, limit: u64) -> Self {
        Arc::make_mut(&mut self.site).max_page_bytes = limit;
        self
    }

    /// The same, where pages that [follow their origin](crate::Route::follow_origin) may take this long to come; two minutes by
    /// default. A service that has time-outs of its own should be given as long as they allow: what is passed on has no other.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.fetch_timeout(std::time::Duration::from_secs(600));
    /// # }
    /// ```
    #[must_use]
    pub fn fetch_timeout(mut self, limit: Duration) -> Self {
        Arc::make_mut(&mut self.site).routes.fetch_within(limit);
        self
    }

    /// The same, expecting of requests that are passed on what is expected of those for pages: a host that is served,
    /// and a path without dot segments, encoded control characters and the like. For what faces the internet.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.strict();
    /// # }
    /// ```
    #[must_use]
    pub fn strict(mut self) -> Self {
        Arc::make_mut(&mut self.site).strict = true;
        self
    }

    /// The same, keeping at most so many pages in a second that were not kept before. More than that are rendered for
    /// their visitors alone, so that a flood of addresses does not fill the store.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.new_pages_per_second(500);
    /// # }
    /// ```
    #[must_use]
    pub fn new_pages_per_second(mut self, most: u32) -> Self {
        Arc::make_mut(&mut self.site).newcomers = Some(Arc::new(NewPageLimiter::new(most)));
        self
    }

    /// The same, keeping at most so many variants of a page in an hour that differ by headers or cookies; 64 by default. More
    /// than that are for their visitors alone.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.variants_per_page(16);
    /// # }
    /// ```
    #[must_use]
    pub fn variants_per_page(mut self, most: usize) -> Self {
        Arc::make_mut(&mut self.site).variants = Arc::new(VariantLimiter::of_all(most));
        self
    }

    /// The same with another scheme of keys, for tables that others wrote.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) -> facetheory::Result<()> {
    /// let layer = layer.key_scheme(facetheory::KeyScheme::raw("CACHE#")?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn key_scheme(mut self, scheme: KeyScheme) -> Self {
        Arc::make_mut(&mut self.site).scheme = scheme;
        self
    }

    /// The same, with the [`PageKey`](crate::PageKey) of a page in the extensions of its response, for services around this one
    /// that log it, say. Nothing of it reaches a visitor.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.expose_page_key();
    /// # }
    /// ```
    #[must_use]
    pub fn expose_page_key(mut self) -> Self {
        Arc::make_mut(&mut self.site).tells_page = true;
        self
    }

    /// The same, without `Surrogate-Key` and `Cache-Tag` in any answer, also in those that are passed on: which tags there
    /// are is nobody's business but ours.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.strip_tags();
    /// # }
    /// ```
    #[must_use]
    pub fn strip_tags(mut self) -> Self {
        Arc::make_mut(&mut self.site).strips_tags = true;
        self
    }
}
