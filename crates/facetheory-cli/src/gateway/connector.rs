//! Connections to the origin are there in time, secure ones too, or not at all.

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

/// What connects to the origin, within a time that includes agreeing on a secure connection.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    connector: HttpsConnector<HttpConnector>,
    limit: Duration,
    /// How long the origin may stop to take what it is sent.
    idle: Duration,
}

impl Connector {
    pub(crate) fn new(connector: HttpsConnector<HttpConnector>, limit: Duration, idle: Duration) -> Self {
        Connector { connector, limit, idle }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<UpstreamIo<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>>;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BodyError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let (connecting, limit, idle) = (self.connector.call(address), self.limit, self.idle);
        Box::pin(async move {
            let connected = tokio::time::timeout(limit, connecting).await;
            let connected = connected.map_err(|_| format!("it took longer than {limit:?} to connect"))??;
            Ok(TokioIo::new(UpstreamIo::new(TokioIo::new(connected), idle)))
        })
    }
}
