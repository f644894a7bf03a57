//! Settings of a layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::HeaderName;
use tabletheory::SystemRandom;

use super::{CacheHandler, IsrLayer};
use crate::engine::Isr;
use crate::http::forced_regenerations::ForcedRegenerations;
use crate::http::headers::TAG_HEADERS;
use crate::http::limits::NewPageLimiter;
use crate::http::regeneration_queue::RegenerationQueue;
use crate::http::router::routes::Routes;
use crate::http::semantics::cache_status::RequestIds;
use crate::http::variant_limit::VariantLimiter;

impl IsrLayer {
    /// The default of [`max_page_bytes`](Self::max_page_bytes).
    pub const MAX_PAGE_BYTES: u64 = 16 * 1024 * 1024;
    /// The default of [`variants_per_page`](Self::variants_per_page).
    pub const VARIANTS_PER_PAGE: usize = 64;
    /// The default of [`forced_regenerations`](Self::forced_regenerations) of one page.
    pub const FORCED_PER_PAGE: u32 = 10;
    /// The default of [`forced_regenerations`](Self::forced_regenerations) by one client.
    pub const FORCED_PER_CLIENT: u32 = 100;

    /// Creates a layer that caches the pages of these routes with this engine, under the
    /// [key scheme](crate::PageStore::with_key_scheme) of its store. Requests without a route are passed through.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, IsrLayer, Pages, PageStore, Routes};
    /// # use std::sync::Arc;
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let layer = IsrLayer::new(Isr::new(pages), Routes::new([])?);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn new(isr: Isr, routes: Routes) -> Self {
        isr.pages().bodies().allow_length(Self::MAX_PAGE_BYTES);
        let handler = CacheHandler {
            generation: next_generation(),
            scheme: isr.pages().store().key_scheme().clone(),
            isr,
            routes,
            max_page_bytes: Self::MAX_PAGE_BYTES,
            strict: false,
            new_pages: None,
            variants: Arc::new(VariantLimiter::new(Self::VARIANTS_PER_PAGE)),
            forced: Arc::new(ForcedRegenerations::new(Self::FORCED_PER_PAGE, Self::FORCED_PER_CLIENT)),
            expose_page_key: false,
            tag_headers: TAG_HEADERS.iter().cloned().collect(),
            strip_tags: false,
            ids: Arc::new(RequestIds::new(&SystemRandom)),
            responses: Arc::default(),
            queue: None,
        };
        IsrLayer { handler: Arc::new(handler) }
    }

    /// Sets the size of the largest page that is cached, 16 MiB by default. Larger responses are passed through. A stored body
    /// that is longer than this, than 16 MiB, and than the limits of other layers over the same engine counts as damaged.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.max_page_bytes(1024 * 1024);
    /// # }
    /// ```
    pub fn max_page_bytes(self, limit: u64) -> Self {
        self.handler.isr.pages().bodies().allow_length(limit);
        self.with(|handler| handler.max_page_bytes = limit)
    }

    /// Sets the render timeout of routes that [follow their origin](crate::Route::follow_origin), two minutes by default.
    ///
    /// A service that has timeouts of its own should be given as long as they allow, since it is also the only limit on
    /// responses that turn out to be uncacheable.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.fetch_timeout(std::time::Duration::from_secs(600));
    /// # }
    /// ```
    pub fn fetch_timeout(self, limit: Duration) -> Self {
        self.with(|handler| handler.routes.set_fetch_timeout(limit))
    }

    /// Checks requests that are passed through as strictly as requests for pages: the host must be served here, and the path
    /// must not have dot segments, encoded control characters and the like. Use it for servers that face the internet.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.strict();
    /// # }
    /// ```
    pub fn strict(self) -> Self {
        self.with(|handler| handler.strict = true)
    }

    /// Limits how many pages per second are cached for the first time. Beyond the limit, responses are not cached, so a flood
    /// of addresses cannot fill the store.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.new_pages_per_second(500);
    /// # }
    /// ```
    pub fn new_pages_per_second(self, limit: u32) -> Self {
        self.with(|handler| handler.new_pages = Some(Arc::new(NewPageLimiter::new(limit))))
    }

    /// Limits how many variants of a page, which differ by headers or cookies, are cached; 64 by default. Beyond the limit, the
    /// least used one is evicted for a new one.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.variants_per_page(16);
    /// # }
    /// ```
    pub fn variants_per_page(self, limit: usize) -> Self {
        self.with(|handler| handler.variants = Arc::new(VariantLimiter::new(limit)))
    }

    /// Limits how many times in a minute requests may make a fresh page be regenerated by `no-cache`, `max-age` or `min-fresh`:
    /// 10 times one page, and 100 times one client, on routes that [follow their origin](crate::Route::follow_origin). Beyond a
    /// limit, the stored response is served as if the request had no such directive. A server names the client by a
    /// [`ClientAddress`](crate::ClientAddress); without one, only the limit per page applies.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.forced_regenerations(2, 20);
    /// # }
    /// ```
    pub fn forced_regenerations(self, per_page: u32, per_client: u32) -> Self {
        self.with(|handler| handler.forced = Arc::new(ForcedRegenerations::new(per_page, per_client)))
    }

    /// Puts the [`PageKey`](crate::PageKey) of a page into the extensions of its response, for outer services that log it, for
    /// example. It is not sent to clients.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.expose_page_key();
    /// # }
    /// ```
    pub fn expose_page_key(self) -> Self {
        self.with(|handler| handler.expose_page_key = true)
    }

    /// Sets the headers of responses whose tags pages get. By default they are those of many products, such as `Surrogate-Key`,
    /// `Cache-Tag` and `xkey`. Tags are separated by commas, white space or both.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.tag_headers([http::HeaderName::from_static("x-tags")]);
    /// # }
    /// ```
    pub fn tag_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        let names: Arc<[HeaderName]> = names.into_iter().collect();
        self.with(|handler| handler.tag_headers = names)
    }

    /// Removes the [headers of tags](IsrLayer::tag_headers) from all responses, also from those that are passed through, so that
    /// clients do not learn the tags.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer) {
    /// let layer = layer.strip_tags();
    /// # }
    /// ```
    pub fn strip_tags(self) -> Self {
        self.with(|handler| handler.strip_tags = true)
    }

    /// Sends regenerations of stale pages to a queue, instead of rendering them in the background of this process.
    ///
    /// ```no_run
    /// # fn f(layer: facetheory::IsrLayer, queue: std::sync::Arc<dyn facetheory::RegenerationQueue>) {
    /// let layer = layer.regeneration_queue(queue);
    /// # }
    /// ```
    pub fn regeneration_queue(self, queue: Arc<dyn RegenerationQueue>) -> Self {
        self.with(|handler| handler.queue = Some(queue))
    }

    fn with(mut self, change: impl FnOnce(&mut CacheHandler)) -> Self {
        let handler = Arc::make_mut(&mut self.handler);
        handler.generation = next_generation();
        change(handler);
        self
    }
}

/// Returns a number that identifies one combination of routes and settings within the process.
fn next_generation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}
