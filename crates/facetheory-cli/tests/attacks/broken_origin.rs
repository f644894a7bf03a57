//! Oversized and broken responses of the origin.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::assertions::{PAGES, assert_not_cached};
use crate::support::origin::{Origin, Request, ScriptedResponse};
use crate::support::site::{Site, get};
use crate::support::wait_for;

#[test]
fn row_65_a_compression_bomb_is_not_decoded() {
    const EXPANDED: usize = 64 << 20;
    let site = Site::start(PAGES);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..EXPANDED >> 20 {
        encoder.write_all(&vec![0; 1 << 20]).expect("memory");
    }
    let bomb = encoder.finish().expect("memory");
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", bomb.len());
    for path in ["/row-65", "/pass/row-65"] {
        site.origin.respond(path, ScriptedResponse::raw([head.as_bytes(), &bomb].concat()));
        site.get("/warm");
        let before = site.gateway.peak_memory();
        for lines in ["", "Accept-Encoding: gzip\r\n"] {
            let response = site.get_with(path, lines);
            assert!(
                response.status == 502 || response.body == bomb,
                "{} with {} bytes",
                response.status,
                response.body.len()
            );
            assert_not_cached(&site, path);
        }
        let grown = site.gateway.peak_memory().saturating_sub(before) * 1024;
        assert!(grown < EXPANDED as u64 / 2, "memory grew by {grown} bytes");
    }
}

/// Response bodies without a proper end.
fn broken_bodies() -> [(&'static str, ScriptedResponse); 5] {
    let piece = vec![b'x'; 1024];
    let chunk = [b"400\r\n".as_slice(), &piece, b"\r\n"].concat();
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    [
        ("endless", ScriptedResponse::raw("HTTP/1.1 200 OK\r\n\r\n").then_endlessly(piece)),
        ("endless-chunks", ScriptedResponse::raw(chunked).then_endlessly(chunk)),
        (
            "truncated",
            ScriptedResponse::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort").then_close(),
        ),
        ("truncated-chunk", ScriptedResponse::raw(format!("{chunked}64\r\nshort")).then_close()),
        ("no-last-chunk", ScriptedResponse::raw(format!("{chunked}5\r\nshort\r\n")).then_close()),
    ]
}

/// Small limits for row 66.
const SMALL: &str = "\n[limits]\npage_bytes = \"64KiB\"\norigin_bytes = \"256KiB\"\n";

#[test]
fn row_66_an_endless_body_is_not_cached_by_default() {
    /// More than a page may have, and than all buffers hold.
    const ENOUGH: usize = 20 << 20;
    let mut site = Site::start(PAGES);
    let endless = ScriptedResponse::raw("HTTP/1.1 200 OK\r\n\r\n").then_endlessly(vec![b'x'; 64 * 1024]);
    site.origin.respond("/row-66-endless", endless);
    for requests in 1..=2 {
        let mut connection = site.gateway.connect();
        connection.send(get("/row-66-endless", "Connection: close\r\n"));
        assert_eq!(connection.bytes(ENOUGH).len(), ENOUGH, "it is passed through");
        assert!(site.origin.requests_for("/row-66-endless").len() >= requests, "it was cached");
    }
    assert!(site.gateway.is_alive());
}

#[test]
fn row_66_a_body_without_a_proper_end_is_cut_off_at_the_limit_and_not_cached() {
    /// Far more than the limits and all buffers.
    const HUGE: usize = 64 << 20;
    let mut site = Site::start(&format!("{PAGES}{SMALL}"));
    for (name, response) in broken_bodies() {
        let path = format!("/row-66-{name}");
        site.origin.respond(&path, response);
        for requests in 1..=2 {
            let mut connection = site.gateway.connect();
            connection.send(get(&path, "Connection: close\r\n"));
            assert!(connection.bytes(HUGE).len() < HUGE, "{name} is not limited");
            assert!(site.origin.requests_for(&path).len() >= requests, "{name} was cached");
        }
        site.origin.respond(&path, ScriptedResponse::page(&[], "complete again"));
        wait_for("the page is rendered again", || (site.get(&path).text() == "complete again").then_some(()));
    }
    assert!(site.gateway.is_alive());
}

#[test]
fn row_66_a_body_without_a_proper_end_does_not_replace_a_page() {
    let site = Site::start(&format!("{PAGES}{SMALL}"));
    let pages = broken_bodies().map(|(name, response)| {
        let path = format!("/brief/row-66-{name}");
        let page = site.get(&path);
        assert_eq!(page.state(), "miss");
        site.origin.respond(&path, response);
        (path, page)
    });
    for (path, page) in &pages {
        wait_for("a regeneration fails", || {
            assert_eq!(site.get(path).body, page.body, "{path}");
            (site.origin.requests_for(path).len() > 1).then_some(())
        });
    }
    for (path, page) in &pages {
        wait_for("the failure is visible", || {
            let response = site.get(path);
            assert_eq!(response.body, page.body, "{path}");
            response.state().starts_with("stale").then_some(())
        });
    }
}

#[test]
fn row_67_a_redirect_is_forwarded_and_never_followed() {
    let site = Site::start(PAGES);
    let other_origin = Origin::start();
    for (index, place) in [
        format!("http://{}/latest/meta-data", other_origin.address),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[fe80::1]/".to_owned(),
        "//169.254.169.254/".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        for status in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect"] {
            for path in [
                format!("/row-67-{index}-{}", &status[..3]),
                format!("/pass/row-67-{index}-{}", &status[..3]),
            ] {
                site.origin
                    .respond(&path, ScriptedResponse::with(status, &[&format!("location: {place}")], ""));
                let response = site.get(&path);
                assert_eq!(response.status.to_string(), status[..3]);
                assert_eq!(response.header("location"), Some(place.as_str()), "unchanged");
            }
        }
    }
    assert_eq!(other_origin.byte_count(), 0, "no other server is contacted");
}

#[test]
fn row_68_oversized_or_malformed_response_headers_give_502() {
    let mut site = Site::start(PAGES);
    let long = format!("HTTP/1.1 200 OK\r\nX-A: {}\r\nContent-Length: 1\r\n\r\nx", "b".repeat(1 << 20));
    let many: String = (0..10_000).map(|number| format!("X-{number}: a\r\n")).collect();
    let many = format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 1\r\n\r\nx");
    for (index, response) in [
        long.as_str(),
        &many,
        "",
        "\r\n\r\n",
        "garbage\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 abc OK\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 99 Low\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 20000 High\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/9.9 200 OK\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nX A: b\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nX-A: b\rc\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nx",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: evil\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: b",
    ]
    .iter()
    .enumerate()
    {
        for path in [format!("/row-68-{index}"), format!("/pass/row-68-{index}")] {
            site.origin.respond(&path, ScriptedResponse::raw(*response).then_close());
            let got = site.get(&path);
            assert_eq!(got.status, 502, "{index}: {}", crate::assertions::shown(response.as_bytes()));
            site.origin.respond(&path, ScriptedResponse::page(&[], "complete again"));
            assert_eq!(site.get(&path).text(), "complete again", "{index}");
        }
    }
    assert!(site.gateway.is_alive());
    assert!(!site.gateway.log().contains("panicked"));
}

#[test]
fn row_68_an_unsolicited_response_is_sent_to_no_client() {
    let site = Site::start(PAGES);
    let response = |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    for (index, extra) in
        [response("evil"), response("evil").repeat(10), "evil".to_owned()].iter().enumerate()
    {
        for place in ["", "/pass"] {
            let path = format!("{place}/row-68-more-{index}");
            site.origin.respond(&path, ScriptedResponse::raw(response("fine") + extra));
            assert_eq!(site.get(&path).text(), "fine");
            for number in 0..5 {
                let next = site.get(&format!("{path}-{number}"));
                assert!(
                    next.status == 200 && next.text().contains(&format!("<p>{path}-{number},")),
                    "{}",
                    next.text()
                );
            }
        }
    }
}

#[test]
fn row_68_a_chunked_response_with_a_content_length_is_rejected() {
    let site = Site::start(PAGES);
    for (index, length) in ["3", "100", "11"].iter().enumerate() {
        for place in ["", "/pass"] {
            let path = format!("{place}/two-{index}");
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n");
            site.origin.respond(&path, ScriptedResponse::raw(format!("{head}b\r\nhello world\r\n0\r\n\r\n")));
            let mut client = site.gateway.connect();
            client.send(get(&path, "") + &get("/behind", "Connection: close\r\n"));
            let response = client.response();
            assert_eq!(
                (response.text().as_str(), response.complete),
                ("hello world", true),
                "{path} {length}"
            );
            assert!(client.response().text().contains("/behind"), "{path} {length}");
        }
    }
}

/// A connection that is closed without a response.
fn nothing() -> ScriptedResponse {
    ScriptedResponse::raw("").then_close()
}

#[test]
fn a_safe_request_is_retried_only_if_a_pooled_connection_gives_no_response() {
    let site = Site::start(PAGES);
    site.origin.respond("/pass/new", nothing());
    assert_eq!(site.get("/pass/new").status, 502);
    assert_eq!(
        site.origin.requests_for("/pass/new").len(),
        1,
        "a request over a new connection is not retried"
    );

    let fails_once = || {
        let is_second = AtomicBool::new(false);
        move |_: &Request| {
            if is_second.swap(true, Ordering::Relaxed) {
                ScriptedResponse::page(&[], "there")
            } else {
                nothing()
            }
        }
    };
    // A connection is reused only once it is back in the pool.
    wait_for("a request is retried", || {
        site.origin.script("/pass/gone", fails_once());
        assert_eq!(site.get("/pass/fine").status, 200);
        (site.get("/pass/gone").status == 200).then_some(())
    });

    site.origin.respond("/pass/wrong", ScriptedResponse::raw("garbage\r\n\r\n").then_close());
    for requests in 1..=5 {
        assert_eq!(site.get("/pass/fine").status, 200);
        assert_eq!(site.get("/pass/wrong").status, 502);
        assert_eq!(
            site.origin.requests_for("/pass/wrong").len(),
            requests,
            "a response has started, so it is not retried"
        );
    }
}
