//! The wire by itself: how much it passes on at once, and what it holds back.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::super::rejection::SUBSTITUTE;
use super::super::stream::CheckedStream;
use super::super::{ClientTimeouts, DeadlineTicker, RequestLimits};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

fn wire() -> (DuplexStream, CheckedStream<DuplexStream>) {
    let (client, server) = tokio::io::duplex(100_000);
    (client, DeadlineTicker::new().register(server, RequestLimits::default(), &ClientTimeouts::default()))
}

/// What one read brings, of what is there; nothing if it would wait.
async fn read(wire: &mut CheckedStream<DuplexStream>, room: usize) -> Vec<u8> {
    let mut buffer = vec![0; room];
    tokio::select! {
        biased;
        read = wire.read(&mut buffer) => buffer.truncate(read.expect("no error")),
        () = tokio::task::yield_now() => buffer.clear(),
    }
    buffer
}

#[tokio::test]
async fn requests_that_came_together_are_passed_on_together() {
    let (mut client, mut wire) = wire();
    client.write_all(&GET.repeat(3)).await.expect("room");
    assert_eq!(read(&mut wire, 1000).await, GET.repeat(3));
}

#[tokio::test]
async fn of_a_head_that_has_not_ended_nothing_is_passed_on() {
    let (mut client, mut wire) = wire();
    let bytes = GET.repeat(2);
    for (at, byte) in bytes.iter().enumerate() {
        client.write_all(&[*byte]).await.expect("room");
        let expected = if (at + 1) % GET.len() == 0 { GET } else { b"" };
        assert_eq!(read(&mut wire, 1000).await, expected, "after {at}");
    }
}

#[tokio::test]
async fn a_head_is_passed_on_in_pieces_where_there_is_little_room() {
    let (mut client, mut wire) = wire();
    client.write_all(GET).await.expect("room");
    let mut all = Vec::new();
    while all.len() < GET.len() {
        let piece = read(&mut wire, 5).await;
        assert!((1..=5).contains(&piece.len()));
        all.extend(piece);
    }
    assert_eq!(all, GET);
}

#[tokio::test]
async fn after_a_refusal_there_is_the_substitute_and_then_silence_without_an_end() {
    let (mut client, mut wire) = wire();
    client.write_all(&[GET, b"nonsense\r\n", GET].concat()).await.expect("room");
    let mut all = read(&mut wire, 1000).await;
    all.extend(read(&mut wire, 1000).await);
    assert_eq!(all, [GET, SUBSTITUTE].concat());
    client.write_all(GET).await.expect("room");
    assert_eq!(read(&mut wire, 1000).await, b"");
    drop(client);
    let mut buffer = [0; 10];
    tokio::select! {
        biased;
        _ = wire.read(&mut buffer) => panic!("hyper would give up the answer"),
        () = tokio::task::yield_now() => {}
    }
}

#[tokio::test]
async fn a_body_is_passed_on_as_it_comes() {
    let (mut client, mut wire) = wire();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
    for piece in [&[head.as_slice(), b"one"].concat()[..], b"two", b"fourGET"] {
        client.write_all(piece).await.expect("room");
        let expected = piece.strip_suffix(b"GET").unwrap_or(piece);
        assert_eq!(read(&mut wire, 1000).await, expected);
    }
    client.write_all(&GET[3..]).await.expect("room");
    assert_eq!(read(&mut wire, 1000).await, GET);
}

#[tokio::test]
async fn the_end_of_a_connection_is_passed_on_also_in_the_middle_of_a_head() {
    let (mut client, mut wire) = wire();
    client.write_all(&GET[..10]).await.expect("room");
    drop(client);
    let mut all = Vec::new();
    wire.read_to_end(&mut all).await.expect("no error");
    assert_eq!(all, b"");
}
