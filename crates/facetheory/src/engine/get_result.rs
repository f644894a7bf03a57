//! The result of a request for a page.

use std::sync::Arc;

use super::{CachedPage, State};

/// The result of [`Isr::get`](crate::Isr::get).
///
/// ```no_run
/// # async fn f(isr: facetheory::Isr, page: facetheory::PageKey, policy: facetheory::Policy) -> facetheory::Result<()> {
/// use facetheory::{GetResult, Rendered};
///
/// match isr.get(&page, &policy, |_| async { Ok(Rendered::html("hello")) }).await? {
///     GetResult::Page(served) => println!("{}: {} bytes", served.state, served.page.bytes().len()),
///     GetResult::Bypass(reason) => println!("call the origin for this client: {}", reason.as_str()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a client waits for the page"]
pub enum GetResult {
    /// A page.
    Page(Served),
    /// No page: the caller should respond to this client alone, without caching the response.
    Bypass(BypassReason),
}

/// A page, and how the request was served.
///
/// ```no_run
/// # fn f(served: facetheory::Served) {
/// assert!(served.state == facetheory::State::Hit || served.page.status() == 200);
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Served {
    /// How the request was served.
    pub state: State,
    /// The page.
    pub page: Arc<CachedPage>,
    /// Why the page was not served in the usual way: which store failed, or that the wait was too long.
    pub reason: Option<BypassReason>,
    /// Whether an unpublished page was rendered for another request.
    pub(crate) is_collapsed: bool,
}

/// A store that failed.
///
/// ```
/// assert_eq!(facetheory::FailedStore::Bodies.as_str(), "bodies");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailedStore {
    /// The table.
    Table,
    /// The object storage with the bodies.
    Bodies,
}

impl FailedStore {
    /// The name in metrics and logs.
    ///
    /// ```
    /// assert_eq!(facetheory::FailedStore::Table.as_str(), "table");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            FailedStore::Table => "table",
            FailedStore::Bodies => "bodies",
        }
    }
}

/// Why a request is not served from the cache.
///
/// ```
/// use facetheory::{BypassReason, FailedStore};
///
/// assert_eq!(BypassReason::Unreachable(FailedStore::Bodies).as_str(), "bodies-unreachable");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BypassReason {
    /// The renderer's response is not cacheable.
    Declined,
    /// The render of another request or process took longer than the policy lets requests wait.
    WaitedTooLong,
    /// This store is unreachable or refuses writes, and no cached page may be served as usual.
    Unreachable(FailedStore),
    /// The page was invalidated during each of several renders.
    Contended,
    /// The cached page is for requests with other headers.
    OtherVariant,
    /// The page does not fit into the memory budget now.
    MemoryFull,
}

impl BypassReason {
    /// The reason in one word, as in `Cache-Status`.
    ///
    /// ```
    /// assert_eq!(facetheory::BypassReason::Declined.as_str(), "not-cacheable");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BypassReason::Declined => "not-cacheable",
            BypassReason::WaitedTooLong => "waited-too-long",
            BypassReason::Unreachable(FailedStore::Table) => "table-unreachable",
            BypassReason::Unreachable(FailedStore::Bodies) => "bodies-unreachable",
            BypassReason::Contended => "invalidated",
            BypassReason::OtherVariant => "other-headers",
            BypassReason::MemoryFull => "memory-full",
        }
    }

    /// Whether the page may be cacheable, and only the stores or other processes prevent it. Requests then share one render.
    pub(super) fn is_temporary(self) -> bool {
        match self {
            BypassReason::WaitedTooLong | BypassReason::Unreachable(_) | BypassReason::Contended => true,
            BypassReason::Declined | BypassReason::OtherVariant | BypassReason::MemoryFull => false,
        }
    }
}
