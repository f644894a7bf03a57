//! An origin that refuses connections for a moment, under load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::listening::ListeningOrigin;
use crate::support::gateway::Gateway;
use crate::support::site::get;
use crate::support::{print, wait_for};

const CLIENTS: usize = 50;
const BLIP: Duration = Duration::from_millis(200);
/// More requests than this in a row succeed before the origin counts as back for all clients.
const SUCCESSES: usize = 20;
/// A pause of the machine does not last so long. A circuit breaker that escalates with each client does: 15 s.
const MACHINE: Duration = Duration::from_secs(10);

/// A runtime for clients and origins.
pub(crate) fn runtime() -> Arc<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    Arc::new(runtime.expect("a runtime"))
}

/// Sends requests over one connection, one after the other, until it is stopped. Returns when each ended, and its status.
async fn client(address: SocketAddr, is_over: Arc<AtomicBool>) -> Vec<(Instant, u16)> {
    let (mut stream, mut seen) =
        (TcpStream::connect(address).await.expect("the gateway listens"), Vec::new());
    let mut buffer = vec![0; 16 * 1024];
    while !is_over.load(Ordering::SeqCst) {
        stream.write_all(get("/pass", "").as_bytes()).await.expect("the gateway reads");
        let mut response = Vec::new();
        while !is_whole(&response) {
            let count = stream.read(&mut buffer).await.expect("the gateway responds");
            assert!(count > 0, "the gateway keeps the connection open");
            response.extend_from_slice(&buffer[..count]);
        }
        let status = String::from_utf8_lossy(&response[9..12]).parse().expect("a status");
        seen.push((Instant::now(), status));
    }
    seen
}

fn is_whole(response: &[u8]) -> bool {
    let text = String::from_utf8_lossy(response);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0_usize)
}

/// Fifty clients at once, and each of them fails: the breaker opens once, and the first probe that succeeds closes it. The number of
/// probes does not depend on the speed of the machine: a breaker that counted every client's failure would wait longest.
#[test]
fn a_short_outage_under_load_ends_with_the_first_probe_after_it() {
    let runtime = runtime();
    let (origin, directory) =
        (ListeningOrigin::start(&runtime, true), tempfile::tempdir().expect("a directory"));
    let gateway =
        Gateway::start(directory.path(), origin.address, "default = \"pass\"\n", &["--no-access-log"]);
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| runtime.spawn(client(gateway.address, is_over.clone()))).collect();
    wait_for("all clients are served", || (origin.requests() > CLIENTS * SUCCESSES).then_some(()));

    origin.refuse();
    let refused = Instant::now();
    let outages = "facetheory_gateway_origin_outages_total";
    wait_for("the origin counts as down", || gateway.metric(outages).filter(|outages| *outages >= 1.0));
    std::thread::sleep(BLIP.saturating_sub(refused.elapsed()));
    origin.listen();
    let (back, lasted) = (Instant::now(), refused.elapsed());
    let probed = gateway.metric(PROBES_FAILED).unwrap_or(0.0);
    let (served, so_far) = (origin.requests(), CLIENTS * SUCCESSES);
    wait_for("all clients are served again", || (origin.requests() > served + so_far).then_some(()));
    is_over.store(true, Ordering::SeqCst);

    let seen: Vec<(Instant, u16)> =
        clients.into_iter().flat_map(|client| runtime.block_on(client).expect("a client")).collect();
    let failed = seen.iter().filter(|(_, status)| *status != 200);
    let last =
        failed.clone().map(|(ended, _)| ended.saturating_duration_since(back)).max().unwrap_or_default();
    let counted = gateway.metric(outages).unwrap_or(0.0);
    print(&format!(
        "outage of {lasted:?} under {CLIENTS} clients: {} of {} requests failed, the last {last:?} after the origin was back; \
         outages {counted}, probes that failed {probed}",
        failed.count(),
        seen.len(),
    ));
    assert!(counted < 3.0, "outages: {counted}");
    assert!(last < MACHINE, "the last failure was {last:?} after the origin was back");
    // Between two looks at the metrics, one more may fail.
    let failed_probes = gateway.metric(PROBES_FAILED).unwrap_or(0.0);
    assert!(
        failed_probes <= probed + 1.0,
        "{failed_probes} probes failed, {probed} before the origin was back"
    );
    assert_eq!(gateway.metric("facetheory_gateway_origin_up"), Some(1.0));
    let lines = gateway.log().lines().filter(|line| line.contains("the origin")).count();
    assert!(lines < 100, "{lines} lines in the log");
}

const PROBES_FAILED: &str = "facetheory_gateway_origin_probes_total{outcome=\"failed\"}";
