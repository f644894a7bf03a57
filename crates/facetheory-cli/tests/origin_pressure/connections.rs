//! The limit on connections to the origin: many clients, clients that leave, and clients that send slowly.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::blip::runtime;
use crate::listening::ListeningOrigin;
use crate::support::client::Connection;
use crate::support::gateway::Gateway;
use crate::support::site::{IN_MEMORY, get, request};
use crate::support::{print, wait_for};

const CLIENTS: usize = 800;
/// Fewer connections than clients.
const LIMIT: usize = 100;
/// No passing test waits so long.
const LONG: &str = "[timeouts]\norigin_queue = \"10m\"\nheaders = \"10m\"\nclient_body = \"10m\"\n";

struct Pressed {
    gateway: Gateway,
    origin: ListeningOrigin,
    runtime: Arc<Runtime>,
    _directory: tempfile::TempDir,
}

impl Pressed {
    /// A gateway in front of an origin that does not respond yet.
    fn start(config: &str) -> Pressed {
        let (runtime, directory) = (runtime(), tempfile::tempdir().expect("a directory"));
        let origin = ListeningOrigin::start(&runtime, false);
        let gateway = Gateway::start(directory.path(), origin.address, config, &["--no-access-log"]);
        Pressed { gateway, origin, runtime, _directory: directory }
    }

    /// Starts clients that each send these bytes, and return the status of the response.
    fn clients(&self, count: usize, bytes: impl Fn(usize) -> String) -> Vec<JoinHandle<u16>> {
        let address = self.gateway.address;
        let client = |number| {
            let bytes = bytes(number);
            self.runtime.spawn(async move {
                let mut stream = TcpStream::connect(address).await.expect("the gateway listens");
                stream.write_all(bytes.as_bytes()).await.expect("the gateway reads");
                let mut response = [0; 12];
                stream.read_exact(&mut response).await.expect("a response");
                String::from_utf8_lossy(&response[9..]).parse().expect("a status")
            })
        };
        (0..count).map(client).collect()
    }

    fn gauge(&self, name: &str) -> usize {
        let value = self.gateway.metric(name).unwrap_or(0.0);
        value.to_string().parse().expect("a whole number")
    }

    fn in_use(&self) -> usize {
        self.gauge("facetheory_gateway_origin_connections")
    }

    fn waiting(&self) -> usize {
        self.gauge("facetheory_gateway_origin_queue")
    }
}

#[test]
fn however_many_clients_there_are_the_origin_gets_no_more_connections_than_the_limit() {
    // A cold page each, which follows the headers of the origin, or is passed through.
    let config = format!("[routes]\n\"/pass/**\" = false\n{LONG}[limits]\norigin_connections = {LIMIT}\n");
    let site = Pressed::start(&config);
    let target = |number| if number % 2 == 0 { format!("/pass/{number}") } else { format!("/page/{number}") };
    let clients = site.clients(CLIENTS, |number| get(&target(number), ""));
    wait_for("all requests are sent or wait", || (site.in_use() + site.waiting() == CLIENTS).then_some(()));
    assert_eq!((site.in_use(), site.waiting()), (LIMIT, CLIENTS - LIMIT));
    wait_for("the origin has accepted them", || (site.origin.open() == LIMIT).then_some(()));
    site.origin.respond();
    for client in clients {
        assert_eq!(site.runtime.block_on(client).expect("a client"), 200);
    }
    let most = site.origin.most();
    print(&format!("{CLIENTS} clients: at most {most} connections to the origin at the same time"));
    assert!(most <= LIMIT, "{most} connections");
    wait_for("all connections are idle or closed", || (site.in_use() == 0).then_some(()));
}

#[test]
fn the_connections_and_places_of_clients_who_left_are_free() {
    let config = format!("default = \"pass\"\n{LONG}[limits]\norigin_connections = {LIMIT}\n");
    let site = Pressed::start(&config);
    let clients = site.clients(CLIENTS, |number| get(&format!("/{number}"), ""));
    wait_for("all requests are sent or wait", || (site.in_use() + site.waiting() == CLIENTS).then_some(()));
    for client in clients {
        client.abort();
    }
    wait_for("nothing waits or is in use", || (site.in_use() + site.waiting() == 0).then_some(()));
    wait_for("the origin has no connection left", || (site.origin.open() == 0).then_some(()));
    site.origin.respond();
    assert_eq!(site.gateway.exchange(get("/next", "")).status, 200);
}

#[test]
fn a_gateway_without_a_free_file_does_not_take_the_origin_for_down() {
    const FILES: usize = 64;
    let (runtime, directory) = (runtime(), tempfile::tempdir().expect("a directory"));
    let origin = ListeningOrigin::start(&runtime, true);
    let arguments = [&IN_MEMORY[..], &["--no-access-log"]].concat();
    let gateway = Gateway::start_with_open_files(
        FILES,
        directory.path(),
        origin.address,
        "default = \"pass\"\n",
        &arguments,
    );
    let mut client = gateway.connect();
    let idle: Vec<Connection> = (0..FILES).map(|_| gateway.connect()).collect();
    let exhausted = "cannot accept connections for now";
    wait_for("all files are in use", || gateway.log().contains(exhausted).then(|| gateway.open_files()));
    for _ in 0..10 {
        client.send(get("/", ""));
        let response = client.response();
        assert_eq!(
            (response.status, response.header("retry-after")),
            (503, Some("1")),
            "{}",
            response.text()
        );
    }
    drop(idle);
    // The circuit breaker would respond with 503, too.
    wait_for("files are free", || (gateway.open_files() < FILES / 2).then_some(()));
    client.send(get("/", ""));
    assert_eq!(client.response().status, 200);
    assert_eq!(gateway.metric("facetheory_gateway_origin_outages_total"), None, "no outage was counted");
}

#[test]
fn a_request_that_gets_no_connection_in_time_gets_503_and_one_that_finds_a_full_queue_at_once() {
    for (limits, timeouts, reason) in [
        ("origin_queue = 0", "origin_queue = \"10m\"", "queue-full"),
        ("origin_queue = 10", "origin_queue = \"100ms\"", "queue-timeout"),
    ] {
        let site = Pressed::start(&format!(
            "[limits]\norigin_connections = 1\n{limits}\n[timeouts]\nheaders = \"10m\"\n{timeouts}\n"
        ));
        let first = site.clients(1, |_| get("/first", ""));
        wait_for("the connection is in use", || (site.in_use() == 1).then_some(()));
        let refused = site.gateway.exchange(get("/second", ""));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{reason}");
        let counted = format!("facetheory_gateway_origin_queue_rejected_total{{reason=\"{reason}\"}}");
        assert_eq!(site.gateway.metric(&counted), Some(1.0), "{reason}");
        assert_eq!(site.gateway.metric("facetheory_gateway_origin_outages_total").unwrap_or(0.0), 0.0);
        site.origin.respond();
        for client in first {
            assert_eq!(site.runtime.block_on(client).expect("a client"), 200);
        }
    }
}

#[test]
fn a_stale_page_is_served_while_no_connection_to_the_origin_is_free() {
    let config = "[routes]\n\"/pass/**\" = false\n\"/page\" = { isr = \"1h\", blocking = true }\n\
                  [limits]\norigin_connections = 1\norigin_queue = 0\n[timeouts]\nheaders = \"10m\"\n";
    let site = Pressed::start(config);
    site.origin.respond();
    assert_eq!(site.gateway.exchange(get("/page", "")).state(), "miss");
    site.origin.pause();
    let first = site.clients(1, |_| get("/pass/first", ""));
    wait_for("the connection is in use", || (site.in_use() == 1).then_some(()));
    let invalidated = site.gateway.admin_post(
        "/api/v1/invalidate",
        &format!(r#"{{ "url": "http://{}/page" }}"#, crate::support::site::HOST),
    );
    assert_eq!(invalidated.status, 200, "{}", invalidated.text());
    let stale = site.gateway.exchange(get("/page", ""));
    assert_eq!((stale.status, stale.state()), (200, "stale-error"));
    site.origin.respond();
    for client in first {
        assert_eq!(site.runtime.block_on(client).expect("a client"), 200);
    }
}

#[test]
fn clients_that_send_slowly_hold_no_connection_to_the_origin() {
    let site = Pressed::start(&format!("{LONG}[limits]\norigin_connections = {LIMIT}\n"));
    site.origin.respond();
    let head = request("POST", "/form", "Content-Length: 1000\r\n");
    let slow = site.clients(3 * LIMIT, |_| format!("{head}a beginning"));
    let connected = || site.gateway.metric("facetheory_gateway_connections");
    wait_for("all clients are connected", || {
        connected().filter(|connected| *connected >= f64::from(u32::try_from(3 * LIMIT).expect("a number")))
    });
    // A request that arrived after theirs is served.
    for number in 0..10 {
        let whole = request("POST", "/form", "Content-Length: 1000\r\n") + &"x".repeat(1000);
        assert_eq!(site.gateway.exchange(whole).status, 200, "request {number}");
    }
    assert_eq!((site.in_use(), site.waiting(), site.origin.requests()), (0, 0, 10));
    print(&format!("{} slow uploads: {} connections to the origin", 3 * LIMIT, site.origin.open()));
    assert!(site.origin.most() <= 1, "{} connections", site.origin.most());
    slow.iter().for_each(JoinHandle::abort);
}

#[test]
fn slow_uploads_longer_than_the_buffer_hold_at_most_half_of_the_connections() {
    // Without buffers, the beginning is not received before the origin is called.
    let limits = format!("[limits]\norigin_connections = {LIMIT}\nupload_buffers = 0\n");
    let site = Pressed::start(&format!("{LONG}{limits}"));
    site.origin.respond();
    let head = request("POST", "/form", "Content-Length: 1000\r\n");
    let slow = site.clients(3 * LIMIT, |_| format!("{head}a beginning"));
    wait_for("all uploads have a connection or wait", || {
        (site.in_use() + site.waiting() == 3 * LIMIT).then_some(())
    });
    assert_eq!(site.in_use(), LIMIT / 2);
    assert_eq!(site.gateway.exchange(get("/page", "")).status, 200);
    slow.iter().for_each(JoinHandle::abort);
    wait_for("nothing waits or is in use", || (site.in_use() + site.waiting() == 0).then_some(()));
}
