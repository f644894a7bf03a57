//! Rejections of the HTTP/1 rows, repeated over HTTP/2, which has its own parser.

use crate::assertions::{PAGES, cache_page};
use crate::support::http2::{self, END_STREAM, Frame, HEADERS, Http2, NO_ERROR, Outcome};
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::site::{HOST, Site};
use crate::support::wait_for;

/// The outcome of a request with these header fields, and this body if it is not empty.
fn outcome_of(site: &Site, fields: &[(&str, &str)], body: &[u8]) -> Outcome {
    let mut client = Http2::open(site.gateway.address);
    let flags = if body.is_empty() { END_STREAM } else { 0 };
    client.send(&Frame::headers(1, fields, flags));
    if !body.is_empty() {
        client.send(&Frame::data(1, body, END_STREAM));
    }
    client.outcome(1)
}

/// Fails unless a request is rejected with this status or as a stream error, and nothing reaches the origin.
fn assert_rejected(site: &Site, status: u16, fields: &[(&str, &str)], body: &[u8]) {
    let before = site.origin.byte_count();
    let outcome = outcome_of(site, fields, body);
    let is_rejected = match outcome {
        Outcome::Response { status: given } => given == status,
        Outcome::Reset { .. } | Outcome::Closed { code: Some(_) } => true,
        Outcome::Closed { code: None } => false,
    };
    assert!(is_rejected, "{outcome:?} instead of {status} for {fields:?}");
    assert_eq!(site.origin.byte_count(), before, "{fields:?} reached the origin");
}

#[test]
fn row_04_two_equal_content_lengths_are_rejected_over_http_2() {
    let site = Site::start(PAGES);
    for path in ["/row-04", "/pass/row-04"] {
        let mut fields = http2::post(HOST, path).to_vec();
        fields.extend([("content-length", "4"), ("content-length", "4")]);
        assert_rejected(&site, 400, &fields, b"four");
    }
}

#[test]
fn row_18_a_request_without_an_authority_is_rejected_over_http_2() {
    let site = Site::start(PAGES);
    for path in ["/row-18", "/pass/row-18"] {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", path), ("host", HOST)];
        assert_rejected(&site, 400, &fields[..3], b"");
        assert_rejected(&site, 400, &fields, b"");
    }
}

#[test]
fn row_20_an_invalid_host_is_rejected_over_http_2() {
    let site = Site::start(PAGES);
    for host in ["a@evil", "a/b", "a b", "a:x", "a:99999", "a,b", ""] {
        assert_rejected(&site, 400, &http2::get(host, "/row-20"), b"");
        assert_rejected(&site, 400, &http2::get(host, "/pass/row-20"), b"");
    }
}

#[test]
fn row_22_connect_is_not_allowed_over_http_2() {
    let site = Site::start(PAGES);
    assert_rejected(&site, 405, &[(":method", "CONNECT"), (":authority", "www.example.com:443")], b"");
    let mut websocket = http2::get(HOST, "/pass/row-22").to_vec();
    websocket[0].1 = "CONNECT";
    websocket.push((":protocol", "websocket"));
    assert_rejected(&site, 405, &websocket, b"");
}

#[test]
fn row_23_an_unknown_host_gets_421_misdirected_request_over_http_2() {
    let site = Site::start(&format!("hosts = [\"{HOST}\"]\n{PAGES}"));
    assert_eq!(outcome_of(&site, &http2::get(HOST, "/row-23"), b""), Outcome::Response { status: 200 });
    for path in ["/row-23-a", "/pass/row-23-a"] {
        assert_rejected(&site, 421, &http2::get("evil.example", path), b"");
    }
}

#[test]
fn row_24_forwarding_headers_of_a_client_are_replaced_over_http_2() {
    let site = Site::start(PAGES);
    for path in ["/row-24", "/pass/row-24"] {
        let lies = [
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-for", "6.6.6.6"),
            ("forwarded", "host=evil"),
        ];
        let fields = [&http2::get(HOST, path)[..], &lies].concat();
        assert_eq!(outcome_of(&site, &fields, b""), Outcome::Response { status: 200 });
        let forwarded = site.origin.requests_for(path).pop().expect("a request reaches the origin");
        assert_eq!(forwarded.header("host"), Some(HOST), "{path}");
        assert_eq!(forwarded.header("x-forwarded-host"), Some(HOST), "{path}");
    }
    assert!(!site.origin.received("evil") && !site.origin.received("6.6.6.6"));
}

/// Fails unless a GET for each of these paths is rejected.
fn assert_paths_rejected(paths: impl Iterator<Item = String>) {
    let site = Site::start(PAGES);
    for path in paths {
        assert_rejected(&site, 400, &http2::get(HOST, &path), b"");
    }
}

#[test]
fn row_34_encoded_nul_and_line_breaks_are_rejected_over_http_2() {
    assert_paths_rejected(
        ["%00", "%0a", "%0D"]
            .into_iter()
            .flat_map(|code| ["", "pass/"].map(|directory| format!("/{directory}row-34{code}x.css"))),
    );
}

#[test]
fn row_35_dot_segments_are_rejected_or_resolved_over_http_2() {
    let paths = |dots: &str| ["static", "pass"].map(|directory| format!("/{directory}/{dots}/account"));
    assert_paths_rejected(["..", "%2e%2e", ".%2e"].into_iter().flat_map(paths));
}

#[test]
fn row_36_unusual_targets_are_rejected_or_keyed_as_forwarded_over_http_2() {
    let site = Site::start(PAGES);
    for path in ["/row-36-a\\x", "/row-36-b x", "row-36-c", "*", "", "http://evil.example/row-36-d"] {
        assert_rejected(&site, 400, &http2::get(HOST, path), b"");
    }
    for path in ["/row-36-e#x", "/row-36-f\u{e9}", "//row-36-g"] {
        let before = site.origin.requests().len();
        let outcome = outcome_of(&site, &http2::get(HOST, path), b"");
        if let Some(forwarded) = site.origin.requests().get(before) {
            assert_eq!(outcome, Outcome::Response { status: 200 });
            let is_exact = forwarded.target == path;
            assert!(is_exact || site.get(&forwarded.target).state() == "hit", "{path}: {}", forwarded.target);
        }
    }
}

#[test]
fn row_40_the_body_of_a_get_is_never_forwarded_over_http_2() {
    let site = Site::start(PAGES);
    cache_page(&site, "/row-40-kept");
    for path in ["/row-40", "/row-40-kept", "/pass/row-40"] {
        for method in ["GET", "HEAD"] {
            let mut fields = http2::get(HOST, path);
            fields[0].1 = method;
            assert_rejected(&site, 400, &fields, b"the body");
            assert!(!site.origin.received("the body"), "{method} {path}");
        }
    }
    cache_page(&site, "/row-40-after");
}

#[test]
fn row_43_headers_with_underscores_are_not_taken_for_others_over_http_2() {
    let site = Site::start(PAGES);
    for name in ["transfer_encoding", "x_tenant_id", "x_forwarded_for"] {
        for path in ["/row-43", "/pass/row-43"] {
            let fields = [&http2::get(HOST, path)[..], &[(name, "evil")]].concat();
            outcome_of(&site, &fields, b"");
            assert!(!site.origin.received(name), "{name} reached the origin");
        }
    }
}

#[test]
fn a_rejected_head_request_has_no_body_over_http_2() {
    let site = Site::start(&format!("hosts = [\"{HOST}\"]\n{PAGES}"));
    let long = format!("/{}", "a".repeat(9000));
    for (host, path) in
        [(HOST, "/rejected/.."), (HOST, "/pass/rejected/%00"), ("evil.example", "/rejected"), (HOST, &long)]
    {
        let mut fields = http2::get(host, path);
        for (method, has_body) in [("GET", true), ("HEAD", false)] {
            fields[0].1 = method;
            let mut client = Http2::open(site.gateway.address);
            client.send(&Frame::headers(1, &fields, END_STREAM));
            let body = client.body(1);
            let body = String::from_utf8_lossy(&body);
            assert_eq!(!body.is_empty(), has_body, "{method} {host}{path}: {body}");
        }
    }
}

/// Timeouts that are short for a test, but long enough for a client on a busy machine.
const SHORT_TIMEOUTS: &str = "\n[timeouts]\nclient_headers = \"3s\"\nclient_idle = \"3s\"\n";
/// A timeout that every client exceeds.
const SHORT_BODY_TIMEOUT: &str = "\n[timeouts]\nclient_body = \"300ms\"\n";

#[test]
fn row_64_idle_connections_are_closed_over_http_2() {
    let site = Site::start(&format!("{PAGES}{SHORT_TIMEOUTS}"));
    let mut silent = Http2::open(site.gateway.address);
    let mut halting = Http2::open(site.gateway.address);
    let block = http2::block(&http2::get(HOST, "/row-64"));
    halting.send(&Frame { kind: HEADERS, flags: END_STREAM, stream: 1, payload: block });
    let mut done = Http2::open(site.gateway.address);
    done.send(&Frame::get(1, HOST, "/row-64-done"));
    assert_eq!(done.outcome(1), Outcome::Response { status: 200 });
    for client in [&mut silent, &mut halting, &mut done] {
        client.closed();
    }
    assert!(site.origin.requests_for("/row-64").is_empty());
}

#[test]
fn row_64_a_missing_body_times_out_over_http_2() {
    let site = Site::start(&format!("{PAGES}{SHORT_BODY_TIMEOUT}"));
    let mut client = Http2::open(site.gateway.address);
    client.send_all(&[Frame::headers(1, &http2::post(HOST, "/row-64"), 0), Frame::data(1, b"only this", 0)]);
    assert_eq!(client.outcome(1), Outcome::Response { status: 408 });
    assert!(site.origin.requests_for("/row-64").is_empty(), "it reached the origin completely");
}

#[test]
fn a_body_without_a_length_that_is_too_long_gets_413_over_http_2() {
    let site = Site::start(&format!("{PAGES}\n[limits]\nbody_bytes = 1000\n"));
    let fields = http2::post(HOST, "/pass/long");
    for pieces in [&[600, 600][..], &[1001]] {
        let mut client = Http2::open(site.gateway.address);
        client.send(&Frame::headers(1, &fields, 0));
        for bytes in pieces {
            client.send(&Frame::data(1, &vec![b'x'; *bytes], 0));
        }
        assert_eq!(client.outcome(1), Outcome::Response { status: 413 }, "{pieces:?}");
    }
    assert!(site.origin.requests_for("/pass/long").is_empty(), "it reached the origin completely");
}

#[test]
fn split_cookie_headers_over_http_2_reach_the_origin_as_one() {
    let site = Site::start(PAGES);
    let fields = [&http2::get(HOST, "/pass/cookies")[..], &[("cookie", "a=1"), ("cookie", "b=2")]].concat();
    assert_eq!(outcome_of(&site, &fields, b""), Outcome::Response { status: 200 });
    assert!(site.origin.received("cookie: a=1; b=2"), "{:?}", site.origin.requests());
}

#[test]
fn row_45_the_header_limit_is_configurable_over_http_2() {
    for (limit, bytes, expected) in [("1KiB", 2000, 431), ("1KiB", 200, 200), ("64KiB", 30_000, 200)] {
        let site = Site::start(&format!("{PAGES}\n[limits]\nheader_bytes = \"{limit}\"\n"));
        let mut client = Http2::open(site.gateway.address);
        let long = "a".repeat(bytes);
        let fields = [&http2::get(HOST, "/row-45")[..], &[("x-long", long.as_str())]].concat();
        client.send_all(&Frame::split_headers(1, &fields, END_STREAM));
        assert_eq!(client.outcome(1), Outcome::Response { status: expected }, "{bytes} of {limit}");
    }
}

#[test]
fn row_64_unread_responses_hold_little_memory_over_http_2() {
    const STREAMS: u32 = 100;
    const KIBIBYTES_A_STREAM: u64 = 450;
    const WINDOW: u32 = 0x3fff_ffff;
    // All streams have been accepted by then, even on a busy machine.
    let site = Site::start(&format!("{PAGES}\n[timeouts]\nclient_idle = \"5s\"\n"));
    let endless = "HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n";
    site.origin.respond("/pass/endless", ScriptedResponse::raw(endless).then_endlessly([b'x'; 16_384]));
    let before = site.gateway.peak_memory();
    let mut client = Http2::open(site.gateway.address);
    client.send(&Frame::window_update(0, WINDOW));
    for number in 0..STREAMS {
        let stream = number * 2 + 1;
        client.send_all(&[Frame::get(stream, HOST, "/pass/endless"), Frame::window_update(stream, WINDOW)]);
    }
    wait_for("the client is disconnected", || {
        let has_requests = site.origin.requests().len() == STREAMS as usize;
        (has_requests && site.gateway.metric("facetheory_gateway_connections") == Some(0.0)).then_some(())
    });
    let taken = site.gateway.peak_memory() - before;
    assert!(taken < u64::from(STREAMS) * KIBIBYTES_A_STREAM, "{taken} KiB");
}

/// Waits until another idle connection is closed: `client_idle` has passed for all connections then.
fn wait_longer_than_client_idle(site: &Site) {
    Http2::open(site.gateway.address).closed();
}

#[test]
fn a_client_that_pauses_one_stream_gets_the_others_and_a_reset_over_http_2() {
    const WINDOW: u32 = 10_000;
    let site = Site::start(&format!("{PAGES}\n[timeouts]\nclient_idle = \"5s\"\n"));
    let gate = Gate::default();
    site.origin.respond("/pass/slow", ScriptedResponse::page(&[], "late").after(&gate));
    site.origin.respond("/pass/long", ScriptedResponse::page(&[], &"x".repeat(1_000_000)));
    let mut client = Http2::open_with_zero_window(site.gateway.address);
    client.send(&Frame::get(1, HOST, "/pass/long"));
    client.send_all(&[Frame::get(3, HOST, "/pass/slow"), Frame::window_update(3, WINDOW)]);
    wait_for("a request reaches the origin", || (site.origin.requests().len() == 2).then_some(()));
    // Twice, since the first time may pass before the gateway has noticed the client.
    wait_longer_than_client_idle(&site);
    wait_longer_than_client_idle(&site);
    gate.open();
    assert_eq!(client.outcome(3), Outcome::Response { status: 200 });
    assert_eq!(client.closed(), Some(NO_ERROR), "the client gets GOAWAY without an error");
}

#[test]
fn row_64_a_client_that_reads_nothing_and_only_pings_is_disconnected_over_http_2() {
    const SMALL_WINDOW: u32 = 10;
    let site = Site::start(&format!("{PAGES}{SHORT_TIMEOUTS}"));
    site.origin.respond("/row-64-long", ScriptedResponse::page(&[], &"x".repeat(1_000_000)));
    cache_page(&site, "/row-64-long");
    let endless = ScriptedResponse::raw("HTTP/1.1 200 OK\r\n\r\n").then_endlessly(vec![b'x'; 64 * 1024]);
    site.origin.respond("/pass/endless", endless);
    // With a small window hyper would take over the whole page at once.
    let requests = [("/row-64-long", None), ("/row-64-long", Some(SMALL_WINDOW)), ("/pass/endless", None)];
    let mut clients = requests.map(|(path, room)| {
        let mut client = Http2::open_with_zero_window(site.gateway.address);
        client.send(&Frame::get(1, HOST, path));
        if let Some(room) = room {
            client.send(&Frame::window_update(1, room));
        }
        client
    });
    wait_for("the clients are disconnected", || {
        (clients.iter_mut().filter_map(Http2::ping).count() == 0).then_some(())
    });
}

#[test]
fn row_45_split_cookies_count_as_one_header_over_http_2() {
    let site = Site::start(&format!("{PAGES}\n[limits]\nheaders = 10\n"));
    let cookies: Vec<String> = (0..50).map(|number| format!("c{number}=1")).collect();
    let others: Vec<String> = (0..9).map(|number| format!("x-{number}")).collect();
    let mut fields = http2::get(HOST, "/pass/row-45").to_vec();
    fields.extend(cookies.iter().map(|cookie| ("cookie", cookie.as_str())));
    fields.extend(others.iter().map(|name| (name.as_str(), "a")));
    assert_eq!(outcome_of(&site, &fields, b""), Outcome::Response { status: 200 });
    assert!(site.origin.received(&format!("cookie: {}", cookies.join("; "))));
    fields.push(("x-too-many", "a"));
    assert_rejected(&site, 431, &fields, b"");
}

#[test]
fn row_40_a_get_with_an_empty_body_has_no_body_over_http_2() {
    let site = Site::start(&format!("{PAGES}{SHORT_BODY_TIMEOUT}"));
    for path in ["/row-40", "/row-40", "/pass/row-40"] {
        for method in ["GET", "HEAD"] {
            let mut fields = http2::get(HOST, path);
            fields[0].1 = method;
            let mut client = Http2::open(site.gateway.address);
            client.send_all(&[Frame::headers(1, &fields, 0), Frame::data(1, b"", END_STREAM)]);
            assert_eq!(client.outcome(1), Outcome::Response { status: 200 }, "{method} {path}");
        }
        let mut client = Http2::open(site.gateway.address);
        client.send(&Frame::headers(1, &http2::get(HOST, path), 0));
        assert_eq!(client.outcome(1), Outcome::Response { status: 408 }, "the body does not end");
    }
    assert!(site.origin.requests().iter().all(|request| !request.has("transfer-encoding")));
}
