//! A page as visitors get it: what its row tells, and its body.

use std::sync::Arc;
#[cfg(feature = "http")]
use std::sync::OnceLock;

use bytes::Bytes;

#[cfg(feature = "http")]
use super::compression::Codings;
use crate::bodies::Body;
#[cfg(feature = "http")]
use crate::http::{CacheControl, Coding, Stored, is_worth_coding, restored, restored_by_origin};
use crate::protocol::generation::Generation;
use crate::protocol::row::Meta;

/// A page as visitors get it.
///
/// ```
/// # use facetheory::{GetResult, Bodies, Isr, PageKey, Pages, PageStore, Policy, Rendered};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// let isr = Isr::new(pages);
/// let policy = Policy::every(Duration::from_secs(60));
/// let answer = isr.get(&PageKey::new("/")?, &policy, |_| async { Ok(Rendered::html("hello")) }).await?;
/// let GetResult::Page(served) = answer else { panic!("it was rendered") };
/// assert_eq!((served.page.status(), served.page.content_type()), (200, Some("text/html; charset=utf-8")));
/// assert_eq!(served.page.bytes(), "hello");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CachedPage {
    meta: Meta,
    body: Arc<CachedBody>,
    /// The headers that are kept with it, read once.
    #[cfg(feature = "http")]
    headers: OnceLock<http::HeaderMap>,
    /// What these say of how it is used, if it follows its origin.
    #[cfg(feature = "http")]
    stored: OnceLock<Box<Stored>>,
}

/// A body, with its compressed forms once there are some.
#[derive(Debug)]
pub(super) struct CachedBody {
    body: Body,
    #[cfg(feature = "http")]
    codings: OnceLock<Codings>,
}

impl From<Body> for CachedBody {
    /// In memory of its own: what is read from a connection is often a piece of something longer, all of which it would keep.
    fn from(body: Body) -> Self {
        CachedBody {
            body: Body { bytes: Bytes::copy_from_slice(&body.bytes), ..body },
            #[cfg(feature = "http")]
            codings: OnceLock::new(),
        }
    }
}

impl CachedPage {
    pub(crate) fn new(meta: Meta, body: Body) -> Self {
        CachedPage::with(meta, Arc::new(body.into()))
    }

    /// The same body, told of in another way.
    pub(super) fn with(meta: Meta, body: Arc<CachedBody>) -> Self {
        CachedPage {
            meta,
            body,
            #[cfg(feature = "http")]
            headers: OnceLock::new(),
            #[cfg(feature = "http")]
            stored: OnceLock::new(),
        }
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
        &self.body.body.bytes
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
        self.generation().content.status.or(self.body.body.status).unwrap_or(OK)
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
        self.generation().content.content_type.as_deref().or(self.body.body.content_type.as_deref())
    }

    pub(crate) fn generation(&self) -> &Generation {
        &self.meta.generation
    }

    pub(super) fn body(&self) -> &Arc<CachedBody> {
        &self.body
    }

    /// The bytes of memory that it takes.
    pub(super) fn weight(&self) -> usize {
        let page = self.generation();
        let (content, body) = (&page.content, &self.body.body);
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        let headers: usize = content.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let tags: usize = content.tags.iter().map(String::len).sum();
        let strings = 2 * content.headers.len() + content.tags.len();
        #[cfg(feature = "http")]
        let read = self.weight_as_read();
        #[cfg(not(feature = "http"))]
        let read = 0;
        self.bytes().len()
            + read
            + page.s3_key.len()
            + [&page.etag, &content.content_type, &content.digest, &content.deployment, &content.variant]
                .map(text)
                .iter()
                .sum::<usize>()
            + [&self.meta.mark, &self.meta.current_sk].map(text).iter().sum::<usize>()
            + [&body.content_type, &body.content_security_policy].map(text).iter().sum::<usize>()
            + headers
            + tags
            + strings * size_of::<String>()
            + size_of::<CachedPage>()
            + size_of::<CachedBody>()
    }
}

#[cfg(feature = "http")]
impl CachedPage {
    /// The bytes of memory that it takes besides once somebody reads it: it counts for them from the beginning, but for the
    /// compressed forms, which are made later if at all.
    fn weight_as_read(&self) -> usize {
        /// A header as a map has it, with the room that maps keep for more.
        const HEADER: usize = 4 * (size_of::<http::HeaderName>() + size_of::<http::HeaderValue>());
        let kept = &self.generation().content.headers;
        let headers = kept.iter().map(|(name, value)| HEADER + name.len() + value.len()).sum::<usize>();
        let stored = if self.follows_origin() {
            let selecting =
                kept.iter().filter(|(name, _)| name.eq_ignore_ascii_case(http::header::VARY.as_str()));
            let names = selecting.map(|(_, value)| value.split(',').count()).sum::<usize>();
            size_of::<Stored>() + names * size_of::<http::HeaderName>()
        } else {
            0
        };
        headers + stored + self.body.codings.get().map_or(0, Codings::weight)
    }

    /// The headers that are kept with it.
    pub(crate) fn headers(&self) -> &http::HeaderMap {
        let kept = &self.generation().content.headers;
        self.headers
            .get_or_init(|| if self.follows_origin() { restored_by_origin(kept) } else { restored(kept) })
    }

    /// Whether its origin says by its own headers how it is kept.
    pub(crate) fn follows_origin(&self) -> bool {
        self.generation().follows_origin()
    }

    /// What its origin says of how it is used.
    pub(crate) fn stored(&self) -> &Stored {
        let read = || Box::new(Stored::of(self.status(), self.headers(), self.generation()));
        self.stored.get_or_init(read)
    }

    /// The content security policy that only the object tells, for a row that another language wrote.
    pub(crate) fn content_security_policy(&self) -> Option<&str> {
        let told = self.headers().contains_key(http::header::CONTENT_SECURITY_POLICY);
        self.body.body.content_security_policy.as_deref().filter(|_| !told)
    }

    pub(super) fn has_codings(&self) -> bool {
        self.body.codings.get().is_some()
    }

    pub(super) fn set_codings(&self, codings: Codings) {
        // Two who made them at the same time made the same.
        let _ = self.body.codings.set(codings);
    }

    /// The codings that it is there in, besides as it is.
    pub(crate) fn codings(&self) -> Vec<Coding> {
        self.body.codings.get().map(|codings| codings.all().collect()).unwrap_or_default()
    }

    /// Whether it is worth making compressed forms of it.
    pub(super) fn is_worth_coding(&self) -> bool {
        // An origin that says how its pages are kept also says in which coding they are.
        !self.follows_origin()
            && is_worth_coding(self.content_type(), self.bytes().len(), false)
            && !CacheControl::of(self.headers()).no_transform
    }

    /// Whether it is there in several codings, or will be: a cache in front of us that got it before must not send it to
    /// everyone as it is.
    pub(crate) fn may_be_coded(&self) -> bool {
        match self.body.codings.get() {
            Some(codings) => codings.all().next().is_some(),
            None => self.is_worth_coding(),
        }
    }

    /// It in a coding, if it is there in it.
    pub(crate) fn in_coding(&self, coding: Coding) -> Option<&Bytes> {
        self.body.codings.get().and_then(|codings| codings.get(coding))
    }
}
