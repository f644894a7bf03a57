//! Lets a server decide whose directives about caching count.

/// Makes the layer ignore `Cache-Control` and `Pragma` of a request: in the extensions of the request.
///
/// On routes that [follow the origin](crate::Route::follow_origin), any client can otherwise have pages regenerated
/// (`no-cache`), have its requests passed through (`no-store`), and get stale pages (`max-stale`). The headers themselves
/// still reach the origin.
///
/// ```
/// let mut request = http::Request::get("/").header("cache-control", "no-cache").body(()).unwrap();
/// request.extensions_mut().insert(facetheory::IgnoreDirectives);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgnoreDirectives;
