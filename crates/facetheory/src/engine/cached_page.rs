//! A page in memory: its metadata, its body, and values derived from them.

use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::Coding;
use super::compression::CompressedForms;
use super::memory_budget::COUNTED_BYTES_OVERHEAD;
use crate::Body;
use crate::protocol::{Generation, Meta, SeenEpochs};

/// A page as it is served: metadata and body.
///
/// ```
/// # use facetheory::{GetResult, Bodies, Isr, PageKey, Pages, PageStore, Policy, Rendered};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// let isr = Isr::new(pages);
/// let policy = Policy::every(Duration::from_secs(60));
/// let result = isr.get(&PageKey::new("/")?, &policy, |_| async { Ok(Rendered::html("hello")) }).await?;
/// let GetResult::Page(served) = result else { panic!("not rendered") };
/// assert_eq!((served.page.status(), served.page.content_type()), (200, Some("text/html; charset=utf-8")));
/// assert_eq!(served.page.bytes(), "hello");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CachedPage {
    pub(super) meta: Arc<Meta>,
    pub(super) body: Arc<CachedBody>,
    derived: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// A body, and its compressed forms once they are ready.
#[derive(Debug)]
pub(super) struct CachedBody {
    body: Body,
    /// Empty if compressing the body does not pay.
    pub(super) compressed: OnceLock<CompressedForms>,
    /// Whether the body is queued for compression, or is being compressed.
    pub(super) is_being_compressed: AtomicBool,
}

impl CachedPage {
    /// The size that is reserved for the [derived value](Self::derived) itself.
    pub(crate) const DERIVED_BYTES: usize = 224;
    /// The memory that is reserved for each response header in the derived value, besides its text: hash maps keep room
    /// for more entries than they have.
    pub(crate) const DERIVED_BYTES_PER_HEADER: usize = 288;
    /// The memory that is reserved for each header that `Vary` names.
    pub(crate) const DERIVED_BYTES_PER_VARY: usize = 32;

    /// A page whose body counts in the [`MemoryBudget`](super::MemoryBudget).
    pub(crate) fn new(meta: impl Into<Arc<Meta>>, body: Body) -> Self {
        let (compressed, is_being_compressed) = (OnceLock::new(), AtomicBool::new(false));
        CachedPage::with_body(meta, Arc::new(CachedBody { body, compressed, is_being_compressed }))
    }

    /// A page that shares its body, with its compressed forms, with another page.
    pub(super) fn with_body(meta: impl Into<Arc<Meta>>, body: Arc<CachedBody>) -> Self {
        CachedPage { meta: meta.into(), body, derived: OnceLock::new() }
    }

    /// The metadata, as its row in the table has it.
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
        &self.body.body.bytes
    }

    /// The HTTP status; 200 if neither the row nor the object has one.
    ///
    /// ```no_run
    /// # fn f(page: &facetheory::CachedPage) {
    /// let found = page.status() != 404;
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> u16 {
        self.generation().content.status.or(self.body.body.status).unwrap_or(200)
    }

    /// The content type, if the row or the object has one.
    ///
    /// ```no_run
    /// # fn f(page: &facetheory::CachedPage) {
    /// let html = page.content_type().is_none_or(|content_type| content_type.starts_with("text/html"));
    /// # }
    /// ```
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.generation().content.content_type.as_deref().or(self.body.body.content_type.as_deref())
    }

    /// The content security policy in the metadata of the object, where services in other languages write it.
    pub(crate) fn object_content_security_policy(&self) -> Option<&str> {
        self.body.body.content_security_policy.as_deref()
    }

    pub(crate) fn generation(&self) -> &Generation {
        &self.meta.generation
    }

    /// Whether the origin's own headers say how this response is cached (RFC 9111), rather than a route's policy.
    pub(crate) fn follows_origin(&self) -> bool {
        self.generation().follows_origin()
    }

    /// A value that the layer above computes from this page once, such as its parsed headers. Its memory counts from the
    /// beginning, see [`weight`](Self::weight): a hit must not make an entry heavier.
    pub(crate) fn derived<T: Any + Send + Sync>(&self, derive: impl FnOnce(&CachedPage) -> T) -> &T {
        let derived = self.derived.get_or_init(|| Arc::new(derive(self)));
        derived.downcast_ref().expect("only one type of value is derived from pages")
    }

    /// The compressed forms of the body that are ready. A page that follows its origin has none, also if it shares its body
    /// with a page of a rule that has some: its origin controls the content coding.
    pub(crate) fn compressed(&self) -> &[(Coding, Bytes)] {
        let forms = self.body.compressed.get().filter(|_| !self.follows_origin());
        forms.map_or(&[], Vec::as_slice)
    }

    /// The bytes of the body and of its compressed forms.
    pub(super) fn body_bytes(&self) -> usize {
        self.bytes().len() + self.compressed().iter().map(|(_, form)| form.len()).sum::<usize>()
    }

    /// The bytes of memory that this page takes besides its metadata, with those that are reserved for the
    /// [derived value](Self::derived): the headers once more, parsed. Compressed forms count once they are ready.
    pub(super) fn weight(&self) -> usize {
        let body = &self.body.body;
        let texts = [&body.content_type, &body.content_security_policy].into_iter().flatten();
        let derived = |(name, value): &(String, String)| {
            let varying = if name.eq_ignore_ascii_case("vary") { value.split(',').count() } else { 0 };
            let parsed = Self::DERIVED_BYTES_PER_HEADER + varying * Self::DERIVED_BYTES_PER_VARY;
            parsed + name.len() + value.len()
        };
        self.body_bytes()
            + texts.map(String::capacity).sum::<usize>()
            + self.generation().content.headers.iter().map(derived).sum::<usize>()
            + Self::DERIVED_BYTES
            + size_of::<CachedPage>()
            + size_of::<CachedBody>()
            + COUNTED_BYTES_OVERHEAD
    }
}

/// The bytes of memory that metadata takes.
pub(super) fn weight_of(meta: &Meta) -> usize {
    let (page, content) = (&meta.generation, &meta.generation.content);
    let texts = [&page.etag, &content.content_type, &content.digest, &content.deployment, &content.variant];
    let texts = texts.into_iter().chain([&meta.mark, &meta.current_sk]).flatten().map(String::capacity);
    let headers = content.headers.iter();
    size_of::<Meta>()
        + page.s3_key.len()
        + page.epochs.as_ref().map_or(0, SeenEpochs::weight)
        + texts.sum::<usize>()
        + headers.map(|(name, value)| name.len() + value.len() + 2 * size_of::<String>()).sum::<usize>()
        + content.tags.iter().map(|tag| tag.len() + size_of::<String>()).sum::<usize>()
}
