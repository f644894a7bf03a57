//! Between the protocol and a renderer: what it is told, and what it gives back.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use tabletheory::Timestamp;

use crate::protocol::generation::Content;
use crate::protocol::key::PageKey;
use crate::protocol::row::Meta;

/// What a renderer is told.
///
/// ```
/// use facetheory::{Bodies, PageKey, Pages, PageStore, Policy, Rendered};
/// # use std::{sync::Arc, time::Duration};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// let page = PageKey::new("/about")?;
/// pages.regenerate(&page, &Policy::every(Duration::from_secs(60)), |context| async move {
///     Ok(Rendered::html(format!("<h1>{}</h1>", context.page.cache_key())))
/// }).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RenderContext {
    /// The page.
    pub page: PageKey,
    /// What is served now, if its body is there: a renderer may find that it is still right.
    pub served: Option<Meta>,
    /// When the render started.
    pub started: Timestamp,
}

/// A page that was rendered.
///
/// ```
/// assert_eq!(facetheory::Rendered::html("x").content.status, Some(200));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rendered {
    /// The body; none for the one that is served already.
    pub bytes: Option<Bytes>,
    /// What is told of it; the digest is filled in.
    pub content: Content,
    /// The entity tag; one is made of the digest where there is none.
    pub etag: Option<String>,
    /// For how long it is fresh, where that is not for the policy to say.
    pub revalidate: Option<Duration>,
    /// When its content was asked for, if that was before the render started: it counts as generated then, so that what was
    /// invalidated since stays so.
    pub(crate) as_of: Option<Timestamp>,
}

/// What came of a render.
///
/// ```
/// use facetheory::{Render, Rendered};
///
/// assert!(matches!(Render::from(Rendered::html("x")), Render::Page(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Render {
    /// A page to be published.
    Page(Box<Rendered>),
    /// An answer that is nobody else's: what is served stays as it is.
    Declined,
    /// An answer that is nobody else's, by which the renderer takes back what is served: that may not be served any more.
    /// [`Isr`](crate::Isr) believes it when it is said twice in a row, since one such answer may be a mistake.
    Invalidate,
    /// The same, because of what this one visitor asked for: the next one may be given a page.
    Uncacheable,
}

/// Why a render failed for which nobody answered: whoever puts a cache in front of an origin that cannot be reached says so
/// by it, as the cause of an error or in the extensions of a response that it gives in the place of the origin's.
///
/// Responses that follow their origin's headers may then be served stale, where nothing forbids it (RFC 9111 §4.2.4).
///
/// ```
/// let failure: facetheory::RenderError = facetheory::OriginUnreachable.into();
/// assert_eq!(failure.to_string(), "the origin gave no answer");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginUnreachable;

impl fmt::Display for OriginUnreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the origin gave no answer")
    }
}

impl StdError for OriginUnreachable {}

impl OriginUnreachable {
    /// Whether it is behind an error.
    pub(crate) fn is_behind(error: &(dyn StdError + 'static)) -> bool {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if error.is::<OriginUnreachable>() {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// What a render may fail with.
pub type RenderError = Box<dyn StdError + Send + Sync>;

impl From<Rendered> for Render {
    fn from(page: Rendered) -> Self {
        Render::Page(Box::new(page))
    }
}

impl Render {
    /// The same, of content that was asked for at this time.
    pub(crate) fn asked_at(mut self, asked: Timestamp) -> Self {
        if let Render::Page(page) = &mut self {
            page.as_of = Some(asked);
        }
        self
    }
}

impl Rendered {
    /// A page of HTML.
    ///
    /// ```
    /// assert_eq!(facetheory::Rendered::html("<p>").bytes.unwrap(), "<p>");
    /// ```
    pub fn html(bytes: impl Into<Bytes>) -> Self {
        let content = Content {
            status: Some(200),
            content_type: Some("text/html; charset=utf-8".into()),
            ..Content::default()
        };
        Rendered::new(bytes, content)
    }

    /// A page of anything.
    ///
    /// ```
    /// use facetheory::protocol::Content;
    /// use facetheory::Rendered;
    ///
    /// let mut content = Content::default();
    /// content.content_type = Some("application/json".into());
    /// assert_eq!(Rendered::new("{}", content).etag, None);
    /// ```
    pub fn new(bytes: impl Into<Bytes>, content: Content) -> Self {
        Rendered { bytes: Some(bytes.into()), content, etag: None, revalidate: None, as_of: None }
    }

    /// The page that is served is still right: its times move, and no body is stored.
    ///
    /// ```
    /// use facetheory::protocol::{Generation, Meta};
    /// use facetheory::Rendered;
    ///
    /// let served = Meta::of(Generation::new("a.html", 1, 60));
    /// assert_eq!(Rendered::unchanged(&served).bytes, None);
    /// ```
    #[must_use]
    pub fn unchanged(served: &Meta) -> Self {
        let page = &served.generation;
        Rendered {
            bytes: None,
            content: page.content.clone(),
            etag: page.etag.clone(),
            revalidate: None,
            as_of: None,
        }
    }
}
