//! Responses of the fast path, between those of hyper.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::request::Parts;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};

use super::super::{ClientTimeouts, DeadlineTicker, FastPath, MinRate, RawResponse, RequestLimits};
use super::server::{Requests, Server};

/// A fast path with a short page and a long one.
#[derive(Debug)]
struct Pages(Requests);

impl FastPath for Pages {
    fn get_fresh(&self, request: Parts) -> Option<RawResponse> {
        let body = match request.uri.path() {
            "/short" => "short".to_owned(),
            "/long" => "y".repeat(10_000),
            _ => {
                self.0.record_miss(request.uri);
                return None;
            }
        };
        self.0.record(format!("fast path {}", request.uri));
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        Some(RawResponse { head: head.into(), body: Bytes::from(body) })
    }
}

fn server(room: usize, timeouts: &ClientTimeouts) -> Server {
    Server::changed(room, RequestLimits::default(), timeouts, |stream, requests| {
        stream.set_fast_path(Box::new(Pages(requests.clone())));
    })
}

/// A request, and the body of its response.
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
async fn row_14_an_unread_body_is_not_served_by_the_fast_path() {
    // hyper reads the beginning of a body at once, and the rest only after the service has dropped it.
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
                server.send(piece).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            // The server may have closed the connection.
            let _ = server.client.write_all(LAST.0.as_bytes()).await;
            server.rest().await;
            let requests = server.requests.lines();
            let requests: Vec<_> = requests.iter().map(String::as_str).collect();
            match requests[..] {
                ["POST /unread-later"]
                | ["POST /unread-later", "fast path /long" | "GET /long ", "GET /last "] => {}
                _ => panic!("{framing}, cut at {cut}: {requests:?}"),
            }
        }
    }
}

/// A connection that accepts all writes, and sends them only when it is flushed, like TLS.
#[derive(Debug)]
struct Buffered {
    pipe: DuplexStream,
    unsent: BytesMut,
}

impl AsyncRead for Buffered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Buffered {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.unsent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let buffered = &mut *self;
        while !buffered.unsent.is_empty() {
            let written = ready!(Pin::new(&mut buffered.pipe).poll_write(cx, &buffered.unsent))?;
            buffered.unsent.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_sent_completely_over_a_connection_that_buffers_writes() {
    let (mut client, pipe) = tokio::io::duplex(100);
    let buffered = Buffered { pipe, unsent: BytesMut::new() };
    let mut stream =
        DeadlineTicker::new().register(buffered, RequestLimits::default(), &ClientTimeouts::default());
    stream.set_fast_path(Box::new(Pages(Requests::default())));
    tokio::spawn(async move { stream.serve_fast_path().await });
    for _ in 0..2 {
        client.write_all(REQUESTS[1].0.as_bytes()).await.expect("room");
        let mut response = vec![0; "HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n".len() + 10_000];
        // Time passes only when all tasks wait.
        let read = tokio::time::timeout(Duration::from_secs(1), client.read_exact(&mut response)).await;
        read.expect("all of it").expect("no end");
        assert_eq!(bodies(&String::from_utf8(response).expect("a text")), ["y"]);
    }
}

/// The bodies of all final responses; of long ones, the first letter. A request that was read in pieces, or together with
/// others, is served by the service, whose body repeats the request.
fn bodies(mut responses: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    while let Some((head, rest)) = responses.split_once("\r\n\r\n") {
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
        responses = rest;
    }
    assert_eq!(responses, "");
    bodies
}

/// Sends requests, split into pieces with optional pauses, and returns the bodies of the responses.
async fn converse(requests: &[usize], cuts: &[prop::sample::Index], pause: bool, room: usize) -> Vec<String> {
    let text: String = requests.iter().map(|&request| REQUESTS[request].0).chain([LAST.0]).collect();
    let mut positions: Vec<_> = cuts.iter().map(|cut| cut.index(text.len())).chain([0, text.len()]).collect();
    positions.sort_unstable();
    let (mut reading, mut writing) = tokio::io::split(server(room, &ClientTimeouts::default()).client);
    let sending = tokio::spawn(async move {
        for pair in positions.windows(2) {
            writing.write_all(&text.as_bytes()[pair[0]..pair[1]]).await.expect("room");
            if pause {
                // Time passes only when all tasks wait: all requests so far have a response.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let mut responses = String::new();
    reading.read_to_string(&mut responses).await.expect("responses");
    sending.await.expect("sent");
    bodies(&responses)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn responses_come_in_the_order_of_their_requests(
        requests in prop::collection::vec(0..REQUESTS.len(), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        pause in any::<bool>(),
        room in prop::sample::select(vec![1_usize, 7, 64, 1000, 100_000]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let responses = runtime.expect("a runtime").block_on(converse(&requests, &cuts, pause, room));
        let expected: Vec<_> = requests.iter().map(|&request| REQUESTS[request].1).chain([LAST.1]).collect();
        prop_assert_eq!(responses, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn fresh_pages_are_served_without_the_service_and_all_else_by_it() {
    let mut server = server(1000, &ClientTimeouts::default());
    for _ in 0..3 {
        server.send(REQUESTS[0].0).await;
        server.until("short").await;
        server.send(REQUESTS[2].0).await;
        server.until("GET /a").await;
    }
    assert_eq!(server.requests.lines(), ["fast path /short", "GET /a "].repeat(3));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_a_fast_path_response_is_disconnected() {
    let timeouts =
        ClientTimeouts { write: MinRate::none(Duration::from_secs(30)), ..ClientTimeouts::default() };
    let server = server(100, &timeouts);
    let ticker = server.ticker.clone();
    tokio::spawn(async move { ticker.run().await });
    let mut client = server.client;
    client.write_all(REQUESTS[1].0.as_bytes()).await.expect("room");
    let start = tokio::time::Instant::now();
    // The fast path ends the connection before hyper is involved.
    server.connection.await.expect("no panic").expect("a clean end");
    let limit = timeouts.write.grace;
    assert!((limit..limit + Duration::from_secs(1)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_client_gets_its_whole_response() {
    let mut server = server(100, &ClientTimeouts::default());
    server.send(REQUESTS[1].0).await;
    server.client.shutdown().await.expect("open");
    assert_eq!(bodies(&server.rest().await), ["y"]);
}
