//! Connects to the origin, with a timeout that includes the TLS handshake.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;

use super::body::BodyError;
use super::upstream_io::UpstreamIo;

/// Connects to the origin.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) https: HttpsConnector<HttpConnector>,
    pub(crate) connect_timeout: Duration,
    /// How long the origin may not read what it is sent.
    pub(crate) write_timeout: Duration,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<UpstreamIo<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>>;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BodyError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let (timeout, write_timeout) = (self.connect_timeout, self.write_timeout);
        let connecting = tokio::time::timeout(timeout, self.https.call(address));
        Box::pin(async move {
            let connected =
                connecting.await.map_err(|_| format!("connecting took longer than {timeout:?}"))??;
            Ok(TokioIo::new(UpstreamIo::new(TokioIo::new(connected), write_timeout)))
        })
    }
}
