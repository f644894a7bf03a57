//! Whether the process lives, whether visitors should be sent to it, and what is counted.

use std::io::Write as _;
use std::net::TcpStream;

use tabletheory::Scan;

use crate::process::{Gateway, Origin, eventually, facetheory, refusal};

#[test]
fn a_gateway_that_can_serve_is_alive_and_ready() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    assert_eq!(gateway.get("/healthz").status, 200);
    // A store that is slow to answer is none to count on, until it is quick again.
    eventually("that it is ready", || {
        let ready = gateway.get("/readyz");
        (ready.status, ready.json()["ready"].as_bool()) == (200, Some(true))
    });
}

#[test]
fn a_machine_without_certificates_is_no_place_only_for_an_origin_that_needs_them() {
    let bare = || {
        let mut command = facetheory();
        command.env("SSL_CERT_FILE", "none").env("SSL_CERT_DIR", "none");
        command
    };
    let gateway = Gateway::with(&Origin::start(), &mut bare(), &[]);
    assert_eq!(gateway.get("/healthz").status, 200);
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["serve", "--origin", "https://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "off"];
    let said = refusal(bare().args(arguments).current_dir(&directory));
    assert!(said.contains("SSL_CERT_FILE"), "{said}");
}

#[test]
fn a_gateway_whose_origin_is_down_is_ready_since_it_serves_what_it_has_and_says_how_the_origin_is() {
    let origin = Origin::start();
    let up = Gateway::start(&origin);
    let told = serde_json::json!({ "ready": true, "reasons": [], "origin": "up" });
    eventually("that it is ready", || up.get("/readyz").json() == told);
    let origin = Origin::gone();
    let gateway = Gateway::start(&origin);
    for number in 0..3 {
        assert_eq!(gateway.visit(&format!("/{number}")).status, 502);
    }
    let told = serde_json::json!({ "ready": true, "reasons": [], "origin": "down" });
    eventually("that it is ready", || {
        let down = gateway.get("/readyz");
        down.status == 200 && down.json() == told
    });
    assert_eq!(gateway.get("/healthz").status, 200);
    assert!(gateway.get("/metrics").body.contains("facetheory_gateway_origin_up 0"));
}

#[test]
fn a_gateway_that_is_about_to_end_says_so_until_its_last_visitor_has_gone() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let site = gateway.site.clone();
    let visitor = std::thread::spawn(move || crate::process::Ask::get("/slow/a").send(&site));
    origin.asked.recv().expect("the origin is asked");
    gateway.signal("TERM");
    eventually("that it is not ready", || gateway.get("/readyz").status == 503);
    assert_eq!(gateway.get("/readyz").json()["reasons"], serde_json::json!(["stopping"]));
    assert_eq!(gateway.get("/healthz").status, 200);
    origin.go_on.send(()).expect("the origin waits");
    assert_eq!(visitor.join().expect("no panic").status, 200);
    eventually("its end", || TcpStream::connect(&gateway.admin).is_err());
}

#[test]
fn a_gateway_that_is_asked_twice_to_end_waits_for_nobody_and_leaves_no_lease() {
    const PATIENT: &str = "[routes]\n\"/**\" = { isr = \"1h\", render_timeout = \"10m\" }\n\
                           [timeouts]\ntable = \"20s\"\nbodies = \"1m\"\nheaders = \"10m\"\nshutdown = \"10m\"\n";
    // Waiting for a visitor, and for a render whose visitor has left.
    for leaves in [false, true] {
        let origin = Origin::start();
        let mut gateway = Gateway::by(PATIENT, &origin, &mut facetheory(), &["--log", "off"]);
        let mut visitor = TcpStream::connect(&gateway.site).expect("a connection");
        visitor.write_all(b"GET /slow/a HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
        origin.asked.recv().expect("the origin is asked");
        let visitor = Some(visitor).filter(|_| !leaves);
        assert!(has_lease(&gateway));
        gateway.signal("TERM");
        eventually("that it is not ready", || gateway.get("/readyz").status == 503);
        assert!(!gateway.has_ended(), "it waits for the origin");
        gateway.signal("TERM");
        eventually("its end", || gateway.has_ended());
        assert!(!has_lease(&gateway));
        drop(visitor);
    }
}

/// Whether anybody has a lease, by the table of a gateway.
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
fn what_happens_is_counted_under_names_that_prometheus_reads() {
    let gateway = Gateway::start(&Origin::start());
    for _ in 0..3 {
        gateway.visit("/a");
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
    assert!((value("facetheory_isr_cache{state=\"hit\"") - 2.0).abs() < 0.1);
    assert!((value("facetheory_isr_cache{state=\"miss\"") - 1.0).abs() < 0.1);
    assert!((value("facetheory_isr_regeneration_ms_count") - 1.0).abs() < 0.1);
    assert!((value("facetheory_isr_memory_pages") - 1.0).abs() < 0.1);
    assert!(value("facetheory_isr_memory_bytes") > 0.0);
    assert!(value("facetheory_gateway_connections") >= 0.0);
    assert!(value("facetheory_process_uptime_seconds") >= 0.0);
    assert!(value("facetheory_process_tasks") >= 1.0, "whoever answers is one");
}
