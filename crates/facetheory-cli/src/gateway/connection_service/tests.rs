//! Every kind of hit is served without hyper, as hyper would serve it.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use facetheory::{Bodies, Isr, PageStore, Pages};
use http::uri::Scheme;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tabletheory::{ManualClock, MemoryTable, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::TcpListener;

use super::ConnectionService;
use crate::config::Config;
use crate::gateway::client::Client;
use crate::gateway::shutdown_signal::ShutdownSignal;
use crate::gateway::{ConnectionLimit, Gateway, ServingConfig, Tunnels};
use crate::wire::slow_client::IdleTracker;
use crate::wire::{ClientTimeouts, DeadlineTicker, FastPathEnd, RequestLimits};

const CONFIG: &str =
    "default = \"origin\"\n[store]\nmetadata_max_age = \"1h\"\n[routes]\n\"/rule/**\" = { isr = \"1h\" }";
const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// Responds to every request with the same page.
pub(crate) async fn start_origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let body = "<p>a line</p>\n".repeat(500);
            let response = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\netag: \"v1\"\r\ncache-control: max-age=3600\r\n\
                 last-modified: Tue, 14 Nov 2023 22:00:00 GMT\r\ndate: Tue, 14 Nov 2023 22:13:20 GMT\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    address
}

pub(crate) async fn start_gateway(origin: SocketAddr) -> (Arc<Gateway>, Isr) {
    let table = MemoryTable::with_clock(Arc::new(ManualClock::at(NOW)));
    let isr = Isr::new(Pages::new(PageStore::new(Arc::new(table)), Bodies::memory()));
    let config = Config::parse(CONFIG).expect("a configuration");
    let origin = format!("http://{origin}").parse().expect("an origin");
    let serving = ServingConfig::new(&config, &origin, isr.clone(), Tunnels::default(), None, false);
    (Gateway::new(serving.expect("a gateway"), None), isr)
}

/// Sends a request over a connection of its own, with or without the fast path. Returns the bytes of the response, and
/// whether hyper was involved.
async fn exchange(gateway: &Arc<Gateway>, request: &str, with_fast_path: bool) -> (String, bool) {
    let (mut client, server) = duplex(1 << 20);
    let limits = RequestLimits::default();
    let mut stream = DeadlineTicker::new().register(server, limits, &ClientTimeouts::default());
    let peer = Client {
        address: SocketAddr::from(([127, 0, 0, 1], 1)),
        scheme: Scheme::HTTP,
        http1_state: Some(stream.state().clone()),
        permit: Weak::new(),
    };
    let permit = ConnectionLimit::new(1, 1).acquire(None).expect("a permit");
    let (tracker, drain) = (IdleTracker::new(), ShutdownSignal::default());
    let service = ConnectionService::new(gateway.clone(), Arc::new(peer), tracker, drain, Arc::new(permit));
    client.write_all(request.as_bytes()).await.expect("room");
    client.shutdown().await.expect("the end of the requests");
    let mut needs_hyper = true;
    if with_fast_path {
        stream.set_fast_path(Box::new(service.clone()));
        needs_hyper = stream.serve_fast_path().await.expect("no error") == FastPathEnd::NeedsHyper;
    }
    if needs_hyper {
        let mut builder = http1::Builder::new();
        builder.half_close(true).header_read_timeout(None);
        pin!(builder.serve_connection(TokioIo::new(stream), service)).await.expect("a response");
    } else {
        drop(stream);
    }
    let mut response = Vec::new();
    client.read_to_end(&mut response).await.expect("a response");
    (String::from_utf8_lossy(&response).into_owned(), needs_hyper)
}

/// The lines of a head, sorted, since the request id is the last one on the fast path; and the body.
fn parts(response: &str) -> (Vec<&str>, &str) {
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let mut lines: Vec<_> = head.split("\r\n").collect();
    lines.sort_unstable();
    (lines, body)
}

#[tokio::test]
async fn every_kind_of_hit_is_served_without_hyper_and_in_the_same_way() {
    let (gateway, isr) = start_gateway(start_origin().await).await;
    for path in ["/rule/a", "/origin/a"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let (response, needs_hyper) = exchange(&gateway, &request, true).await;
        assert!(needs_hyper && response.contains("x-facetheory-isr: miss\r\n"), "{response}");
    }
    assert!(isr.settle(Duration::from_secs(60)).await, "the page is compressed");
    for path in ["/rule/a", "/origin/a"] {
        for method in ["GET", "HEAD"] {
            for (headers, get, head) in [
                ("", 200, 200),
                ("accept-encoding: gzip, br\r\n", 200, 200),
                ("accept-encoding: zstd;q=0.5\r\n", 200, 200),
                ("if-none-match: \"v1\"\r\n", 304, 304),
                ("if-none-match: \"v0\"\r\n", 200, 200),
                ("if-none-match: \"v1\"\r\naccept-encoding: br\r\n", 304, 304),
                ("if-modified-since: Tue, 14 Nov 2023 22:00:00 GMT\r\n", 304, 304),
                ("if-modified-since: Tue, 14 Nov 2023 21:00:00 GMT\r\n", 200, 200),
                ("range: bytes=0-4\r\n", 206, 200),
                ("range: bytes=-4\r\naccept-encoding: gzip\r\n", 206, 200),
                ("range: bytes=99999-\r\n", 416, 200),
            ] {
                let request =
                    format!("{method} {path} HTTP/1.1\r\nhost: a\r\nx-request-id: one\r\n{headers}\r\n");
                let (fast, needs_hyper) = exchange(&gateway, &request, true).await;
                assert!(!needs_hyper, "{request}");
                let status = if method == "GET" { get } else { head };
                assert!(fast.starts_with(&format!("HTTP/1.1 {status} ")), "{request}{fast}");
                let (by_hyper, _) = exchange(&gateway, &request, false).await;
                let ((head, body), expected) = (parts(&fast), parts(&by_hyper));
                assert_eq!(head, expected.0, "{request}");
                assert!(body == expected.1, "{request}");
                assert_eq!(body.is_empty(), method == "HEAD" || matches!(status, 304 | 416), "{request}");
            }
        }
    }
}
