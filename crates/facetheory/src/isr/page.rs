//! A page as visitors get it: what its row tells, and its body.

use std::sync::Arc;

use bytes::Bytes;

use crate::body::Body;
use crate::generation::Generation;
use crate::row::Meta;

/// A page as visitors get it.
///
/// ```
/// # use facetheory::{Answer, Bodies, Isr, PageKey, Pages, PageStore, Policy, Rendered};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// let isr = Isr::new(pages);
/// let policy = Policy::every(Duration::from_secs(60));
/// let answer = isr.get(&PageKey::new("/")?, &policy, |_| async { Ok(Rendered::html("hello")) }).await?;
/// let Answer::Page(served) = answer else { panic!("it was rendered") };
/// assert_eq!((served.page.status(), served.page.content_type()), (200, Some("text/html; charset=utf-8")));
/// assert_eq!(served.page.bytes(), "hello");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CachedPage {
    meta: Meta,
    body: Arc<Body>,
}

impl CachedPage {
    pub(super) fn new(meta: Meta, body: impl Into<Arc<Body>>) -> Self {
        CachedPage { meta, body: body.into() }
    }

    /// What its row tells.
    ///
    /// ```no_run
    /// # fn f(page: &facetheory::CachedPage) {
    /// let generated_at = page.meta().generation.generated_at;
    /// # }
    /// ```
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The body.
    ///
    /// ```no_run
    /// # fn f(page: &facetheory::CachedPage) {
    /// let length = page.bytes().len();
    /// # }
    /// ```
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.body.bytes
    }

    /// The HTTP status; 200 where neither the row nor the body tells one.
    ///
    /// ```no_run
    /// # fn f(page: &facetheory::CachedPage) {
    /// let found = page.status() != 404;
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> u16 {
        const OK: u16 = 200;
        self.generation().content.status.or(self.body.status).unwrap_or(OK)
    }

    /// The content type, where the row or the body tells one.
    ///
    /// ```no_run
    /// # fn f(page: &facetheory::CachedPage) {
    /// let html = page.content_type().is_none_or(|content_type| content_type.starts_with("text/html"));
    /// # }
    /// ```
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.generation().content.content_type.as_deref().or(self.body.content_type.as_deref())
    }

    pub(crate) fn generation(&self) -> &Generation {
        &self.meta.generation
    }

    pub(super) fn body(&self) -> &Arc<Body> {
        &self.body
    }

    /// The bytes of memory that it takes.
    pub(super) fn weight(&self) -> usize {
        let page = self.generation();
        let content = &page.content;
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        let headers: usize = content.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let tags: usize = content.tags.iter().map(String::len).sum();
        let strings = 2 * content.headers.len() + content.tags.len();
        self.body.bytes.len()
            + page.s3_key.len()
            + [&page.etag, &content.content_type, &content.digest, &content.deployment, &self.meta.mark]
                .map(text)
                .iter()
                .sum::<usize>()
            + text(&self.meta.current_sk)
            + headers
            + tags
            + strings * size_of::<String>()
            + size_of::<CachedPage>()
            + size_of::<Body>()
    }
}
