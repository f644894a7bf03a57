//! Health, shutdown and metrics.

use std::io::Write as _;
use std::net::TcpStream;

use tabletheory::Scan;

use crate::process::{Gateway, Origin, error_of, eventually, facetheory};

#[test]
fn a_gateway_that_can_serve_is_alive_and_ready() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    assert_eq!(gateway.get("/healthz").status, 200);
    // On a busy machine a store may be slow at first.
    eventually("ready", || {
        let ready = gateway.get("/readyz");
        (ready.status, ready.json()["ready"].as_bool()) == (200, Some(true))
    });
}

#[test]
fn a_gateway_with_the_embedded_store_relies_on_the_change_feed() {
    let gateway = Gateway::start(&Origin::start());
    let is_complete = || gateway.get("/metrics").body.contains("\nfacetheory_feed_complete 1");
    eventually("the feed is read", is_complete);
}

#[test]
fn root_certificates_are_needed_only_for_an_https_origin() {
    let bare = || {
        let mut command = facetheory();
        command.env("SSL_CERT_FILE", "none").env("SSL_CERT_DIR", "none");
        command
    };
    let gateway = Gateway::with(&Origin::start(), &mut bare(), &[]);
    assert_eq!(gateway.get("/healthz").status, 200);
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["serve", "--origin", "https://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "off"];
    let printed = error_of(bare().args(arguments).current_dir(&directory));
    assert!(printed.contains("SSL_CERT_FILE"), "{printed}");
}

#[test]
fn a_gateway_is_ready_while_its_origin_is_down() {
    let origin = Origin::start();
    let up = Gateway::start(&origin);
    let expected = serde_json::json!({ "ready": true, "reasons": [], "origin": "up" });
    eventually("ready", || up.get("/readyz").json() == expected);
    let origin = Origin::down();
    let gateway = Gateway::start(&origin);
    for number in 0..3 {
        assert_eq!(gateway.client_get(&format!("/{number}")).status, 502);
    }
    let expected = serde_json::json!({ "ready": true, "reasons": [], "origin": "down" });
    eventually("ready", || {
        let down = gateway.get("/readyz");
        down.status == 200 && down.json() == expected
    });
    assert_eq!(gateway.get("/healthz").status, 200);
    assert!(gateway.get("/metrics").body.contains("facetheory_gateway_origin_up 0"));
}

#[test]
fn readiness_reports_a_shutdown_until_the_last_request_is_finished() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let site = gateway.site.clone();
    let client = std::thread::spawn(move || crate::process::Request::get("/slow/a").send(&site));
    origin.requested.recv().expect("a request to the origin");
    gateway.signal("TERM");
    eventually("not ready", || gateway.get("/readyz").status == 503);
    assert_eq!(gateway.get("/readyz").json()["reasons"], serde_json::json!(["stopping"]));
    assert_eq!(gateway.get("/healthz").status, 200);
    origin.release.send(()).expect("a waiting request");
    assert_eq!(client.join().expect("no panic").status, 200);
    eventually("exit", || TcpStream::connect(&gateway.admin).is_err());
}

#[test]
fn a_second_signal_ends_the_shutdown_at_once_and_leaves_no_lease() {
    const LONG_TIMEOUTS: &str = "[routes]\n\"/**\" = { isr = \"1h\", render_timeout = \"10m\" }\n\
                           [timeouts]\ntable = \"20s\"\nbodies = \"1m\"\npublish = \"2m\"\nheaders = \"10m\"\nshutdown = \"10m\"\n";
    // With a waiting client, and with a render whose client has disconnected.
    for disconnects in [false, true] {
        let origin = Origin::start();
        let mut gateway = Gateway::with_config(LONG_TIMEOUTS, &origin, &mut facetheory(), &["--log", "off"]);
        let mut client = TcpStream::connect(&gateway.site).expect("a connection");
        client.write_all(b"GET /slow/a HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
        origin.requested.recv().expect("a request to the origin");
        let client = Some(client).filter(|_| !disconnects);
        assert!(has_lease(&gateway));
        gateway.signal("TERM");
        eventually("not ready", || gateway.get("/readyz").status == 503);
        assert!(!gateway.has_exited(), "the shutdown waits for the origin");
        gateway.signal("TERM");
        eventually("exit", || gateway.has_exited());
        assert!(!has_lease(&gateway));
        drop(client);
    }
}

/// Whether the table of a gateway contains a lease.
fn has_lease(gateway: &Gateway) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let address = format!("sqlite:{}", gateway.data().join("table.db").display());
    let rows = runtime.block_on(async {
        let table = tabletheory::open(&address).await.expect("a table");
        table.scan(&Scan::new()).await.expect("its rows")
    });
    rows.items.iter().any(|row| format!("{row:?}").contains("\"LOCK\""))
}

#[test]
fn metrics_are_exported_for_prometheus() {
    let gateway = Gateway::start(&Origin::start());
    for _ in 0..3 {
        gateway.client_get("/a");
    }
    let metrics = gateway.get("/metrics");
    assert_eq!(
        (metrics.status, metrics.header("content-type")),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    let value = |name: &str| {
        let line = metrics.body.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {}", metrics.body));
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
    };
    assert!((value("facetheory_requests_total{state=\"hit\"") - 2.0).abs() < 0.1);
    assert!((value("facetheory_requests_total{state=\"miss\"") - 1.0).abs() < 0.1);
    assert!((value("facetheory_regeneration_duration_seconds_count") - 1.0).abs() < 0.1);
    assert!((value("facetheory_memory_pages") - 1.0).abs() < 0.1);
    assert!(value("facetheory_memory_bytes") > 0.0);
    assert!(metrics.body.contains("# HELP facetheory_requests_total "), "{}", metrics.body);
    assert!(value("facetheory_gateway_connections") >= 0.0);
    assert!(value("facetheory_process_uptime_seconds") >= 0.0);
    assert!(value("facetheory_process_tasks") >= 1.0, "this request is a task");
}

#[test]
fn a_gateway_whose_bodies_cannot_be_stored_is_not_ready_and_says_why() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    // Another program holds the write lock: reads still work, and no object can be stored.
    let file = rusqlite::Connection::open(gateway.data().join("bodies/bodies.db")).expect("the file");
    file.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let expected = serde_json::json!(["bodies-not-writable"]);
    eventually("not ready", || {
        let ready = gateway.get("/readyz");
        ready.status == 503 && ready.json()["reasons"] == expected
    });
}
