//! Render functions and their results.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{Render, RenderContext, RenderError};

/// The result of a render: an outcome for all requests that wait for it, and a value for one of them.
#[derive(Debug)]
pub(crate) struct RenderResult<P> {
    pub(crate) outcome: Result<Render, RenderError>,
    /// For the request that started the render (the initiator), and no other: for example, a response that must not be
    /// shared.
    pub(crate) for_initiator: Option<P>,
}

impl<P> RenderResult<P> {
    /// A failure for all requests that wait for the render.
    pub(crate) fn failed(error: impl Into<RenderError>) -> Self {
        RenderResult { outcome: Err(error.into()), for_initiator: None }
    }
}

/// A render function whose type is erased, so that the slow paths of the engine are compiled once.
pub(crate) type RenderFn = Box<dyn FnOnce(RenderContext) -> RenderFuture + Send>;

type RenderFuture = Pin<Box<dyn Future<Output = Result<Render, RenderError>> + Send>>;

/// Has another process regenerate a page whose cached version was generated at this time. Returns whether it will.
pub(crate) type Offload = Arc<dyn Fn(i64) -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// Boxes a render function.
pub(crate) fn boxed<T, F, R>(render: F) -> RenderFn
where
    T: Into<Render>,
    F: FnOnce(RenderContext) -> R + Send + 'static,
    R: Future<Output = Result<T, RenderError>> + Send + 'static,
{
    Box::new(move |context| Box::pin(async move { render(context).await.map(Into::into) }))
}

/// Boxes a render function, and returns the receiver of its value for the initiator.
///
/// The value is sent before the outcome is returned, so it is there once the outcome has reached the request that started
/// the render. A request that joins a render of another one drops its own function, and receives nothing.
pub(super) fn boxed_with_receiver<P, F, R>(render: F) -> (RenderFn, oneshot::Receiver<P>)
where
    P: Send + 'static,
    F: FnOnce(RenderContext) -> R + Send + 'static,
    R: Future<Output = RenderResult<P>> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let render = boxed(move |context| async move {
        let result = render(context).await;
        // The request may be gone.
        let _ = result.for_initiator.map(|value| sender.send(value));
        result.outcome
    });
    (render, receiver)
}
