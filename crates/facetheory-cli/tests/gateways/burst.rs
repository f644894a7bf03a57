//! Many concurrent clients of two gateways.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use crate::pair::Pair;
use crate::support::gateway::Gateway;
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::site::get;
use crate::support::{print, wait_for};

/// The number of concurrent clients of each gateway.
const CLIENTS: usize = 1_000;
/// The render timeout and the wait timeout: longer than it takes to send all requests.
const RENDER: Duration = Duration::from_secs(300);
/// The open files of the test besides the connections of its clients.
const OTHER_FILES: usize = 200;

/// Clients that have sent a request and wait for the response.
pub(crate) struct Burst {
    runtime: tokio::runtime::Runtime,
    clients: Vec<JoinHandle<ReceivedResponse>>,
    sent: Arc<AtomicUsize>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReceivedResponse {
    /// The status, or 0 if there was no response.
    pub(crate) status: u16,
    /// The cache state: `miss`, `hit` and so on.
    pub(crate) state: String,
    /// The body, or an error message.
    pub(crate) body: String,
}

impl Burst {
    /// No clients yet.
    pub(crate) fn new() -> Burst {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Burst { runtime: runtime.expect("a runtime"), clients: Vec::new(), sent: Arc::default() }
    }

    /// Adds clients of a gateway, each with its own connection. Returns once all of them have sent their request.
    pub(crate) fn add_clients(&mut self, gateway: &Gateway, target: &str, clients: usize) {
        self.add_clients_with(gateway, target, clients, "");
    }

    /// Adds clients that send these header lines, like [`add_clients`](Self::add_clients).
    pub(crate) fn add_clients_with(&mut self, gateway: &Gateway, target: &str, clients: usize, lines: &str) {
        let before = self.clients.len();
        for _ in 0..clients {
            let request = get(target, &format!("{lines}Connection: close\r\n"));
            let (address, sent) = (gateway.address, self.sent.clone());
            self.clients.push(self.runtime.spawn(exchange(address, request, sent)));
        }
        let all = before + clients;
        wait_for("all clients have sent their request", || {
            (self.sent.load(Ordering::SeqCst) >= all).then_some(())
        });
        // A connection that is not accepted yet could be served long after the render.
        wait_for("the gateway has accepted all connections", || {
            let connections = gateway.metric("facetheory_gateway_connections")?;
            (connections >= f64::from(u32::try_from(clients).expect("a number"))).then_some(())
        });
    }

    /// Waits for all responses, and counts equal ones.
    pub(crate) fn responses(self) -> BTreeMap<ReceivedResponse, usize> {
        let mut all = JoinSet::new();
        let _entered = self.runtime.enter();
        for client in self.clients {
            all.spawn(client);
        }
        let mut counts = BTreeMap::new();
        for seen in self.runtime.block_on(all.join_all()) {
            *counts.entry(seen.expect("a client")).or_default() += 1;
        }
        counts
    }
}

async fn exchange(address: SocketAddr, request: String, sent: Arc<AtomicUsize>) -> ReceivedResponse {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        sent.fetch_add(1, Ordering::SeqCst);
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        std::io::Result::Ok(response)
    };
    // Twice the render timeout, so that a timeout of the gateway differs from a hanging gateway.
    match tokio::time::timeout(2 * RENDER, exchange).await {
        Ok(Ok(response)) => ReceivedResponse::of(&response),
        Ok(Err(error)) => ReceivedResponse { status: 0, state: String::new(), body: error.to_string() },
        Err(_) => ReceivedResponse { status: 0, state: String::new(), body: "no response".to_owned() },
    }
}

impl ReceivedResponse {
    fn of(response: &str) -> ReceivedResponse {
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((response, ""));
        let state = head.lines().find_map(|line| line.strip_prefix("x-facetheory-isr: "));
        ReceivedResponse {
            status: head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0),
            state: state.unwrap_or_default().to_owned(),
            body: body.to_owned(),
        }
    }
}

/// Fails unless all responses are this page. Returns the number of responses by state, as text.
pub(crate) fn assert_all_served(
    counts: &BTreeMap<ReceivedResponse, usize>,
    page: &str,
    clients: usize,
) -> String {
    let given = counts.iter().filter(|(seen, _)| seen.status == 200 && seen.body == page);
    assert_eq!(given.clone().map(|(_, count)| count).sum::<usize>(), clients, "{counts:?}");
    given.map(|(seen, count)| format!("{count} {}", seen.state)).collect::<Vec<_>>().join(", ")
}

#[test]
fn two_thousand_clients_of_two_gateways_cost_the_origin_one_request() {
    assert_enough_files(2 * CLIENTS + OTHER_FILES);
    let seconds = RENDER.as_secs();
    let rule = format!("{{ isr = \"1h\", wait_timeout = \"{seconds}s\", render_timeout = \"{seconds}s\" }}");
    let pair = Pair::start(&format!(
        "[limits]\nconnections_per_address = {}\n[routes]\n\"/**\" = {rule}\n",
        2 * CLIENTS
    ));
    let gate = Gate::default();
    pair.origin.respond("/cold", ScriptedResponse::page(&[], "<p>one render</p>").after(&gate));
    let mut burst = Burst::new();
    burst.add_clients(&pair.one, "/cold", CLIENTS);
    burst.add_clients(&pair.other, "/cold", CLIENTS);
    gate.open();
    let counts = burst.responses();
    let states = assert_all_served(&counts, "<p>one render</p>", 2 * CLIENTS);
    let misses: usize = counts.iter().filter(|(seen, _)| seen.state == "miss").map(|(_, count)| count).sum();
    assert_eq!(misses, 1, "one request rendered the page: {states}");
    assert_eq!(pair.origin.requests().len(), 1, "the origin got one request");
    assert!(pair.store.locks().is_empty(), "the lease was released");
    print(&format!(
        "one uncached page, two gateways with {CLIENTS} clients each: 1 request at the origin; {states}"
    ));
}

/// Fails if the limit on open files is too low for this test.
fn assert_enough_files(needed: usize) {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a line");
    let limit = line.split_whitespace().next().expect("a limit");
    let is_enough = limit.parse::<usize>().map_or(limit == "unlimited", |limit| limit >= needed);
    assert!(is_enough, "only {limit} files may be open; run `ulimit -n {needed}` first");
}
