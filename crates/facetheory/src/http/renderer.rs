//! The bounds on the inner service, in one trait.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use crate::http::body::BoxError;

/// A service that renders pages: it can be cloned and called from any thread.
pub(crate) trait Renderer<B>:
    Service<Request<B>, Response = Response<Self::Body>, Error: Into<BoxError>, Future: Send>
where
    Self: Clone + Send + 'static,
{
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B, R> Renderer<B> for S
where
    S: Clone + Send + 'static,
    S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>, Future: Send>,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = R;
}
