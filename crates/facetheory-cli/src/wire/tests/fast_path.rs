//! Answers from a shelf, between those of hyper.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::request::Parts;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};

use super::super::{ClientTimeouts, DeadlineTicker, FastPath, RawResponse, RequestLimits};
use super::serving::{Asked, Server};

/// A shelf with a short answer and a long one.
#[derive(Debug)]
struct Pages(Asked);

impl FastPath for Pages {
    fn get_fresh(&self, request: Parts) -> Option<RawResponse> {
        let body = match request.uri.path() {
            "/short" => "short".to_owned(),
            "/long" => "y".repeat(10_000),
            _ => return None,
        };
        self.0.note(format!("shelf {}", request.uri));
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        Some(RawResponse { head: head.into(), body: Bytes::from(body) })
    }
}

fn server(room: usize, timeouts: &ClientTimeouts) -> Server {
    Server::changed(room, RequestLimits::default(), timeouts, |wire, asked| {
        wire.set_fast_path(Box::new(Pages(asked.clone())));
    })
}

/// A request, and the body that answers it.
const REQUESTS: [(&str, &str); 7] = [
    ("GET /short HTTP/1.1\r\nHost: a\r\n\r\n", "short"),
    ("GET /long HTTP/1.1\r\nHost: a\r\n\r\n", "y"),
    ("GET /a HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 GET /a"),
    ("GET /large HTTP/1.1\r\nHost: a\r\n\r\n", "x"),
    ("GET /hints HTTP/1.1\r\nHost: a\r\n\r\n", "after hints"),
    ("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 POST /p"),
    (
        "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nz\r\n0\r\n\r\n",
        "HTTP/1.1 POST /c",
    ),
];
const LAST: (&str, &str) =
    ("GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 GET /last");

#[tokio::test(start_paused = true)]
async fn row_14_a_body_that_the_service_leaves_is_not_answered_from_the_shelf() {
    // hyper reads the beginning of a body by itself, and the rest only once the service has left it.
    let (body, next) = (format!("zz{}", REQUESTS[0].0), REQUESTS[1].0);
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (framing, body) in
        [(format!("Content-Length: {}", body.len()), body), ("Transfer-Encoding: chunked".to_owned(), chunks)]
    {
        for cut in 1..body.len() {
            let (left, right) = body.split_at(cut);
            let mut server = server(100_000, &ClientTimeouts::default());
            let head = format!("POST /unread-later HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
            for piece in [&head, left, &format!("{right}{next}")] {
                server.client.write_all(piece.as_bytes()).await.expect("room");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            // The server may have had enough.
            let _ = server.client.write_all(LAST.0.as_bytes()).await;
            server.rest().await;
            let asked = server.asked.lines();
            let asked: Vec<_> = asked.iter().map(String::as_str).collect();
            match asked[..] {
                ["POST /unread-later"]
                | ["POST /unread-later", "shelf /long" | "GET /long ", "GET /last "] => {}
                _ => panic!("{framing}, cut at {cut}: {asked:?}"),
            }
        }
    }
}

/// A connection that takes all that is written to it, and passes it on only when it is flushed.
#[derive(Debug)]
struct Hoard {
    pipe: DuplexStream,
    hoarded: BytesMut,
}

impl AsyncRead for Hoard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Hoard {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.hoarded.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let hoard = &mut *self;
        while !hoard.hoarded.is_empty() {
            let written = ready!(Pin::new(&mut hoard.pipe).poll_write(cx, &hoard.hoarded))?;
            hoard.hoarded.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_the_shelf_is_sent_to_its_end_where_a_connection_takes_more_than_it_sends() {
    let (mut client, pipe) = tokio::io::duplex(100);
    let hoard = Hoard { pipe, hoarded: BytesMut::new() };
    let mut wire =
        DeadlineTicker::new().register(hoard, RequestLimits::default(), &ClientTimeouts::default());
    wire.set_fast_path(Box::new(Pages(Asked::default())));
    tokio::spawn(async move { wire.serve_fast_path().await });
    for _ in 0..2 {
        client.write_all(REQUESTS[1].0.as_bytes()).await.expect("room");
        let mut answer = vec![0; "HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n".len() + 10_000];
        // Time passes only when nobody has anything to do.
        let read = tokio::time::timeout(Duration::from_secs(1), client.read_exact(&mut answer)).await;
        read.expect("all of it").expect("no end");
        assert_eq!(bodies(&String::from_utf8(answer).expect("a text")), ["y"]);
    }
}

/// The bodies of all final answers, the long ones by their first letter. A request that was not whole when it was read, or
/// not alone, is answered by the service, which says what it was asked.
fn bodies(mut answers: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    while let Some((head, rest)) = answers.split_once("\r\n\r\n") {
        assert!(head.starts_with("HTTP/1.1 "), "no head: {head:?}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().expect("a number"));
        let (body, rest) = rest.split_at(length);
        if head.starts_with("HTTP/1.1 200 ") {
            bodies.push(match body {
                "HTTP/1.1 GET /short" => "short".to_owned(),
                "HTTP/1.1 GET /long" => "y".to_owned(),
                _ if length == 10_000 => body[..1].to_owned(),
                _ => body.to_owned(),
            });
        }
        answers = rest;
    }
    assert_eq!(answers, "");
    bodies
}

/// Sends requests, cut into pieces with a pause after some, and reads what is answered.
async fn converse(requests: &[usize], cuts: &[prop::sample::Index], pause: bool, room: usize) -> Vec<String> {
    let text: String = requests.iter().map(|&request| REQUESTS[request].0).chain([LAST.0]).collect();
    let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(text.len())).chain([0, text.len()]).collect();
    places.sort_unstable();
    let (mut reading, mut writing) = tokio::io::split(server(room, &ClientTimeouts::default()).client);
    let sending = tokio::spawn(async move {
        for pair in places.windows(2) {
            writing.write_all(&text.as_bytes()[pair[0]..pair[1]]).await.expect("room");
            if pause {
                // Time passes only when nobody has anything to do: all that has come is answered.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let mut answers = String::new();
    reading.read_to_string(&mut answers).await.expect("answers");
    sending.await.expect("sent");
    bodies(&answers)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn answers_come_in_the_order_of_their_requests_wherever_they_come_from(
        requests in prop::collection::vec(0..REQUESTS.len(), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        pause in any::<bool>(),
        room in prop::sample::select(vec![1_usize, 7, 64, 1000, 100_000]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let answers = runtime.expect("a runtime").block_on(converse(&requests, &cuts, pause, room));
        let expected: Vec<_> = requests.iter().map(|&request| REQUESTS[request].1).chain([LAST.1]).collect();
        prop_assert_eq!(answers, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_at_hand_is_answered_without_the_service_and_all_else_by_it() {
    let mut server = server(1000, &ClientTimeouts::default());
    for _ in 0..3 {
        server.client.write_all(REQUESTS[0].0.as_bytes()).await.expect("room");
        server.until("short").await;
        server.client.write_all(REQUESTS[2].0.as_bytes()).await.expect("room");
        server.until("GET /a").await;
    }
    assert_eq!(server.asked.lines(), ["shelf /short", "GET /a "].repeat(3));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_an_answer_from_the_shelf_is_left() {
    let timeouts = ClientTimeouts { write: Duration::from_secs(30), ..ClientTimeouts::default() };
    let server = server(100, &timeouts);
    let ticker = server.ticker.clone();
    tokio::spawn(async move { ticker.run().await });
    let mut client = server.client;
    client.write_all(REQUESTS[1].0.as_bytes()).await.expect("room");
    let start = tokio::time::Instant::now();
    // To hyper it is a client that has left without asking anything.
    server.connection.await.expect("no panic").expect("its end");
    let limit = timeouts.write;
    assert!((limit..limit + Duration::from_secs(1)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_said_all_gets_its_answer_to_the_end() {
    let mut server = server(100, &ClientTimeouts::default());
    server.client.write_all(REQUESTS[1].0.as_bytes()).await.expect("room");
    server.client.shutdown().await.expect("open");
    assert_eq!(bodies(&server.rest().await), ["y"]);
}
