//! The stream by itself: what it delivers at once, and what it holds back.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::super::rejection::SUBSTITUTE;
use super::super::stream::CheckedStream;
use super::super::{ClientTimeouts, DeadlineTicker, RequestLimits};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

fn stream() -> (DuplexStream, CheckedStream<DuplexStream>) {
    let (client, server) = tokio::io::duplex(100_000);
    (client, DeadlineTicker::new().register(server, RequestLimits::default(), &ClientTimeouts::default()))
}

/// The bytes of one read; empty if it would wait.
async fn read(stream: &mut CheckedStream<DuplexStream>, room: usize) -> Vec<u8> {
    let mut buffer = vec![0; room];
    tokio::select! {
        biased;
        read = stream.read(&mut buffer) => buffer.truncate(read.expect("no error")),
        () = tokio::task::yield_now() => buffer.clear(),
    }
    buffer
}

#[tokio::test]
async fn requests_that_arrive_together_are_delivered_together() {
    let (mut client, mut stream) = stream();
    client.write_all(&GET.repeat(3)).await.expect("room");
    assert_eq!(read(&mut stream, 1000).await, GET.repeat(3));
}

#[tokio::test]
async fn an_incomplete_head_is_held_back() {
    let (mut client, mut stream) = stream();
    let bytes = GET.repeat(2);
    for (at, byte) in bytes.iter().enumerate() {
        client.write_all(&[*byte]).await.expect("room");
        let expected = if (at + 1) % GET.len() == 0 { GET } else { b"" };
        assert_eq!(read(&mut stream, 1000).await, expected, "after {at}");
    }
}

#[tokio::test]
async fn a_head_is_delivered_in_pieces_to_a_small_buffer() {
    let (mut client, mut stream) = stream();
    client.write_all(GET).await.expect("room");
    let mut all = Vec::new();
    while all.len() < GET.len() {
        let piece = read(&mut stream, 5).await;
        assert!((1..=5).contains(&piece.len()));
        all.extend(piece);
    }
    assert_eq!(all, GET);
}

#[tokio::test]
async fn a_rejected_request_is_replaced_by_the_substitute_and_nothing_follows() {
    let (mut client, mut stream) = stream();
    client.write_all(&[GET, b"nonsense\r\n", GET].concat()).await.expect("room");
    let mut all = read(&mut stream, 1000).await;
    all.extend(read(&mut stream, 1000).await);
    assert_eq!(all, [GET, SUBSTITUTE].concat());
    client.write_all(GET).await.expect("room");
    assert_eq!(read(&mut stream, 1000).await, b"");
    drop(client);
    let mut buffer = [0; 10];
    tokio::select! {
        biased;
        _ = stream.read(&mut buffer) => panic!("hyper would drop the response"),
        () = tokio::task::yield_now() => {}
    }
}

#[tokio::test]
async fn a_body_is_delivered_as_it_arrives() {
    let (mut client, mut stream) = stream();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
    for piece in [&[head.as_slice(), b"one"].concat()[..], b"two", b"fourGET"] {
        client.write_all(piece).await.expect("room");
        let expected = piece.strip_suffix(b"GET").unwrap_or(piece);
        assert_eq!(read(&mut stream, 1000).await, expected);
    }
    client.write_all(&GET[3..]).await.expect("room");
    assert_eq!(read(&mut stream, 1000).await, GET);
}

#[tokio::test]
async fn the_end_of_a_connection_is_delivered_even_in_the_middle_of_a_head() {
    let (mut client, mut stream) = stream();
    client.write_all(&GET[..10]).await.expect("room");
    drop(client);
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.expect("no error");
    assert_eq!(all, b"");
}
