//! Rolling restarts under load: every request gets a complete response.

use std::path::Path;
use std::time::Duration;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use tokio::time::Instant;

use super::CONFIG;
use super::load::{Clients, Kind, Load, NAME, Report};
use super::support::gateway::Gateway;
use super::support::origin::Origin;
use super::support::print;
use super::support::site::with_long_timeouts;

/// The number of seconds for which the load lasts and restarts are repeated; a few restarts without it.
const SECONDS: &str = "FACETHEORY_RESTART_SECONDS";
const RESTARTS: usize = 3;
/// The number of requests between two restarts.
const REQUESTS: usize = 300;

/// Together they send 500 requests a second.
const CLIENTS: [Clients; 3] = [
    Clients { kind: Kind::KeepAlive, count: 40, rate: 200 },
    Clients { kind: Kind::NewConnections, count: 40, rate: 200 },
    Clients { kind: Kind::Http2, count: 20, rate: 100 },
];

/// Whether the restarts go on.
fn goes_on(restarts: usize, begun: Instant) -> bool {
    let seconds = std::env::var(SECONDS).ok().map(|value| value.parse().expect("a number of seconds"));
    match seconds {
        Some(seconds) => begun.elapsed() < Duration::from_secs(seconds),
        None => restarts < RESTARTS,
    }
}

/// The most failures that are described.
const MAX_DESCRIBED: usize = 20;

pub(crate) fn assert_no_failure(what: &str, restarts: usize, report: &Report, lasted: Duration) {
    let Report { requests, connections, closing, failures, slowest } = report;
    let failed = failures.len();
    let rate = f64::from(u32::try_from(*requests).expect("a small number")) / lasted.as_secs_f64();
    print(&format!(
        "{what}: {restarts} restarts, {requests} requests in {:.1} s ({rate:.0} a second), {connections} connections, {closing} \
         responses that closed theirs, slowest {} ms: {failed} failed",
        lasted.as_secs_f64(),
        slowest.as_millis()
    ));
    assert_eq!(failed, 0, "{:#?}", failures.iter().take(MAX_DESCRIBED).collect::<Vec<_>>());
}

/// Creates a certificate, and returns it and its part of a configuration.
fn certificate(directory: &Path) -> (CertifiedKey<KeyPair>, String) {
    let made = generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let (certificate, key) = (directory.join("tls.pem"), directory.join("tls.key"));
    std::fs::write(&certificate, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    (made, format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n"))
}

/// Replaces the gateway by a new process again and again, while clients send requests.
fn restart_by_hand_over(what: &str, with_tls: bool) {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let (certificate, tls) = certificate(directory.path());
    let config = with_long_timeouts(&format!("{CONFIG}{}", if with_tls { &tls } else { "" }));
    let path = directory.path().join("hand-over.sock").display().to_string();
    let start = || {
        Gateway::start(directory.path(), origin.address, &config, &["--hand-over", &path, "--no-access-log"])
    };
    let mut gateway = start();
    let (address, begun) = (gateway.address, Instant::now());
    let load = Load::start(address, &CLIENTS, with_tls.then_some(&certificate), Duration::from_secs(10));
    let mut restarts = 0;
    while goes_on(restarts, begun) {
        load.wait_for_requests(REQUESTS);
        let old = std::mem::replace(&mut gateway, start());
        assert_eq!(gateway.address, address, "the new process listens on the same socket");
        old.wait_for_exit();
        restarts += 1;
    }
    load.wait_for_requests(REQUESTS);
    let (report, lasted) = load.stop();
    assert!(report.closing >= restarts, "keep-alive connections are told to close: {report:?}");
    assert_no_failure(what, restarts, &report, lasted);
}

#[test]
fn a_rolling_restart_by_hand_over_fails_no_request() {
    restart_by_hand_over("hand-over", false);
}

#[test]
fn a_rolling_restart_by_hand_over_fails_no_request_over_tls() {
    restart_by_hand_over("hand-over over TLS", true);
}
