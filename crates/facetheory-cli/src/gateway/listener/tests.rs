//! The end of connections and of a listener.

use std::cell::Cell;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::gateway::connection_service::tests::{start_gateway, start_origin};

/// A page that is cached by a rule, and one that is not.
const PATHS: [&str; 2] = ["/rule/page", "/passed"];

/// A connection of a client within this process, and its signals.
async fn connect() -> (DuplexStream, Signals) {
    let (gateway, _) = start_gateway(start_origin().await).await;
    let connections = ConnectionLimit::new(1, 1);
    let permit = Arc::new(connections.acquire(None).expect("a permit"));
    let endpoint = Endpoint { gateway, tls: None, connections, deadline_ticker: DeadlineTicker::new() };
    let (client_side, io) = tokio::io::duplex(LOCAL_BUFFER_BYTES);
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let client = Client { address, scheme: Scheme::HTTP, http1_state: None, permit: Arc::downgrade(&permit) };
    let (signals, token) = (Signals::default(), TaskTracker::new().token());
    let connection = Connection { endpoint, signals: signals.clone(), permit, token };
    connection.spawn(connection.http1(io, client));
    (client_side, signals)
}

/// Sends a request, and returns the head of its response; "" if the connection was closed.
async fn exchange(client: &mut DuplexStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    if client.write_all(request.as_bytes()).await.is_err() {
        return String::new();
    }
    let mut received = String::new();
    let mut byte = [0];
    while !received.ends_with("\r\n\r\n") {
        match client.read(&mut byte).await {
            Ok(1) => received.push(char::from(byte[0])),
            _ => return String::new(),
        }
    }
    let length = received.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    client.read_exact(&mut body).await.expect("a body");
    received
}

#[tokio::test]
async fn the_first_response_after_the_drain_is_the_last_one_and_says_so() {
    for path in PATHS {
        let (mut client, signals) = connect().await;
        for _ in 0..3 {
            // The later ones of the cached page are served without hyper.
            let head = exchange(&mut client, path).await;
            assert!(head.starts_with("HTTP/1.1 200") && !head.contains("connection:"), "{head}");
        }
        signals.drain.trigger();
        tokio::task::yield_now().await;
        let head = exchange(&mut client, path).await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close\r\n"), "{path}: {head}");
        assert_eq!(exchange(&mut client, path).await, "", "the connection is closed");
    }
}

#[tokio::test]
async fn idle_connections_are_closed_by_the_second_signal() {
    for requests in 0..3 {
        for path in PATHS {
            let (mut client, signals) = connect().await;
            for _ in 0..requests {
                assert_ne!(exchange(&mut client, path).await, "");
            }
            signals.drain.trigger();
            signals.close_idle.trigger();
            assert_eq!(client.read(&mut [0]).await.expect("no error"), 0, "{path} after {requests} requests");
        }
    }
}

#[tokio::test]
async fn connections_that_wait_in_the_backlog_are_accepted_before_the_listener_closes() {
    const WAITING: usize = 5;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let clients: Vec<_> =
        (0..WAITING).map(|_| std::net::TcpStream::connect(address).expect("a connection")).collect();
    let accepted = Cell::new(0);
    accept_backlog(listener, |_, _| accepted.set(accepted.get() + 1));
    assert_eq!(accepted.get(), clients.len());
    assert!(std::net::TcpStream::connect(address).is_err(), "the listener is closed");
}
