//! Slow, oversized and broken clients and origins.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};

use tabletheory::{Clock as _, SystemClock, Timestamp};

use crate::assertions::{PAGES, assert_not_cached};
use crate::support::client::Connection;
use crate::support::gateway::Gateway;
use crate::support::origin::{Gate, Origin, Request, ScriptedResponse};
use crate::support::site::{Site, get, request};
use crate::support::wait_for;

/// Timeouts that are short for a test, and that every client exceeds.
const SHORT_TIMEOUTS: &str =
    "\n[timeouts]\nclient_headers = \"300ms\"\nclient_body = \"300ms\"\nclient_idle = \"300ms\"\n";

/// Fails unless the gateway closes the connection, after a 408 response or without one.
fn assert_timed_out(connection: &mut Connection) {
    if let Some(response) = connection.next_response("GET") {
        assert!([400, 408].contains(&response.status), "{}", response.status);
    }
    connection.assert_closed();
}

#[test]
fn row_64_missing_headers_time_out() {
    let site = Site::start(&format!("{PAGES}{SHORT_TIMEOUTS}"));
    let beginnings = [
        "",
        "G",
        "GET /row-64 HTTP/1.1\r\n",
        "GET /row-64 HTTP/1.1\r\nHost: a\r\nX-A: b",
        "\r\n",
        "PRI * HTTP/2.0\r\n\r\n",
    ];
    let connections = beginnings.map(|beginning| {
        let mut connection = site.gateway.connect();
        connection.send(beginning);
        connection
    });
    for mut connection in connections {
        assert_timed_out(&mut connection);
    }
    assert_eq!(site.origin.byte_count(), 0);
}

#[test]
fn row_64_slow_headers_time_out() {
    const ATTACKERS: usize = 50;
    // The header limit is the largest one, so that the timeout ends the request before.
    let site = Site::start(&format!("{PAGES}{SHORT_TIMEOUTS}[limits]\nheader_bytes = \"1MiB\"\n"));
    let slow: Vec<Connection> = (0..ATTACKERS)
        .map(|_| {
            let mut connection = site.gateway.connect();
            connection.send("GET /row-64 HTTP/1.1\r\nHost: a\r\nX-A: ");
            connection.trickle(vec![b'b']);
            connection
        })
        .collect();
    for mut connection in slow {
        assert_timed_out(&mut connection);
    }
    assert_eq!(site.origin.byte_count(), 0);
}

#[test]
fn row_64_a_missing_body_times_out() {
    let site = Site::start(&format!("{PAGES}{SHORT_TIMEOUTS}"));
    let connections = [
        ("/row-64-length", "Content-Length: 100\r\n", "only this"),
        ("/row-64-chunk", "Transfer-Encoding: chunked\r\n", "64\r\nonly this"),
        ("/row-64-none", "Content-Length: 100\r\n", ""),
    ]
    .map(|(path, framing, beginning)| {
        let mut connection = site.gateway.connect();
        connection.send(request("POST", path, framing) + beginning);
        (path, connection)
    });
    for (path, mut connection) in connections {
        if let Some(response) = connection.next_response("POST") {
            assert!((400..600).contains(&response.status), "{}", response.status);
        }
        connection.assert_closed();
        assert!(site.origin.requests_for(path).is_empty(), "{path} reached the origin completely");
    }
}

#[test]
fn row_64_idle_connections_are_closed() {
    // Long enough for the second request of a client on a busy machine.
    let site = Site::start(&format!("{PAGES}\n[timeouts]\nclient_idle = \"3s\"\n"));
    let mut connection = site.gateway.connect();
    for _ in 0..2 {
        connection.send(get("/row-64", ""));
        assert_eq!(connection.response().status, 200);
    }
    connection.assert_closed();
}

/// Whether a client gets a response over a new connection.
fn is_served(site: &Site) -> bool {
    let mut connection = site.gateway.connect();
    connection.send(get("/row-64", ""));
    connection.next_response("GET").is_some_and(|response| response.status == 200)
}

#[test]
fn row_64_a_client_that_reads_nothing_is_disconnected() {
    // Only the write timeout is short; other clients may be slow on a busy machine.
    let hurried = "[timeouts]\nclient_idle = \"300ms\"\n";
    let site = Site::start(&format!("{PAGES}\n{hurried}[limits]\nconnections = 1\n"));
    let endless = ScriptedResponse::raw("HTTP/1.1 200 OK\r\n\r\n").then_endlessly(vec![b'x'; 64 * 1024]);
    site.origin.respond("/pass/endless", endless);
    let mut slow = site.gateway.connect();
    slow.send(get("/pass/endless", ""));
    wait_for("a request reaches the origin", || site.origin.requests_for("/pass/endless").pop());
    wait_for("the only connection slot is free again", || is_served(&site).then_some(()));
}

#[test]
fn row_64_an_idle_tunnel_is_closed() {
    let site = Site::start(&format!("{PAGES}\n[timeouts]\ntunnel_idle = \"300ms\"\n"));
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    site.origin.respond("/pass/socket", ScriptedResponse::raw(switch).then_echo());
    let mut client = site.gateway.connect();
    client.send(get("/pass/socket", "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    assert_eq!(client.response().status, 101);
    client.assert_closed();
}

#[test]
fn row_64_connections_per_address_are_limited() {
    const MOST: usize = 4;
    let site = Site::start(&format!("{PAGES}\n[limits]\nconnections_per_address = {MOST}\n"));
    let open = || {
        let mut connection = site.gateway.connect();
        connection.send(get("/row-64", ""));
        assert_eq!(connection.response().status, 200);
        connection
    };
    let mut connections: Vec<Connection> = (0..MOST).map(|_| open()).collect();
    assert!(!is_served(&site), "the limit is reached");
    connections.pop();
    wait_for("a connection slot is free again", || is_served(&site).then_some(()));
    connections[0].send(get("/row-64", ""));
    assert_eq!(connections[0].response().status, 200, "existing connections are served");
}

#[test]
fn a_disconnected_client_holds_no_connection_slot_while_its_page_is_rendered() {
    let rule = "[routes]\n\"/rule\" = { isr = \"60s\", render_timeout = \"10m\" }\n";
    for path in ["/rule", "/by-origin"] {
        let site = Site::start(&format!("{rule}[limits]\nconnections_per_address = 1\n"));
        let gate = Gate::default();
        site.origin
            .respond(path, ScriptedResponse::page(&["Cache-Control: max-age=60"], "slow").after(&gate));
        let mut client = site.gateway.connect();
        client.send(get(path, ""));
        wait_for("a request reaches the origin", || site.origin.requests_for(path).pop());
        drop(client);
        wait_for("a connection slot is free again", || is_served(&site).then_some(()));
        gate.open();
    }
}

/// Starts a gateway whose store accepts connections but never responds, and checks its response and its log.
fn assert_times_out(table: &str, bodies: &str, logged: &str) {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", silent.local_addr().expect("an address"));
    let environment = [
        ("AWS_ENDPOINT_URL_DYNAMODB", endpoint.clone()),
        ("AWS_ENDPOINT_URL_S3", endpoint),
        ("AWS_ACCESS_KEY_ID", "nobody".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "nothing".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let config = format!("{PAGES}\n[timeouts]\ntable = \"110ms\"\nbodies = \"120ms\"\n");
    let place = ["--table", table, "--bodies", bodies];
    let gateway = Gateway::try_start_in(&environment, directory.path(), origin.address, &config, &place);
    let gateway = gateway.expect("the gateway starts");
    let response = gateway.exchange(get("/page", ""));
    assert_eq!((response.status, &*response.text()), (200, "<p>/page, render 1</p>"));
    wait_for("the error is logged", || gateway.log().contains(logged).then_some(()));
}

#[test]
fn an_unresponsive_table_times_out_as_configured() {
    assert_times_out("dynamodb:pages", "memory:", "the table did not respond within 110ms");
}

#[test]
fn an_unresponsive_body_store_times_out_as_configured() {
    assert_times_out("memory:", "s3://bucket/isr", "the object storage did not respond within 120ms");
}

/// The most regenerations that a limit per minute allowed since `start`, however long the requests took.
fn allowed(limit: usize, start: Timestamp) -> usize {
    let seconds = SystemClock.now().seconds() - start.seconds();
    limit * (usize::try_from(seconds / 60).expect("a short time") + 1)
}

#[test]
fn row_75_forced_regenerations_of_a_page_are_limited() {
    const REQUESTS: usize = 100;
    let site = Site::start("[routes]\n\"/**\" = { cache = \"origin\" }\n");
    site.origin.script("/page", |_| ScriptedResponse::page(&["Cache-Control: max-age=36000"], "the page"));
    assert_eq!(site.get("/page").state(), "miss");
    let (start, mut limited) = (SystemClock.now(), 0);
    for directive in ["no-cache", "max-age=0, min-fresh=100000"].into_iter().cycle().take(REQUESTS) {
        let response = site.get_with("/page", &format!("Cache-Control: {directive}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (200, "the page"));
        let status = response.header("cache-status").expect("a status").to_owned();
        if status.contains("detail=page-regeneration-limit") {
            assert_eq!(response.state(), "hit", "{status}");
            limited += 1;
        }
    }
    let renders = site.origin.requests_for("/page").len() - 1;
    assert!((1..=allowed(10, start)).contains(&renders), "{renders} renders");
    assert_eq!(renders + limited, REQUESTS);
    let counted = site.gateway.metric("facetheory_regenerations_limited_total{limit=\"page\"}");
    assert_eq!(counted, Some(limited as f64));
}

#[test]
fn row_75_forced_regenerations_by_a_client_are_limited() {
    const PAGES_OF_SITE: usize = 150;
    let site = Site::start("[routes]\n\"/**\" = { cache = \"origin\" }\n");
    let path = |page: usize| format!("/{page}");
    for page in 0..PAGES_OF_SITE {
        site.origin
            .script(&path(page), |_| ScriptedResponse::page(&["Cache-Control: max-age=36000"], "a page"));
        assert_eq!(site.get(&path(page)).state(), "miss");
    }
    let start = SystemClock.now();
    for page in 0..PAGES_OF_SITE {
        let response = site.get_with(&path(page), "Cache-Control: no-cache\r\n");
        assert_eq!((response.status, response.text().as_str()), (200, "a page"));
    }
    let renders =
        (0..PAGES_OF_SITE).map(|page| site.origin.requests_for(&path(page)).len() - 1).sum::<usize>();
    assert!((1..=allowed(100, start)).contains(&renders), "{renders} renders");
    let counted = site.gateway.metric("facetheory_regenerations_limited_total{limit=\"client\"}");
    assert_eq!(counted.unwrap_or(0.0), (PAGES_OF_SITE - renders) as f64);
}

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

#[test]
fn a_trusted_proxy_may_open_more_connections_than_one_client() {
    const MOST: usize = 2;
    let limits = format!("[limits]\nconnections = 5\nconnections_per_address = {MOST}\n");
    let site = Site::start(&format!("trusted_proxies = [\"127.0.0.1\"]\n{PAGES}\n{limits}"));
    let connections: Vec<Connection> = (0..MOST * 2)
        .map(|_| {
            let mut connection = site.gateway.connect();
            connection.send(get("/row-64", ""));
            assert_eq!(connection.response().status, 200);
            connection
        })
        .collect();
    let last = site.gateway.connect();
    assert!(!is_served(&site), "the total limit is reached");
    drop((connections, last));
    wait_for("a connection slot is free again", || is_served(&site).then_some(()));
}

#[test]
fn a_paused_upload_is_allowed_and_an_origin_that_stops_reading_times_out() {
    /// More than all buffers, but little enough that the gateway reads the rest so that the client gets the response.
    const LARGE: usize = 20 << 20;
    let hurried = "[timeouts]\nidle = \"1s\"\nclient_body = \"2m\"\n\
                   [limits]\nbody_bytes = \"100MiB\"\nupload_buffers = 0\n";
    let site = Site::start(&format!("{PAGES}\n{hurried}"));
    let mut resting = site.gateway.connect();
    resting.send(request("POST", "/pass/resting", "Content-Length: 10\r\n") + "first");
    wait_for("the origin gets the first part", || site.origin.received("first").then_some(()));
    let never = Gate::default();
    site.origin.respond("/pass/stopping", ScriptedResponse::page(&[], "never").early().after(&never));
    let mut sending = site.gateway.connect();
    sending.send(request("POST", "/pass/stopping", &format!("Content-Length: {LARGE}\r\n")));
    sending.send(vec![b'x'; LARGE]);
    assert_eq!(sending.response().status, 504, "the origin stops reading");
    sending.assert_closed();
    // The pause of the client must not count against the origin.
    resting.send("later");
    let response = resting.response();
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(
        site.origin.requests_for("/pass/resting").pop().expect("a complete request").body,
        b"firstlater"
    );
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
