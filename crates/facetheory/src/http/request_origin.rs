//! Tells the inner service whether a client waits for its response.

/// Tells a service under an [`IsrLayer`](crate::IsrLayer) whether it gets a client's own request, and whether that client waits for
/// the response: in the extensions of the request.
///
/// A request without it is a render with keyed input only, and its result is for everyone.
///
/// ```
/// use facetheory::RequestOrigin;
///
/// /// Whether the service may send early hints to the client.
/// fn may_hint(request: &http::Request<String>) -> bool {
///     request.extensions().get() == Some(&RequestOrigin::Client)
/// }
/// assert!(!may_hint(&http::Request::new(String::new())));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    /// The request of a client that waits for the response.
    Client,
    /// The request of a client that was served a stored response, which is revalidated in the background; or of an operator.
    Background,
}
