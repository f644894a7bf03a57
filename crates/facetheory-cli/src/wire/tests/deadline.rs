//! Clients that are slow, with time that passes only when everyone waits.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};

use super::super::{ClientTimeouts, RequestLimits};
use super::serving::Server;

const TIMEOUTS: ClientTimeouts = ClientTimeouts {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    body: Duration::from_secs(20),
    write: Duration::from_secs(30),
};

/// A server whose time passes.
fn server(room: usize) -> Server {
    let server = Server::with(room, RequestLimits::default(), &TIMEOUTS);
    let ticker = server.ticker.clone();
    tokio::spawn(async move { ticker.run().await });
    server
}

/// Whether a time is as long as it should be: never shorter, and two ticks longer at most.
fn is_about(elapsed: Duration, expected: Duration) -> bool {
    elapsed >= expected && elapsed <= expected + Duration::from_millis(500)
}

#[tokio::test(start_paused = true)]
async fn row_64_a_head_that_drips_is_ended_in_time_with_a_408() {
    let mut server = server(1000);
    let start = Instant::now();
    let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
    let answer = loop {
        let byte = *bytes.next().expect("endless");
        server.client.write_u8(byte).await.expect("room");
        tokio::select! {
            answer = server.until("in time") => break answer,
            () = sleep(Duration::from_secs(1)) => {}
        }
    };
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(is_about(start.elapsed(), TIMEOUTS.head), "{:?}", start.elapsed());
    assert_eq!(server.asked.lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn row_64_a_client_that_asks_nothing_is_left_without_a_word() {
    let mut server = server(1000);
    let start = Instant::now();
    assert_eq!(server.rest().await, "");
    assert!(is_about(start.elapsed(), TIMEOUTS.idle), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn row_64_a_client_that_asks_nothing_more_is_left_after_its_last_answer() {
    let mut server = server(1000);
    for _ in 0..3 {
        sleep(TIMEOUTS.idle - Duration::from_secs(1)).await;
        server.client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("room");
        server.until("GET /").await;
    }
    let start = Instant::now();
    assert_eq!(server.rest().await, "");
    assert!(is_about(start.elapsed(), TIMEOUTS.idle), "{:?}", start.elapsed());
    assert_eq!(server.asked.lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_empty_line_after_a_request_is_not_the_beginning_of_another() {
    let mut server = server(1000);
    server
        .client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n")
        .await
        .expect("room");
    server.until("POST /").await;
    let start = Instant::now();
    assert_eq!(server.rest().await, "");
    assert!(is_about(start.elapsed(), TIMEOUTS.idle), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn row_64_a_body_that_does_not_come_breaks() {
    let mut server = server(1000);
    server
        .client
        .write_all(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
        .await
        .expect("room");
    for _ in 0..5 {
        sleep(TIMEOUTS.body - Duration::from_secs(1)).await;
        server.client.write_u8(b'x').await.expect("room");
    }
    // What was sent has to be taken before the time begins.
    tokio::task::yield_now().await;
    let start = Instant::now();
    let answer = server.until("\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(is_about(start.elapsed(), TIMEOUTS.body), "{:?}", start.elapsed());
    assert_eq!(server.asked.lines(), ["POST /p with a broken body"]);
}

#[tokio::test(start_paused = true)]
async fn row_64_a_client_that_does_not_read_is_left() {
    let mut server = server(100);
    server.client.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("room");
    for _ in 0..5 {
        sleep(TIMEOUTS.write - Duration::from_secs(1)).await;
        server.client.read_exact(&mut [0; 10]).await.expect("more of the answer");
    }
    let start = Instant::now();
    server.connection.await.expect("no panic").expect_err("the answer could not be written");
    assert!(is_about(start.elapsed(), TIMEOUTS.write), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_still_reads_its_answer_is_not_idle_until_it_has_it() {
    let timeouts = ClientTimeouts { idle: Duration::from_secs(5), ..TIMEOUTS };
    let mut server = Server::with(100, RequestLimits::default(), &timeouts);
    let ticker = server.ticker.clone();
    tokio::spawn(async move { ticker.run().await });
    server.client.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("room");
    sleep(TIMEOUTS.write - Duration::from_secs(1)).await;
    let answer = server.until(&"x".repeat(10_000)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let start = Instant::now();
    assert_eq!(server.rest().await, "");
    assert!(is_about(start.elapsed(), timeouts.idle), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_its_time() {
    let mut server = server(1000);
    server
        .client
        .write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await
        .expect("room");
    let start = Instant::now();
    let answer = server.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(start.elapsed() >= Duration::from_secs(1000));
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_may_be_silent() {
    let mut server = server(1000);
    let request = b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst";
    server.client.write_all(request).await.expect("room");
    server.until("first").await;
    sleep(Duration::from_secs(1000)).await;
    server.client.write_all(b"second").await.expect("room");
    server.until("second").await;
}

#[tokio::test(start_paused = true)]
async fn a_head_behind_another_has_its_own_time() {
    let mut server = server(1000);
    server.client.write_all(b"GET /a HTTP/1.1\r\n").await.expect("room");
    sleep(TIMEOUTS.head - Duration::from_secs(1)).await;
    server.client.write_all(b"Host: a\r\n\r\nGET /b HTTP/1.1\r\n").await.expect("room");
    sleep(TIMEOUTS.head - Duration::from_secs(1)).await;
    server.client.write_all(b"Host: a\r\nConnection: close\r\n\r\n").await.expect("room");
    server.rest().await;
    assert_eq!(server.asked.lines(), ["GET /a ", "GET /b "]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stays_after_its_refusal_is_left_too() {
    let mut server = server(1000);
    server.client.write_all(b"nonsense\r\n").await.expect("room");
    let start = Instant::now();
    let answer = server.rest().await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    // The answer is there at once, the connection a little longer.
    server.connection.await.expect("no panic").expect("a clean end");
    assert!(start.elapsed() <= Duration::from_secs(6), "{:?}", start.elapsed());
    assert_eq!(server.ticker.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_whose_client_does_not_read_for_a_while_goes_on() {
    const ROOM: usize = 100;
    let mut server = server(ROOM);
    let request = b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst";
    server.client.write_all(request).await.expect("room");
    server.until("first").await;
    let more = "x".repeat(ROOM * 2);
    server.client.write_all(more.as_bytes()).await.expect("room");
    sleep(TIMEOUTS.write * 10).await;
    server.until(&more).await;
}
