//! HTTP/2 framing: ambiguous streams and floods of frames.

use crate::assertions::{PAGES, assert_unaffected};
use crate::support::http2::{self, END_HEADERS, END_STREAM, Frame, HEADERS, Http2, Outcome};
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::site::{HOST, Site};

/// The outcome of a stream with these additional header fields and this body.
fn outcome(site: &Site, method: &str, path: &str, fields: &[(&str, &str)], body: &[&str]) -> Outcome {
    let mut client = Http2::open(site.gateway.address);
    let mut all = http2::get(HOST, path).to_vec();
    all[0].1 = method;
    all.extend_from_slice(fields);
    let mut frames = vec![Frame::headers(1, &all, if body.is_empty() { END_STREAM } else { 0 })];
    for (index, piece) in body.iter().enumerate() {
        let flags = if index + 1 == body.len() { END_STREAM } else { 0 };
        frames.push(Frame::data(1, piece.as_bytes(), flags));
    }
    client.send_all(&frames);
    client.outcome(1)
}

/// Whether a stream was rejected, with a stream error or a status.
fn is_rejected(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Reset { .. } | Outcome::Closed { code: Some(_) } => true,
        Outcome::Response { status } => status == 400,
        Outcome::Closed { code: None } => false,
    }
}

#[test]
fn row_16_ambiguous_http_2_requests_are_stream_errors() {
    let site = Site::start(PAGES);
    assert_eq!(outcome(&site, "GET", "/row-16", &[], &[]), Outcome::Response { status: 200 });
    for (index, fields) in [
        &[("transfer-encoding", "chunked")][..],
        &[("connection", "close")],
        &[("upgrade", "websocket")],
        &[("keep-alive", "1")],
        &[("content-length", "5")],
        &[("content-length", "x")],
        &[("content-length", "0"), ("content-length", "5")],
        &[("x-a", "b\r\nx-b: c")],
        &[("x-a", "b\nc")],
        &[("x-a", "b\rc")],
        &[("x-a", "b\0c")],
        &[("x-a\r\nx-b", "c")],
        &[("X-Upper", "c")],
        &[("x a", "c")],
        &[("host", "elsewhere.example.com")],
        &[(":path", "/other")],
        &[("te", "gzip")],
    ]
    .iter()
    .enumerate()
    {
        let path = format!("/row-16-{index}");
        let before = site.origin.byte_count();
        let outcome = outcome(&site, "GET", &path, fields, &[]);
        assert!(is_rejected(outcome), "{fields:?}: {outcome:?}");
        assert_unaffected(&site, &path, before);
    }
}

#[test]
fn row_16_an_http_2_body_that_differs_from_its_content_length_is_never_a_complete_request() {
    let site = Site::start(PAGES);
    for (path, length, body) in [
        ("/row-16-short", "5", &["abc"][..]),
        ("/row-16-long", "5", &["abcdefgh"]),
        ("/row-16-late", "5", &["abc", "defgh"]),
        ("/row-16-some", "0", &["abc"]),
    ] {
        let outcome = outcome(&site, "POST", path, &[("content-length", length)], body);
        assert!(
            is_rejected(outcome) || matches!(outcome, Outcome::Response { status: 400.. }),
            "{outcome:?}"
        );
        assert!(site.origin.requests_for(path).is_empty(), "{path} was forwarded");
    }
}

/// How many requests of a flood may reach the origin before the connection is closed: about as many as are concurrent.
const FEW_STREAMS: usize = 500;
/// The number of requests of a flood.
const FLOOD: u32 = 5_000;

/// Fails unless a flood closes its connection, costs the origin little, and leaves the gateway healthy.
fn assert_flood_ends(mut frames: impl FnMut(u32) -> Vec<Frame>) {
    let mut site = Site::start(PAGES);
    let gate = Gate::default();
    site.origin.respond("/pass/slow", ScriptedResponse::page(&[], "late").after(&gate));
    let mut client = Http2::open(site.gateway.address);
    for batch in 0..FLOOD / 100 {
        let streams = (batch * 100..(batch + 1) * 100).map(|number| number * 2 + 1);
        if !client.send_all(&streams.flat_map(&mut frames).collect::<Vec<Frame>>()) {
            break;
        }
    }
    client.closed();
    let requests = site.origin.requests().len();
    assert!(requests < FEW_STREAMS, "{requests} requests reached the origin");
    gate.open();
    assert_eq!(site.get("/after").state(), "miss");
    assert!(site.gateway.is_alive());
}

#[test]
fn row_17_rapid_resets_close_the_connection() {
    assert_flood_ends(|stream| vec![Frame::get(stream, HOST, "/pass/slow"), Frame::reset(stream)]);
}

#[test]
fn row_17_provoked_resets_close_the_connection() {
    const MAX_STREAM_ID: u32 = 0x7fff_ffff;
    assert_flood_ends(|stream| {
        vec![Frame::get(stream, HOST, "/pass/slow"), Frame::window_update(stream, MAX_STREAM_ID)]
    });
    assert_flood_ends(|stream| vec![Frame::get(stream, HOST, "/pass/slow"), Frame::data(stream, b"more", 0)]);
    assert_flood_ends(|stream| vec![Frame::get(stream, HOST, "/pass/slow"), Frame::window_update(stream, 0)]);
}

#[test]
fn row_17_endless_headers_close_the_connection() {
    const FRAMES: usize = 20_000;
    for payload in [http2::block(&[("x-a", "b")]), http2::block(&[("x-a", &"b".repeat(4_000))]), Vec::new()] {
        let mut site = Site::start(PAGES);
        let mut client = Http2::open(site.gateway.address);
        let block = http2::block(&http2::get(HOST, "/row-17"));
        client.send(&Frame { kind: HEADERS, flags: END_STREAM, stream: 1, payload: block });
        let frames = vec![Frame::continuation(1, payload, 0); 100];
        for _ in 0..FRAMES / frames.len() {
            if !client.send_all(&frames) {
                break;
            }
        }
        client.closed();
        assert!(site.gateway.is_alive());
        assert!(!site.origin.received("/row-17"));
        assert_eq!(site.get("/row-17").state(), "miss");
    }
}

#[test]
fn row_17_headers_in_several_frames_are_accepted() {
    let site = Site::start(PAGES);
    let mut client = Http2::open(site.gateway.address);
    let block = http2::block(&http2::get(HOST, "/row-17"));
    let (first, second) = block.split_at(20);
    client.send_all(&[
        Frame { kind: HEADERS, flags: END_STREAM, stream: 1, payload: first.to_vec() },
        Frame::continuation(1, second.to_vec(), END_HEADERS),
    ]);
    assert_eq!(client.outcome(1), Outcome::Response { status: 200 });
}
