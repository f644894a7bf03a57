//! The interface to a renderer: its context, and its result.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use tabletheory::Timestamp;

use crate::bodies;
use crate::protocol::{Content, Meta, PageKey, SeenEpochs};

/// The context of a render.
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
    /// The current page, if its body exists: a renderer may find that it has not changed.
    pub served: Option<Meta>,
    /// When the render started.
    pub started: Timestamp,
    /// Whether the render holds the lease of the page, and its result will be published. Without, it is only for the
    /// clients that wait for it, because a store or another process does not respond.
    pub leased: bool,
}

/// A rendered page.
///
/// ```
/// assert_eq!(facetheory::Rendered::html("x").content.status, Some(200));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rendered {
    /// The body; `None` if it is the current one.
    pub bytes: Option<Bytes>,
    /// Status, headers and tags. The digest is filled in.
    pub content: Content,
    /// The entity tag; `None` derives one from the digest.
    pub etag: Option<String>,
    /// How long it is fresh; `None` uses the interval of the policy.
    pub revalidate: Option<Duration>,
    /// When its content was requested, if that was before the render started. It counts as generated then, so that later
    /// invalidations apply to it.
    pub(crate) as_of: Option<AsOf>,
    /// The digest of the bytes, if it is known.
    pub(crate) digest: Option<String>,
    /// Whether the bytes count in the memory budget of the engine already.
    pub(crate) is_counted: bool,
}

/// When content was requested, before the render that returned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AsOf {
    pub(crate) requested: Timestamp,
    /// The counts of its tags then, if they are known.
    pub(crate) epochs: Option<SeenEpochs>,
}

/// The result of a render.
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
    /// The response must not be cached. The current page does not change.
    ///
    /// The next response will most likely not be cacheable either. So for five seconds, requests to [`Isr`](crate::Isr)
    /// for the page do not wait for each other's render, and each calls the origin by itself (hit-for-pass).
    Declined,
    /// The response must not be cached, and the current page must not be served any more. [`Isr`](crate::Isr) requires two such
    /// renders in a row, since one may be a mistake.
    Invalidate,
    /// The response to this request must not be cached, but the response to the next one may be. The current page does
    /// not change, and requests go on waiting for each other's render: there is no hit-for-pass as after
    /// [`Declined`](Render::Declined).
    Uncacheable,
    /// The response does not fit into the memory budget now. The current page does not change. The response to the next request
    /// may fit, so requests go on waiting for each other's render.
    MemoryFull,
}

/// The cause of a failed render whose origin did not respond. A proxy sets it as the source of an error, or in the extensions of
/// the response that it creates in place of the origin's.
///
/// Responses whose freshness the origin decides may then be served stale, if no directive prohibits it (RFC 9111 §4.2.4).
///
/// ```
/// let failure: facetheory::RenderError = facetheory::OriginUnreachable.into();
/// assert_eq!(failure.to_string(), "the origin did not respond");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginUnreachable;

impl fmt::Display for OriginUnreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the origin did not respond")
    }
}

impl StdError for OriginUnreachable {}

impl OriginUnreachable {
    /// Whether it is in the chain of sources of an error.
    pub(crate) fn is_cause_of(error: &(dyn StdError + 'static)) -> bool {
        std::iter::successors(Some(error), |&error| error.source())
            .any(|error| error.is::<OriginUnreachable>())
    }
}

/// The error of a failed render.
pub type RenderError = Box<dyn StdError + Send + Sync>;

impl From<Rendered> for Render {
    fn from(page: Rendered) -> Self {
        Render::Page(Box::new(page))
    }
}

impl Render {
    /// Sets the time at which the content was requested, and the counts of its tags then.
    pub(crate) fn requested_at(mut self, requested: Timestamp, epochs: Option<SeenEpochs>) -> Self {
        if let Render::Page(page) = &mut self {
            page.as_of = Some(AsOf { requested, epochs });
        }
        self
    }
}

impl Rendered {
    /// An HTML page with status 200.
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

    /// A page with any content.
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
        Rendered { bytes: Some(bytes.into()), content, ..Rendered::default() }
    }

    /// Computes the digest of the body, and the entity tag if there is none.
    pub(crate) fn identify(&mut self) {
        let Some(bytes) = &self.bytes else { return };
        let digest = self.digest.get_or_insert_with(|| bodies::digest(bytes));
        self.etag.get_or_insert_with(|| format!("\"{}\"", &digest["sha256:".len()..][..32]));
    }

    /// The current page has not changed: its times are updated, and no body is stored.
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
        Rendered { content: page.content.clone(), etag: page.etag.clone(), ..Rendered::default() }
    }
}
