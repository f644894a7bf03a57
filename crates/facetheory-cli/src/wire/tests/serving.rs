//! Requests through a checked stream to hyper, and the responses.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::{ClientTimeouts, DeadlineTicker, RequestLimits};
use super::server::{Requests, Server, serve};

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
