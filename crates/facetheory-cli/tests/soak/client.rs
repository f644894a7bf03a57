//! A client with its own connection.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::site::HOST;

/// How long a response may take. A request that renders waits until the page is stored, which may take a minute on a
/// busy disk.
const TIMEOUT: Duration = Duration::from_secs(300);

/// An error message.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// A connection for sequential requests, or for concurrent ones over HTTP/2.
pub(crate) enum Client {
    /// Over HTTP/1.1.
    Http1(http1::SendRequest<Full<Bytes>>),
    /// Over HTTP/2.
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    /// Connects.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Client, Error> {
        let (sender, connection) = http1::handshake(TokioIo::new(TcpStream::connect(address).await?)).await?;
        // An error is returned by the next request.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Client::Http1(sender))
    }

    /// Connects with HTTP/2.
    pub(crate) async fn connect_http2(address: SocketAddr) -> Result<Client, Error> {
        let io = TokioIo::new(TcpStream::connect(address).await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(async move { connection.await.ok() });
        Ok(Client::Http2(sender))
    }

    /// Another client on the same HTTP/2 connection.
    pub(crate) fn companion(&self) -> Option<Client> {
        match self {
            Client::Http1(_) => None,
            Client::Http2(sender) => Some(Client::Http2(sender.clone())),
        }
    }

    /// Sends a GET.
    pub(crate) async fn get(&mut self, target: &str) -> Result<Response<Bytes>, Error> {
        let address = match self {
            Client::Http1(_) => target.to_owned(),
            Client::Http2(_) => format!("http://{HOST}{target}"),
        };
        let request = Request::get(address);
        // Over HTTP/2 the URI contains the host.
        let request = if let Client::Http1(_) = self { request.header("host", HOST) } else { request };
        self.request(request.body(Full::default())?).await
    }

    /// Sends a POST.
    pub(crate) async fn post(
        &mut self,
        target: &str,
        host: &str,
        kind: &str,
        body: Bytes,
    ) -> Result<Response<Bytes>, Error> {
        let request = Request::post(target).header("host", host).header("content-type", kind);
        self.request(request.body(Full::new(body))?).await
    }

    async fn request(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, Error> {
        let exchange = async {
            let response = match self {
                Client::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
                Client::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
            };
            let (parts, body) = response.into_parts();
            Ok::<_, Error>(Response::from_parts(parts, body.collect().await?.to_bytes()))
        };
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_| "timed out")?
    }
}

/// Upgrades the connection, sends messages, and checks that they are echoed. Returns the status of the response.
pub(crate) async fn echo(address: SocketAddr, target: &str, messages: &[&[u8]]) -> Result<u16, Error> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let head =
            format!("GET {target} HTTP/1.1\r\nHost: {HOST}\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\n") {
            response.push(stream.read_u8().await?);
        }
        let response = String::from_utf8_lossy(&response).into_owned();
        let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
        for message in messages.iter().filter(|_| status == 101) {
            stream.write_all(message).await?;
            let mut back = vec![0; message.len()];
            stream.read_exact(&mut back).await?;
            if back != *message {
                return Err("a message was echoed wrongly".into());
            }
        }
        Ok::<u16, Error>(status)
    };
    tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_| "timed out")?
}
