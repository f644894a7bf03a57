//! A server for tests: hyper, reading through a checked stream, with a service that records its requests.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;

use super::super::stream::{CheckedStream, FastPathEnd};
use super::super::{
    ActiveRequest, ClientTimeouts, ConnectionState, DeadlineTicker, InformationalWindow, RequestLimits,
};

/// The result of polling a body.
type Polled = Poll<Option<Result<Frame<Bytes>, Infallible>>>;

/// The body of a response, which is in progress until it is dropped.
pub(super) struct ResponseBody {
    body: Full<Bytes>,
    _request: ActiveRequest,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The requests that the service received: one line each, with its body or how it failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    lines: Arc<Mutex<Vec<String>>>,
    missed: Arc<Mutex<Option<Uri>>>,
}

impl Requests {
    pub(super) fn record(&self, line: String) {
        self.lines.lock().push(line);
    }

    /// Records that the fast path could not serve a request.
    pub(super) fn record_miss(&self, uri: Uri) {
        *self.missed.lock() = Some(uri);
    }

    /// Checks that the service is called with the request that the fast path could not serve.
    fn check_miss(&self, uri: &Uri) {
        if let Some(missed) = self.missed.lock().take() {
            assert_eq!(*uri, missed, "another request than the fast path has missed");
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

/// A connection to hyper behind a checked stream, from the client's side.
pub(super) struct Server {
    pub(super) client: DuplexStream,
    pub(super) requests: Requests,
    pub(super) ticker: Arc<DeadlineTicker>,
    pub(super) connection: JoinHandle<hyper::Result<()>>,
}

impl Server {
    /// Starts a server with a pipe that holds so many bytes in each direction.
    pub(super) fn start(room: usize) -> Self {
        Server::with(room, RequestLimits::default(), &ClientTimeouts::default())
    }

    pub(super) fn with(room: usize, limits: RequestLimits, timeouts: &ClientTimeouts) -> Self {
        Server::changed(room, limits, timeouts, |_, _| ())
    }

    /// Starts a server whose stream is changed before anything is read.
    pub(super) fn changed(
        room: usize,
        limits: RequestLimits,
        timeouts: &ClientTimeouts,
        change: impl FnOnce(&mut CheckedStream<DuplexStream>, &Requests),
    ) -> Self {
        let (client, server) = tokio::io::duplex(room);
        let (ticker, requests) = (DeadlineTicker::new(), Requests::default());
        let mut stream = ticker.register(server, limits, timeouts);
        change(&mut stream, &requests);
        let connection = serve(stream, requests.clone());
        Server { client, requests, ticker, connection }
    }

    /// Sends bytes, which the server reads.
    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.client.write_all(bytes.as_ref()).await.expect("room");
    }

    /// Sends all pieces; returns all responses and requests.
    pub(super) async fn converse(mut self, pieces: &[&[u8]]) -> (String, Vec<String>) {
        let responses = async {
            for piece in pieces {
                // The server may have closed the connection.
                if self.client.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            self.rest().await
        };
        let responses = responses.await;
        (responses, self.requests.lines())
    }

    /// Reads until the server closes the connection.
    pub(super) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // An error means that the pipe was closed. The bytes before it count.
        let _ = self.client.read_to_end(&mut bytes).await;
        String::from_utf8(bytes).expect("text")
    }

    /// Sends all pieces and closes the sending side; returns all responses and requests.
    pub(super) async fn converse_and_close(mut self, pieces: &[&[u8]]) -> (String, Vec<String>) {
        for piece in pieces {
            // The server may have closed the connection.
            if self.client.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        // hyper drops a response if the client has closed its side, so it gets time to complete all of them.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let responses = self.rest_after_close().await;
        (responses, self.requests.lines())
    }

    /// Closes the sending side, and reads until the server closes the connection.
    pub(super) async fn rest_after_close(&mut self) -> String {
        // It may be closed already.
        let _ = self.client.shutdown().await;
        self.rest().await
    }

    /// Reads until the server has sent this text.
    pub(super) async fn until(&mut self, text: &str) -> String {
        let mut received = String::new();
        while !received.contains(text) {
            let byte = self.client.read_u8().await.unwrap_or_else(|_| panic!("no {text:?} in {received:?}"));
            received.push(char::from(byte));
        }
        received
    }
}

/// Serves a connection with hyper.
pub(super) fn serve<IO>(mut stream: CheckedStream<IO>, requests: Requests) -> JoinHandle<hyper::Result<()>>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let state = stream.state().clone();
    let service = service_fn(move |request: Request<Incoming>| {
        requests.check_miss(request.uri());
        respond(request, state.clone(), requests.clone())
    });
    tokio::spawn(async move {
        if !matches!(stream.serve_fast_path().await, Ok(FastPathEnd::NeedsHyper)) {
            let _ = stream.shutdown().await;
            return Ok(());
        }
        let builder = hyper::server::conn::http1::Builder::new();
        builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await
    })
}

/// The service: its behaviour depends on the path.
async fn respond(
    request: Request<Incoming>,
    state: Arc<ConnectionState>,
    requests: Requests,
) -> Result<Response<ResponseBody>, Infallible> {
    let active = state.begin_request();
    let response = |status: StatusCode, text: &str| {
        let body = Full::new(Bytes::from(text.to_owned()));
        let mut response = Response::new(ResponseBody { body, _request: active });
        *response.status_mut() = status;
        Ok(response)
    };
    if let Some((rejection, _)) = state.rejected(request.method(), request.headers()) {
        return response(rejection.status, rejection.text);
    }
    let line = format!("{} {}", request.method(), request.uri());
    let version = request.version();
    match request.uri().path() {
        "/hints" => {
            requests.record(line);
            let window = InformationalWindow::open(&state, version);
            for hint in ["link: a", "link: b"] {
                let hint = format!("HTTP/1.1 103 Early Hints\r\n{hint}\r\n\r\n");
                if let Some(window) = &window {
                    window.sender().send(hint.into()).await;
                }
            }
            drop(window);
            return response(StatusCode::OK, "after hints");
        }
        "/large" => {
            requests.record(line);
            return response(StatusCode::OK, &"x".repeat(10_000));
        }
        "/slow" => {
            requests.record(line);
            tokio::time::sleep(Duration::from_secs(1000)).await;
            return response(StatusCode::OK, "slow");
        }
        "/unread" => {
            requests.record(line);
            return response(StatusCode::OK, "unread");
        }
        "/unread-later" => {
            requests.record(line);
            tokio::time::sleep(Duration::from_secs(1)).await;
            return response(StatusCode::OK, "unread");
        }
        "/tunnel" if state.accept_upgrade() => {
            requests.record(line);
            tokio::spawn(echo(request, requests.clone()));
            return response(StatusCode::SWITCHING_PROTOCOLS, "");
        }
        _ => {}
    }
    match request.into_body().collect().await {
        Ok(body) => {
            let body = body.to_bytes();
            requests.record(format!("{line} {}", String::from_utf8_lossy(&body)));
            response(StatusCode::OK, &format!("{version:?} {line}"))
        }
        Err(_) => {
            requests.record(format!("{line} with a failed body"));
            let rejection = state.rejection();
            response(rejection.map_or(StatusCode::BAD_GATEWAY, |rejection| rejection.status), "failed")
        }
    }
}

async fn echo(request: Request<Incoming>, requests: Requests) {
    let upgraded = hyper::upgrade::on(request).await.expect("an upgrade");
    let mut upgraded = TokioIo::new(upgraded);
    let mut buffer = [0; 100];
    while let Ok(read @ 1..) = upgraded.read(&mut buffer).await {
        requests.record(format!("tunnel {:?}", String::from_utf8_lossy(&buffer[..read])));
        upgraded.write_all(&buffer[..read]).await.expect("room");
    }
}
