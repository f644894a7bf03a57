//! Slow and idle clients, and how many connections clients may hold.

use crate::assertions::PAGES;
use crate::support::client::Connection;
use crate::support::origin::{Gate, ScriptedResponse};
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
