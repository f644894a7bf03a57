//! Slow clients. The clock is paused: time passes only when all tasks wait.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};

use super::super::{ClientTimeouts, MinRate, RequestLimits};
use super::server::Server;

const TIMEOUTS: ClientTimeouts = ClientTimeouts {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    body: Duration::from_secs(20),
    write: MinRate::none(Duration::from_secs(30)),
};

/// A server with a running clock.
fn server(room: usize) -> Server {
    let server = Server::with(room, RequestLimits::default(), &TIMEOUTS);
    let ticker = server.ticker.clone();
    tokio::spawn(async move { ticker.run().await });
    server
}

/// Whether a timeout fired in time: never early, and at most two ticks late.
fn is_about(elapsed: Duration, expected: Duration) -> bool {
    elapsed >= expected && elapsed <= expected + Duration::from_millis(500)
}

/// Asserts that the server closes the connection after this time, and sends nothing more.
async fn assert_closed_after(server: &mut Server, expected: Duration) {
    let start = Instant::now();
    assert_eq!(server.rest().await, "");
    assert!(is_about(start.elapsed(), expected), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn row_64_a_slow_head_times_out_with_408() {
    let mut server = server(1000);
    let start = Instant::now();
    let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
    let response = loop {
        let byte = *bytes.next().expect("endless");
        server.client.write_u8(byte).await.expect("room");
        tokio::select! {
            response = server.until("timed out") => break response,
            () = sleep(Duration::from_secs(1)) => {}
        }
    };
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(is_about(start.elapsed(), TIMEOUTS.head), "{:?}", start.elapsed());
    assert_eq!(server.requests.lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn row_64_a_connection_without_a_request_is_closed_silently() {
    let mut server = server(1000);
    assert_closed_after(&mut server, TIMEOUTS.idle).await;
}

#[tokio::test(start_paused = true)]
async fn row_64_an_idle_connection_is_closed_after_its_last_response() {
    let mut server = server(1000);
    for _ in 0..3 {
        sleep(TIMEOUTS.idle - Duration::from_secs(1)).await;
        server.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        server.until("GET /").await;
    }
    assert_closed_after(&mut server, TIMEOUTS.idle).await;
    assert_eq!(server.requests.lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_empty_line_after_a_request_does_not_begin_another() {
    let mut server = server(1000);
    server.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n").await;
    server.until("POST /").await;
    assert_closed_after(&mut server, TIMEOUTS.idle).await;
}

#[tokio::test(start_paused = true)]
async fn row_64_a_slow_body_times_out_with_408() {
    let mut server = server(1000);
    server.send(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n").await;
    for _ in 0..5 {
        sleep(TIMEOUTS.body - Duration::from_secs(1)).await;
        server.client.write_u8(b'x').await.expect("room");
    }
    // The timeout begins once all bytes have been read.
    tokio::task::yield_now().await;
    let start = Instant::now();
    let response = server.until("\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(is_about(start.elapsed(), TIMEOUTS.body), "{:?}", start.elapsed());
    assert_eq!(server.requests.lines(), ["POST /p with a failed body"]);
}

#[tokio::test(start_paused = true)]
async fn row_64_a_client_that_does_not_read_is_disconnected() {
    let mut server = server(100);
    server.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    for _ in 0..5 {
        sleep(TIMEOUTS.write.grace - Duration::from_secs(1)).await;
        server.client.read_exact(&mut [0; 10]).await.expect("more of the response");
    }
    let start = Instant::now();
    server.connection.await.expect("no panic").expect_err("a write timeout");
    assert!(is_about(start.elapsed(), TIMEOUTS.write.grace), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_always_reads_too_slowly_is_disconnected() {
    let second = Duration::from_secs(1);
    // Ten bytes are read each second.
    for (bytes_per_second, is_disconnected) in [(1, false), (10, false), (100, true)] {
        let timeouts = ClientTimeouts { write: MinRate { bytes_per_second, ..TIMEOUTS.write }, ..TIMEOUTS };
        let mut server = Server::with(100, RequestLimits::default(), &timeouts);
        let ticker = server.ticker.clone();
        tokio::spawn(async move { ticker.run().await });
        server.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
        for _ in 0..200 {
            sleep(second).await;
            if server.client.read_exact(&mut [0; 10]).await.is_err() {
                break;
            }
        }
        assert_eq!(server.connection.is_finished(), is_disconnected, "{bytes_per_second} bytes a second");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_still_reads_its_response_is_not_idle() {
    let timeouts = ClientTimeouts { idle: Duration::from_secs(5), ..TIMEOUTS };
    let mut server = Server::with(100, RequestLimits::default(), &timeouts);
    let ticker = server.ticker.clone();
    tokio::spawn(async move { ticker.run().await });
    server.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    sleep(TIMEOUTS.write.grace - Duration::from_secs(1)).await;
    let response = server.until(&"x".repeat(10_000)).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert_closed_after(&mut server, timeouts.idle).await;
}

/// A server that has sent a response with this beginning to this request.
async fn respond(request: &[u8], expected: &str) -> Server {
    let mut server = server(1000);
    server.send(request).await;
    let response = server.rest().await;
    assert!(response.starts_with(expected), "{response}");
    server
}

#[tokio::test(start_paused = true)]
async fn a_response_may_take_any_time() {
    let start = Instant::now();
    respond(b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 ").await;
    assert!(start.elapsed() >= Duration::from_secs(1000));
}

#[tokio::test(start_paused = true)]
async fn a_silent_tunnel_stays_open() {
    let mut server = server(1000);
    let request = b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst";
    server.send(request).await;
    server.until("first").await;
    sleep(Duration::from_secs(1000)).await;
    server.send(b"second").await;
    server.until("second").await;
}

#[tokio::test(start_paused = true)]
async fn a_pipelined_head_has_its_own_timeout() {
    let mut server = server(1000);
    server.send(b"GET /a HTTP/1.1\r\n").await;
    sleep(TIMEOUTS.head - Duration::from_secs(1)).await;
    server.send(b"Host: a\r\n\r\nGET /b HTTP/1.1\r\n").await;
    sleep(TIMEOUTS.head - Duration::from_secs(1)).await;
    server.send(b"Host: a\r\nConnection: close\r\n\r\n").await;
    server.rest().await;
    assert_eq!(server.requests.lines(), ["GET /a ", "GET /b "]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stays_after_a_rejection_is_disconnected() {
    let start = Instant::now();
    let server = respond(b"nonsense\r\n", "HTTP/1.1 400 ").await;
    // The response is sent at once; the connection lingers for a while.
    server.connection.await.expect("no panic").expect("a clean end");
    assert!(start.elapsed() <= Duration::from_secs(6), "{:?}", start.elapsed());
    assert_eq!(server.ticker.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_has_no_write_timeout() {
    const ROOM: usize = 100;
    let mut server = server(ROOM);
    let request = b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst";
    server.send(request).await;
    server.until("first").await;
    let more = "x".repeat(ROOM * 2);
    server.send(&more).await;
    sleep(TIMEOUTS.write.grace * 10).await;
    server.until(&more).await;
}
