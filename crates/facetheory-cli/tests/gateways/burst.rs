//! Everyone comes at once, to two gateways.

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

/// So many visitors each gateway has at the same time.
const CLIENTS: usize = 1_000;
/// How long a render may take, and be waited for: longer than so many visitors take to come.
const RENDER: Duration = Duration::from_secs(300);
/// The files that the test and its visitors have open besides.
const OTHER_FILES: usize = 200;

/// Visitors who have come, and wait.
pub(crate) struct Burst {
    runtime: tokio::runtime::Runtime,
    clients: Vec<JoinHandle<ReceivedResponse>>,
    asked: Arc<AtomicUsize>,
}

/// What a visitor was given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReceivedResponse {
    /// The status of the answer, or 0 if there was none.
    pub(crate) status: u16,
    /// How the visit ended: `miss`, `hit` and so on.
    pub(crate) state: String,
    /// The page, or what went wrong.
    pub(crate) body: String,
}

impl Burst {
    /// Nobody yet.
    pub(crate) fn new() -> Burst {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Burst { runtime: runtime.expect("a runtime"), clients: Vec::new(), asked: Arc::default() }
    }

    /// So many more visitors come to a gateway, each on a connection of its own. Returns once all of them have asked.
    pub(crate) fn come(&mut self, gateway: &Gateway, target: &str, clients: usize) {
        let before = self.clients.len();
        for _ in 0..clients {
            let (address, target, asked) = (gateway.address, target.to_owned(), self.asked.clone());
            self.clients.push(self.runtime.spawn(visit(address, target, asked)));
        }
        let all = before + clients;
        wait_for("all visitors have asked", || (self.asked.load(Ordering::SeqCst) >= all).then_some(()));
        // What a gateway has accepted it will look at; what waits before that could come long after the render.
        wait_for("the gateway has accepted all of them", || {
            let connections = gateway.metric("facetheory_gateway_connections")?;
            (connections >= f64::from(u32::try_from(clients).expect("a number"))).then_some(())
        });
    }

    /// How many were given what, once all of them were given something.
    pub(crate) fn seen(self) -> BTreeMap<ReceivedResponse, usize> {
        let mut all = JoinSet::new();
        let _entered = self.runtime.enter();
        for client in self.clients {
            all.spawn(client);
        }
        let mut tally = BTreeMap::new();
        for seen in self.runtime.block_on(all.join_all()) {
            *tally.entry(seen.expect("a visitor")).or_default() += 1;
        }
        tally
    }
}

async fn visit(address: SocketAddr, target: String, asked: Arc<AtomicUsize>) -> ReceivedResponse {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(get(&target, "Connection: close\r\n").as_bytes()).await?;
        asked.fetch_add(1, Ordering::SeqCst);
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        std::io::Result::Ok(response)
    };
    // It is twice as long as a render may take, so that a gateway that gives up is told from one that hangs.
    match tokio::time::timeout(2 * RENDER, exchange).await {
        Ok(Ok(response)) => ReceivedResponse::of(&response),
        Ok(Err(error)) => ReceivedResponse { status: 0, state: String::new(), body: error.to_string() },
        Err(_) => ReceivedResponse { status: 0, state: String::new(), body: "no answer".to_owned() },
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

/// Fails unless all of them were given this page; how many in which state, for people to read.
pub(crate) fn assert_all_served(
    tally: &BTreeMap<ReceivedResponse, usize>,
    page: &str,
    clients: usize,
) -> String {
    let given = tally.iter().filter(|(seen, _)| seen.status == 200 && seen.body == page);
    assert_eq!(given.clone().map(|(_, count)| count).sum::<usize>(), clients, "{tally:?}");
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
    burst.come(&pair.one, "/cold", CLIENTS);
    burst.come(&pair.other, "/cold", CLIENTS);
    gate.open();
    let tally = burst.seen();
    let states = assert_all_served(&tally, "<p>one render</p>", 2 * CLIENTS);
    let misses: usize = tally.iter().filter(|(seen, _)| seen.state == "miss").map(|(_, count)| count).sum();
    assert_eq!(misses, 1, "one visitor had it rendered: {states}");
    assert_eq!(pair.origin.requests().len(), 1, "the origin was asked once");
    assert!(pair.store.locks().is_empty(), "the lease was given back");
    print(&format!(
        "one cold page, two gateways with {CLIENTS} visitors each: 1 request at the origin; {states}"
    ));
}

/// The limit of the shell is left as it is, so a test says what it needs.
fn assert_enough_files(needed: usize) {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a line");
    let limit = line.split_whitespace().next().expect("a limit");
    let is_enough = limit.parse::<usize>().map_or(limit == "unlimited", |limit| limit >= needed);
    assert!(is_enough, "only {limit} files may be open; run `ulimit -n {needed}` first");
}
