//! What a visitor is given.

use std::sync::Arc;

use super::cached_page::CachedPage;
use crate::engine::state::State;

/// What a visitor is given.
///
/// ```no_run
/// # async fn f(isr: facetheory::Isr, page: facetheory::PageKey, policy: facetheory::Policy) -> facetheory::Result<()> {
/// use facetheory::{GetResult, Rendered};
///
/// match isr.get(&page, &policy, |_| async { Ok(Rendered::html("hello")) }).await? {
///     GetResult::Page(served) => println!("{}: {} bytes", served.state, served.page.bytes().len()),
///     GetResult::Bypass(reason) => println!("ask the origin yourself: {}", reason.as_str()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a visitor waits for it"]
pub enum GetResult {
    /// A page.
    Page(Served),
    /// Nothing from here: the visitor should be given an answer of its own, which is not kept.
    Bypass(BypassReason),
}

/// A page, and how a visitor came to it.
///
/// ```no_run
/// # fn f(served: facetheory::Served) {
/// assert!(served.state == facetheory::State::Hit || served.page.status() == 200);
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Served {
    /// How the visitor came to it.
    pub state: State,
    /// The page.
    pub page: Arc<CachedPage>,
}

/// Why a visitor is given nothing from here.
///
/// ```
/// assert_eq!(facetheory::BypassReason::Declined.as_str(), "the answer is not to be kept");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BypassReason {
    /// The renderer's answer is nobody else's.
    Declined,
    /// Somebody else has rendered the page for too long.
    WaitedTooLong,
    /// The table or the bodies cannot be reached, and the page is not in memory.
    Unreachable,
    /// The page was invalidated while it was rendered, again and again.
    Contended,
    /// The page that is kept is for requests with other headers.
    OtherVariant,
}

impl BypassReason {
    /// It in words.
    ///
    /// ```
    /// assert!(facetheory::BypassReason::Unreachable.as_str().contains("cannot be reached"));
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BypassReason::Declined => "the answer is not to be kept",
            BypassReason::WaitedTooLong => "somebody else has rendered the page for too long",
            BypassReason::Unreachable => "the store cannot be reached",
            BypassReason::Contended => "the page was invalidated while it was rendered",
            BypassReason::OtherVariant => "the page is for requests with other headers",
        }
    }

    /// It in one word, for headers.
    pub(crate) fn word(self) -> &'static str {
        match self {
            BypassReason::Declined => "not-kept",
            BypassReason::WaitedTooLong => "waited-too-long",
            BypassReason::Unreachable => "unreachable",
            BypassReason::Contended => "invalidated",
            BypassReason::OtherVariant => "other-headers",
        }
    }
}
