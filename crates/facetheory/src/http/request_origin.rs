//! For whom a service is asked.

/// Whether a service under an [`IsrLayer`](crate::IsrLayer) is asked with a visitor's own request, and whether that visitor waits
/// for what it says: in the extensions of the request.
///
/// A request without it is a render: it is nobody's, and everybody sees the result.
///
/// ```
/// use facetheory::RequestOrigin;
///
/// /// Whether the service may say something to the visitor before its answer.
/// fn may_hint(request: &http::Request<String>) -> bool {
///     request.extensions().get() == Some(&RequestOrigin::Client)
/// }
/// assert!(!may_hint(&http::Request::new(String::new())));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    /// Of a visitor who waits for this very answer.
    Client,
    /// Of a visitor who is served what is stored, while it is renewed; or of an operator.
    Background,
}
