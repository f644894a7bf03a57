//! hyper, reading through a checked stream, with a service that records its requests.

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
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::super::stream::{CheckedStream, FastPathEnd};
use super::super::{ActiveRequest, ClientTimeouts, ConnectionState, DeadlineTicker, RequestLimits};

/// The body of a response, which is in progress until it is dropped.
pub(super) struct ResponseBody {
    body: Full<Bytes>,
    _request: ActiveRequest,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
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
    async fn rest_after_close(&mut self) -> String {
        // It may be closed already.
        let _ = self.client.shutdown().await;
        self.rest().await
    }

    /// Reads until the server has sent this text.
    pub(super) async fn until(&mut self, text: &str) -> String {
        let mut said = String::new();
        while !said.contains(text) {
            let byte = self.client.read_u8().await.unwrap_or_else(|_| panic!("no {text:?} in {said:?}"));
            said.push(char::from(byte));
        }
        said
    }
}

/// Serves a connection with hyper.
fn serve<IO>(mut stream: CheckedStream<IO>, requests: Requests) -> JoinHandle<hyper::Result<()>>
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
            let window = state.open_informational();
            for hint in ["link: a", "link: b"] {
                let hint = format!("HTTP/1.1 103 Early Hints\r\n{hint}\r\n\r\n");
                window.sender().send(version, hint.into()).await;
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

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_rejected_request_gets_a_response_and_never_reaches_the_service() {
    let (response, requests) =
        Server::start(1000).converse(&[b"GET / HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n"]).await;
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert!(response.contains("connection: close\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nmissing Host header"), "{response}");
    assert_eq!(requests, Vec::<String>::new());
}

#[tokio::test]
async fn a_rejection_is_sent_in_order_and_nothing_after_it_is_read() {
    let bytes = format!("{GET}GET / HTTP/1.1\nHost: a\n\n{GET}");
    for cut in 0..bytes.len() {
        let (left, right) = bytes.as_bytes().split_at(cut);
        let (responses, requests) = Server::start(1000).converse(&[left, right]).await;
        let statuses: Vec<_> =
            responses.match_indices("HTTP/1.1 ").map(|(at, _)| &responses[at + 9..at + 12]).collect();
        // The second one is in the body of the first response, which repeats the request.
        assert_eq!(statuses, ["200", "GET", "400"], "cut at {cut}: {responses}");
        assert_eq!(requests, ["GET /a "], "cut at {cut}");
    }
}

#[tokio::test]
async fn requests_that_are_split_anywhere_get_the_same_responses() {
    let post =
        "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nX: y\r\n\r\n";
    let sized = "POST /s HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nfour\r\n";
    let bytes = format!("{GET}{post}{sized}{LAST}");
    let expected = ["GET /a ", "POST /p hello", "POST /s four", "GET /last "];
    for cut in 0..bytes.len() {
        let (left, right) = bytes.as_bytes().split_at(cut);
        let (_, requests) = Server::start(1000).converse(&[left, right]).await;
        assert_eq!(requests, expected, "cut at {cut}");
    }
    let pieces: Vec<_> = bytes.as_bytes().chunks(1).collect();
    assert_eq!(Server::start(1000).converse(&pieces).await.1, expected, "byte by byte");
}

#[tokio::test]
async fn row_13_a_body_that_is_invalid_from_the_beginning_is_rejected_with_its_head() {
    let post = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n";
    let (response, requests) = Server::start(1000).converse(&[post.as_bytes()]).await;
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert_eq!(requests, Vec::<String>::new());
}

#[tokio::test]
async fn row_13_a_body_that_is_invalid_later_fails_and_ends_the_connection() {
    let post = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let mut server = Server::start(1000);
    server.send(post).await;
    tokio::task::yield_now().await;
    let (response, requests) = server.converse(&[b"5 \r\nworld\r\n0\r\n\r\n", GET.as_bytes()]).await;
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert_eq!(requests, ["POST /p with a failed body"]);
}

#[tokio::test]
async fn row_14_an_unread_body_is_not_parsed_as_a_request() {
    let post = format!("POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{GET}", GET.len());
    for cut in 0..post.len() {
        let (left, right) = post.as_bytes().split_at(cut);
        let (_, requests) = Server::start(1000).converse(&[left, right, LAST.as_bytes()]).await;
        assert!(!requests.contains(&"GET /a ".to_owned()), "cut at {cut}: {requests:?}");
    }
}

#[tokio::test]
async fn informational_responses_come_between_two_final_responses() {
    let hints = "GET /hints HTTP/1.1\r\nHost: a\r\n\r\n";
    let bytes = format!("GET /large HTTP/1.1\r\nHost: a\r\n\r\n{hints}{hints}{LAST}");
    // In a small pipe, all responses are written in many pieces.
    for room in [1, 7, 64, 20_000] {
        let server = Server::start(room);
        let (mut reading, mut writing) = tokio::io::split(server.client);
        let text = bytes.clone();
        let sending = tokio::spawn(async move { writing.write_all(text.as_bytes()).await });
        let mut responses = String::new();
        let _ = reading.read_to_string(&mut responses).await;
        sending.await.expect("a task").expect("sent");
        let mut rest = responses.as_str();
        for expected in [
            "HTTP/1.1 200 OK",
            "\r\n\r\nxxxxx",
            "xxxHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: b\r\n\r\nHTTP/1.1 200 OK\r\n",
            "after hintsHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n",
            "HTTP/1.1 200 OK",
            "GET /last",
        ] {
            let at =
                rest.find(expected).unwrap_or_else(|| panic!("room {room}: no {expected:?} in {rest:?}"));
            rest = &rest[at + expected.len()..];
        }
    }
}

#[tokio::test]
async fn http_1_0_clients_get_no_informational_responses() {
    let (response, _) = Server::start(1000).converse(&[b"GET /hints HTTP/1.0\r\nHost: a\r\n\r\n"]).await;
    assert!(response.starts_with("HTTP/1.0 200 OK"), "{response}");
    assert!(!response.contains("103"), "{response}");
}

const UPGRADE: &str = "Host: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

#[tokio::test]
async fn row_15_a_tunnel_carries_all_bytes_including_those_after_the_request() {
    let mut server = Server::start(1000);
    let request = format!("{GET}GET /tunnel HTTP/1.1\r\n{UPGRADE}\0early\n");
    server.send(request).await;
    server.until("101 Switching Protocols").await;
    server.until("\r\n\r\n\0early\n").await;
    server.send(b"GET / HTTP/1.1\nlater\n\n").await;
    server.until("later\n\n").await;
    assert_eq!(server.requests.lines()[..3], ["GET /a ", "GET /tunnel", "tunnel \"\\0early\\n\""]);
}

#[tokio::test]
async fn row_15_without_a_101_the_next_bytes_are_a_request() {
    let request = format!("GET /plain HTTP/1.1\r\n{UPGRADE}{GET}{LAST}");
    let (_, requests) = Server::start(1000).converse(&[request.as_bytes()]).await;
    assert_eq!(requests, ["GET /plain ", "GET /a ", "GET /last "]);
    let request = format!("GET /plain HTTP/1.1\r\n{UPGRADE}\0{GET}");
    let (responses, requests) = Server::start(1000).converse(&[request.as_bytes()]).await;
    assert_eq!(requests, ["GET /plain "]);
    assert!(responses.contains("HTTP/1.1 400 "), "{responses}");
}

#[tokio::test]
async fn a_tunnel_needs_an_upgrade_request() {
    let request = "GET /tunnel HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: close\r\n\r\n";
    let (response, requests) = Server::start(1000).converse(&[request.as_bytes()]).await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert_eq!(requests, ["GET /tunnel "]);
}

#[tokio::test]
async fn a_client_that_keeps_sending_still_gets_its_rejection() {
    let mut server = Server::start(1000);
    let endless = vec![b'x'; 1_000_000];
    server.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n").await;
    // This client reads nothing before it has sent everything.
    server.client.write_all(&endless).await.expect("it is read and discarded");
    let response = server.rest_after_close().await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    assert!(response.ends_with("too large"), "{response}");
}

#[tokio::test]
async fn a_tcp_client_that_keeps_sending_is_not_reset_before_it_reads_its_rejection() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let mut client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("a connection");
    let (server, _) = listener.accept().await.expect("a connection");
    let ticker = DeadlineTicker::new();
    let connection = serve(
        ticker.register(server, RequestLimits::default(), &ClientTimeouts::default()),
        Requests::default(),
    );
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
    client.write_all(head).await.expect("sent");
    client.write_all(&vec![b'x'; 8_000_000]).await.expect("it is read and discarded");
    client.shutdown().await.expect("open");
    let mut response = String::new();
    client.read_to_string(&mut response).await.expect("no reset");
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    connection.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn hyper_sends_100_continue_when_the_service_reads_the_body() {
    let mut server = Server::start(1000);
    let head = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    server.send(head).await;
    server.until("HTTP/1.1 100 Continue\r\n\r\n").await;
    server.send(b"four").await;
    server.until("HTTP/1.1 200 OK").await;
    assert_eq!(server.requests.lines(), ["POST /p four"]);
}

#[tokio::test]
async fn a_closed_connection_is_removed_from_the_ticker() {
    let server = Server::start(1000);
    assert_eq!(server.ticker.connections(), 1);
    let (ticker, connection) = (server.ticker.clone(), server.connection);
    drop(server.client);
    connection.await.expect("no panic").expect("a clean end");
    assert_eq!(ticker.connections(), 0);
}
