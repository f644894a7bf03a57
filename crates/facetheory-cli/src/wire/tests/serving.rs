//! hyper itself, reading through a wire, with a service that notes what it is asked.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::super::stream::{CheckedStream, FastPathEnd};
use super::super::{ActiveRequest, ClientTimeouts, ConnectionState, DeadlineTicker, RequestLimits};

/// The body of an answer, which is under way until it is dropped.
pub(super) struct Answer {
    body: Full<Bytes>,
    _answering: ActiveRequest,
}

impl Body for Answer {
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

/// What the service was asked: a line for each request, with its body or what became of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    pub(super) fn note(&self, line: String) {
        self.0.lock().expect("whole").push(line);
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().expect("whole").clone()
    }
}

/// The client's end of a connection to hyper behind a wire.
pub(super) struct Server {
    pub(super) client: DuplexStream,
    pub(super) asked: Asked,
    pub(super) ticker: Arc<DeadlineTicker>,
    pub(super) connection: JoinHandle<hyper::Result<()>>,
}

impl Server {
    /// Starts one whose pipe has room for so many bytes each way.
    pub(super) fn start(room: usize) -> Self {
        Server::with(room, RequestLimits::default(), &ClientTimeouts::default())
    }

    pub(super) fn with(room: usize, limits: RequestLimits, timeouts: &ClientTimeouts) -> Self {
        Server::changed(room, limits, timeouts, |_, _| ())
    }

    /// Starts one whose wire is changed before anything is read.
    pub(super) fn changed(
        room: usize,
        limits: RequestLimits,
        timeouts: &ClientTimeouts,
        change: impl FnOnce(&mut CheckedStream<DuplexStream>, &Asked),
    ) -> Self {
        let (client, server) = tokio::io::duplex(room);
        let (ticker, asked) = (DeadlineTicker::new(), Asked::default());
        let mut wire = ticker.register(server, limits, timeouts);
        change(&mut wire, &asked);
        let connection = serve(wire, asked.clone());
        Server { client, asked, ticker, connection }
    }

    /// Sends everything, in pieces, closes, and says all that was answered.
    pub(super) async fn converse(mut self, pieces: &[&[u8]]) -> (String, Vec<String>) {
        let answers = async {
            for piece in pieces {
                // The server may have had enough.
                if self.client.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            self.rest().await
        };
        let answers = answers.await;
        (answers, self.asked.lines())
    }

    /// Everything that the server still says.
    pub(super) async fn rest(&mut self) -> String {
        let mut answers = Vec::new();
        // A pipe that is torn down says so, and what was read before counts.
        let _ = self.client.read_to_end(&mut answers).await;
        String::from_utf8(answers).expect("text")
    }

    /// Sends everything, in pieces, says that nothing more comes, and reads what is answered.
    pub(super) async fn converse_and_close(mut self, pieces: &[&[u8]]) -> (String, Vec<String>) {
        for piece in pieces {
            // The server may have had enough.
            if self.client.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        // hyper gives up an answer whose client has closed its side, so it gets the chance to end them all before.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let answers = self.rest_after_close().await;
        (answers, self.asked.lines())
    }

    /// Says that nothing more comes, and reads what is answered.
    async fn rest_after_close(&mut self) -> String {
        // It may be closed already.
        let _ = self.client.shutdown().await;
        self.rest().await
    }

    /// Reads until the server has said this.
    pub(super) async fn until(&mut self, text: &str) -> String {
        let mut said = String::new();
        while !said.contains(text) {
            let byte = self.client.read_u8().await.unwrap_or_else(|_| panic!("no {text:?} in {said:?}"));
            said.push(char::from(byte));
        }
        said
    }
}

/// Lets hyper serve a connection.
fn serve<IO>(mut wire: CheckedStream<IO>, asked: Asked) -> JoinHandle<hyper::Result<()>>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let state = wire.state().clone();
    let service = service_fn(move |request| answer(request, state.clone(), asked.clone()));
    tokio::spawn(async move {
        if !matches!(wire.serve_fast_path().await, Ok(FastPathEnd::Asked)) {
            let _ = wire.shutdown().await;
            return Ok(());
        }
        let builder = hyper::server::conn::http1::Builder::new();
        builder.serve_connection(TokioIo::new(wire), service).with_upgrades().await
    })
}

/// What the service does, by the path.
async fn answer(
    request: Request<Incoming>,
    state: Arc<ConnectionState>,
    asked: Asked,
) -> Result<Response<Answer>, Infallible> {
    let answering = state.answering();
    let response = |status: StatusCode, text: &str| {
        let body = Full::new(Bytes::from(text.to_owned()));
        let mut response = Response::new(Answer { body, _answering: answering });
        *response.status_mut() = status;
        Ok(response)
    };
    if let Some((rejection, _)) = state.refused(request.method(), request.headers()) {
        return response(rejection.status, rejection.text);
    }
    let line = format!("{} {}", request.method(), request.uri());
    let version = request.version();
    match request.uri().path() {
        "/hints" => {
            asked.note(line);
            let informational = state.informational();
            for hint in ["link: a", "link: b"] {
                let hint = format!("HTTP/1.1 103 Early Hints\r\n{hint}\r\n\r\n");
                informational.sender().send(version, hint.into()).await;
            }
            drop(informational);
            return response(StatusCode::OK, "after hints");
        }
        "/large" => {
            asked.note(line);
            return response(StatusCode::OK, &"x".repeat(10_000));
        }
        "/slow" => {
            asked.note(line);
            tokio::time::sleep(Duration::from_secs(1000)).await;
            return response(StatusCode::OK, "slow");
        }
        "/unread" => {
            asked.note(line);
            return response(StatusCode::OK, "unread");
        }
        "/unread-later" => {
            asked.note(line);
            tokio::time::sleep(Duration::from_secs(1)).await;
            return response(StatusCode::OK, "unread");
        }
        "/tunnel" if state.tunnel() => {
            asked.note(line);
            tokio::spawn(echo(request, asked.clone()));
            return response(StatusCode::SWITCHING_PROTOCOLS, "");
        }
        _ => {}
    }
    match request.into_body().collect().await {
        Ok(body) => {
            let body = body.to_bytes();
            asked.note(format!("{line} {}", String::from_utf8_lossy(&body)));
            response(StatusCode::OK, &format!("{version:?} {line}"))
        }
        Err(_) => {
            asked.note(format!("{line} with a broken body"));
            let rejection = state.rejection();
            response(rejection.map_or(StatusCode::BAD_GATEWAY, |rejection| rejection.status), "broken")
        }
    }
}

async fn echo(request: Request<Incoming>, asked: Asked) {
    let upgraded = hyper::upgrade::on(request).await.expect("another protocol");
    let mut upgraded = TokioIo::new(upgraded);
    let mut buffer = [0; 100];
    while let Ok(read @ 1..) = upgraded.read(&mut buffer).await {
        asked.note(format!("tunnel {:?}", String::from_utf8_lossy(&buffer[..read])));
        upgraded.write_all(&buffer[..read]).await.expect("room");
    }
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_refused_request_is_answered_and_never_seen_by_the_service() {
    let (answer, asked) = Server::start(1000).converse(&[b"GET / HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n"]).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\na request needs a Host"), "{answer}");
    assert_eq!(asked, Vec::<String>::new());
}

#[tokio::test]
async fn a_refusal_is_answered_in_its_turn_and_nothing_after_it_is_heard() {
    let bytes = format!("{GET}GET / HTTP/1.1\nHost: a\n\n{GET}");
    for cut in 0..bytes.len() {
        let (left, right) = bytes.as_bytes().split_at(cut);
        let (answers, asked) = Server::start(1000).converse(&[left, right]).await;
        let statuses: Vec<_> =
            answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
        // The second is in the body of the first, which says what was asked.
        assert_eq!(statuses, ["200", "GET", "400"], "cut at {cut}: {answers}");
        assert_eq!(asked, ["GET /a "], "cut at {cut}");
    }
}

#[tokio::test]
async fn requests_cut_anywhere_are_answered_as_if_they_were_whole() {
    let post =
        "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nX: y\r\n\r\n";
    let sized = "POST /s HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nfour\r\n";
    let bytes = format!("{GET}{post}{sized}{LAST}");
    let expected = ["GET /a ", "POST /p hello", "POST /s four", "GET /last "];
    for cut in 0..bytes.len() {
        let (left, right) = bytes.as_bytes().split_at(cut);
        let (_, asked) = Server::start(1000).converse(&[left, right]).await;
        assert_eq!(asked, expected, "cut at {cut}");
    }
    let pieces: Vec<_> = bytes.as_bytes().chunks(1).collect();
    assert_eq!(Server::start(1000).converse(&pieces).await.1, expected, "byte by byte");
}

#[tokio::test]
async fn row_13_a_body_that_is_wrong_from_the_beginning_is_refused_with_its_head() {
    let post = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n";
    let (answer, asked) = Server::start(1000).converse(&[post.as_bytes()]).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(asked, Vec::<String>::new());
}

#[tokio::test]
async fn row_13_a_body_that_goes_wrong_later_breaks_and_ends_the_connection() {
    let post = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let mut server = Server::start(1000);
    server.client.write_all(post.as_bytes()).await.expect("room");
    tokio::task::yield_now().await;
    let (answer, asked) = server.converse(&[b"5 \r\nworld\r\n0\r\n\r\n", GET.as_bytes()]).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(asked, ["POST /p with a broken body"]);
}

#[tokio::test]
async fn row_14_a_body_that_the_service_leaves_is_not_taken_for_a_request() {
    let post = format!("POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{GET}", GET.len());
    for cut in 0..post.len() {
        let (left, right) = post.as_bytes().split_at(cut);
        let (_, asked) = Server::start(1000).converse(&[left, right, LAST.as_bytes()]).await;
        assert!(!asked.contains(&"GET /a ".to_owned()), "cut at {cut}: {asked:?}");
    }
}

#[tokio::test]
async fn interim_answers_come_before_the_answer_and_after_the_one_before_it() {
    let hints = "GET /hints HTTP/1.1\r\nHost: a\r\n\r\n";
    let bytes = format!("GET /large HTTP/1.1\r\nHost: a\r\n\r\n{hints}{hints}{LAST}");
    // With little room, all answers are written in many pieces.
    for room in [1, 7, 64, 20_000] {
        let server = Server::start(room);
        let (mut reading, mut writing) = tokio::io::split(server.client);
        let text = bytes.clone();
        let sending = tokio::spawn(async move { writing.write_all(text.as_bytes()).await });
        let mut answers = String::new();
        let _ = reading.read_to_string(&mut answers).await;
        sending.await.expect("a task").expect("sent");
        let mut rest = answers.as_str();
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
async fn clients_of_http_1_0_get_no_interim_answers() {
    let (answer, _) = Server::start(1000).converse(&[b"GET /hints HTTP/1.0\r\nHost: a\r\n\r\n"]).await;
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    assert!(!answer.contains("103"), "{answer}");
}

const UPGRADE: &str = "Host: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

#[tokio::test]
async fn row_15_a_tunnel_passes_all_bytes_also_those_that_came_with_the_request() {
    let mut server = Server::start(1000);
    let request = format!("{GET}GET /tunnel HTTP/1.1\r\n{UPGRADE}\0early\n");
    server.client.write_all(request.as_bytes()).await.expect("room");
    server.until("101 Switching Protocols").await;
    server.until("\r\n\r\n\0early\n").await;
    server.client.write_all(b"GET / HTTP/1.1\nlater\n\n").await.expect("room");
    server.until("later\n\n").await;
    assert_eq!(server.asked.lines()[..3], ["GET /a ", "GET /tunnel", "tunnel \"\\0early\\n\""]);
}

#[tokio::test]
async fn row_15_without_a_101_what_follows_is_the_next_request() {
    let request = format!("GET /plain HTTP/1.1\r\n{UPGRADE}{GET}{LAST}");
    let (_, asked) = Server::start(1000).converse(&[request.as_bytes()]).await;
    assert_eq!(asked, ["GET /plain ", "GET /a ", "GET /last "]);
    let request = format!("GET /plain HTTP/1.1\r\n{UPGRADE}\0{GET}");
    let (answers, asked) = Server::start(1000).converse(&[request.as_bytes()]).await;
    assert_eq!(asked, ["GET /plain "]);
    assert!(answers.contains("HTTP/1.1 400 "), "{answers}");
}

#[tokio::test]
async fn a_tunnel_is_dug_only_for_those_who_asked() {
    let request = "GET /tunnel HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: close\r\n\r\n";
    let (answer, asked) = Server::start(1000).converse(&[request.as_bytes()]).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(asked, ["GET /tunnel "]);
}

#[tokio::test]
async fn a_client_that_sends_on_and_on_still_reads_its_refusal() {
    let mut server = Server::start(1000);
    let endless = vec![b'x'; 1_000_000];
    server
        .client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
        .await
        .expect("room");
    // Nothing is read by this client before it has sent all.
    server.client.write_all(&endless).await.expect("it is taken, and thrown away");
    let answer = server.rest_after_close().await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.ends_with("too large"), "{answer}");
}

#[tokio::test]
async fn a_client_over_tcp_that_sends_on_and_on_is_not_reset_before_it_reads_its_refusal() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let mut client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("a connection");
    let (server, _) = listener.accept().await.expect("a connection");
    let ticker = DeadlineTicker::new();
    let connection = serve(
        ticker.register(server, RequestLimits::default(), &ClientTimeouts::default()),
        Asked::default(),
    );
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
    client.write_all(head).await.expect("sent");
    client.write_all(&vec![b'x'; 8_000_000]).await.expect("it is taken, and thrown away");
    client.shutdown().await.expect("open");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("no reset");
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    connection.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn an_expectation_is_met_by_hyper_once_the_body_is_wanted() {
    let mut server = Server::start(1000);
    let head = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    server.client.write_all(head).await.expect("room");
    server.until("HTTP/1.1 100 Continue\r\n\r\n").await;
    server.client.write_all(b"four").await.expect("room");
    server.until("HTTP/1.1 200 OK").await;
    assert_eq!(server.asked.lines(), ["POST /p four"]);
}

#[tokio::test]
async fn a_connection_that_has_ended_is_no_longer_watched() {
    let server = Server::start(1000);
    assert_eq!(server.ticker.connections(), 1);
    let (ticker, connection) = (server.ticker.clone(), server.connection);
    drop(server.client);
    connection.await.expect("no panic").expect("a clean end");
    assert_eq!(ticker.connections(), 0);
}
