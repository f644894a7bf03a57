//! Regenerations that another process executes.

use async_trait::async_trait;
use http::Request;

use crate::http::body::BoxError;
use crate::protocol::key::PageKey;

/// Sends regenerations of stale pages to other processes, which execute them with
/// [`IsrService::regenerate`](crate::IsrService::regenerate).
///
/// It is used for pages of rules. Pages that [follow their origin](crate::Route::follow_origin) are always regenerated in
/// this process, because their render needs the client's own request. So are pages whose key contains credentials: the
/// header `authorization`, `x-api-key` or `x-amz-security-token`, or a cookie.
///
/// ```
/// use facetheory::{QueuedRegeneration, RegenerationQueue};
///
/// /// Prints the pages that have to be regenerated.
/// #[derive(Debug)]
/// struct Printer;
///
/// #[async_trait::async_trait]
/// impl RegenerationQueue for Printer {
///     async fn send(&self, regeneration: QueuedRegeneration) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///         println!("{}", regeneration.page.cache_key());
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait RegenerationQueue: std::fmt::Debug + Send + Sync {
    /// Sends a regeneration. It is called for every request that finds a stale page, so an implementation should not send
    /// the same regeneration again and again. After an error the page is regenerated in this process.
    async fn send(&self, regeneration: QueuedRegeneration) -> Result<(), BoxError>;
}

/// A page that has to be regenerated.
///
/// ```
/// fn message(regeneration: &facetheory::QueuedRegeneration) -> String {
///     regeneration.request.uri().to_string()
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueuedRegeneration {
    /// The request that the page is rendered with. It contains input that is part of the cache key, and nothing else of the
    /// client's request. Its extensions contain [`Scheme::HTTPS`](http::uri::Scheme) if the client used HTTPS.
    pub request: Request<()>,
    /// The page.
    pub page: PageKey,
    /// When the cached version was generated, in seconds. A later version needs a regeneration of its own.
    pub generated_at: i64,
}
