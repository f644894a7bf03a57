//! What the layer asks of the service below it, in a word.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use crate::http::body::BoxError;

/// A service that renders pages: one that can be asked again and again, from any thread. Every such service is one.
pub(crate) trait Renderer<B>:
    Service<Request<B>, Response = Response<Self::Body>, Error: Into<BoxError>, Future: Send>
    + Clone
    + Send
    + 'static
{
    /// The body of what it answers.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B, R> Renderer<B> for S
where
    S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = R;
}
