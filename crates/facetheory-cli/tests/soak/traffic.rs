//! The load: each client sends requests until the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{Client, Error, echo};
use crate::stats::{Kind, Stats};
use crate::support::gateway::Gateway;
use crate::support::site::HOST;

/// The number of hot pages.
const HOT_PAGES: u64 = 50;
/// The number of clients of each kind per gateway.
const CLIENTS: Clients = Clients { hot: 8, http2: 2, cold: 4, posts: 4, sockets: 2 };
/// The number of concurrent streams per HTTP/2 connection.
const STREAMS: usize = 8;
/// The number of requests per connection.
const REQUESTS_PER_CONNECTION: usize = 200;
/// The interval between two invalidations.
const INVALIDATION_INTERVAL: Duration = Duration::from_millis(200);
/// The number of attempts to cache a page: the origin fails sometimes, and a table that was just started is slow.
const ATTEMPTS: usize = 1_000;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The unique number of the next request.
static NEXT: AtomicU64 = AtomicU64::new(0);

struct Clients {
    hot: usize,
    http2: usize,
    cold: usize,
    posts: usize,
    sockets: usize,
}

/// All clients, until the end.
pub(crate) struct Traffic {
    over: CancellationToken,
    tasks: TaskTracker,
    runtime: tokio::runtime::Handle,
}

/// The target of a client.
#[derive(Clone)]
struct Target {
    site: SocketAddr,
    admin: SocketAddr,
    stats: Arc<Stats>,
    over: CancellationToken,
}

impl Traffic {
    /// Starts the load on these gateways.
    pub(crate) fn start(runtime: &Runtime, gateways: &[Gateway], stats: &Arc<Stats>) -> Traffic {
        let (over, tasks) = (CancellationToken::new(), TaskTracker::new());
        let _entered = runtime.enter();
        for gateway in gateways {
            let (site, admin) = (gateway.address, gateway.admin());
            let way = || Target { site, admin, stats: stats.clone(), over: over.clone() };
            for _ in 0..CLIENTS.hot {
                tasks.spawn(way().request_hot_pages());
            }
            for _ in 0..CLIENTS.http2 {
                tasks.spawn(way().request_over_http2());
            }
            for _ in 0..CLIENTS.cold {
                tasks.spawn(way().request_cold_pages());
            }
            for _ in 0..CLIENTS.posts {
                tasks.spawn(way().send_forms());
            }
            for _ in 0..CLIENTS.sockets {
                tasks.spawn(way().open_sockets());
            }
            tasks.spawn(way().invalidate());
        }
        tasks.close();
        Traffic { over, tasks, runtime: runtime.handle().clone() }
    }

    /// Stops the load, and waits for all responses.
    pub(crate) fn end(self) {
        self.over.cancel();
        self.runtime.block_on(self.tasks.wait());
    }
}

/// Caches all hot pages in every gateway.
pub(crate) fn warm_up(runtime: &Runtime, gateways: &[Gateway]) {
    for gateway in gateways {
        for number in 0..HOT_PAGES {
            let target = format!("/hot/{number}");
            let is_cached = (0..ATTEMPTS).any(|attempt| {
                runtime.block_on(async {
                    if attempt > 0 {
                        tokio::time::sleep(PAUSE).await;
                    }
                    let mut client = Client::connect(gateway.address).await.expect("a gateway");
                    client.get(&target).await.is_ok_and(|response| state(&response) == "hit")
                })
            });
            assert!(is_cached, "{target} could not be cached");
        }
    }
}

impl Target {
    async fn request_hot_pages(self) {
        while !self.over.is_cancelled() {
            let Some(mut client) = self.connected(Kind::Hot, Client::connect(self.site).await) else {
                continue;
            };
            self.hot(Kind::Hot, &mut client).await;
        }
    }

    async fn request_over_http2(self) {
        while !self.over.is_cancelled() {
            let connected = Client::connect_http2(self.site).await;
            let Some(client) = self.connected(Kind::Http2, connected) else { continue };
            let companions = (0..STREAMS).filter_map(|_| client.companion());
            let requests = companions.map(|mut companion| {
                let way = self.clone();
                async move { way.hot(Kind::Http2, &mut companion).await }
            });
            futures_util::future::join_all(requests).await;
        }
    }

    /// Hot pages are always served, whatever happens to the origin and the table.
    async fn hot(&self, kind: Kind, client: &mut Client) {
        for _ in 0..REQUESTS_PER_CONNECTION {
            if self.over.is_cancelled() {
                return;
            }
            let (target, started) = (format!("/hot/{}", next() % HOT_PAGES), Instant::now());
            match client.get(&target).await {
                Ok(response) if response.status() == 200 && is_page(&response, &target) => {
                    self.stats.count(kind, state(&response), started);
                }
                Ok(response) => {
                    self.stats.count(kind, response.status().as_str(), started);
                    self.stats.unexpected(format!("{target}: {}", describe(&response)));
                }
                Err(error) => {
                    self.stats.count(kind, "no response", started);
                    self.stats.unexpected(format!("{target}: {error}"));
                    return;
                }
            }
        }
    }

    async fn request_cold_pages(self) {
        while let Some(mut client) = self.client(Kind::Cold).await {
            for _ in self.requests() {
                let target = format!("/cold/{}", next());
                let pending = client.get(&target);
                if !self.uncertain(Kind::Cold, &target, pending, |response| is_page(response, &target)).await
                {
                    break;
                }
            }
        }
    }

    async fn send_forms(self) {
        /// The length of the longest form.
        const LONGEST: usize = 64 * 1024;
        let form = Bytes::from(vec![b'x'; LONGEST]);
        while let Some(mut client) = self.client(Kind::Post).await {
            for _ in self.requests() {
                let body = form.slice(..usize::try_from(next()).unwrap_or_default() * 1_021 % LONGEST);
                let pending = client.post("/pass/form", HOST, "text/plain", body.clone());
                // A gateway that could not forward a form need not read it completely, and closes the connection.
                if !self
                    .uncertain(Kind::Post, "/pass/form", pending, |response| *response.body() == body)
                    .await
                {
                    break;
                }
            }
        }
    }

    async fn open_sockets(self) {
        const MESSAGES: [&[u8]; 4] = [b"one", b"and another", &[0; 5_000], b"the last"];
        while !self.over.is_cancelled() {
            let started = Instant::now();
            match echo(self.site, "/pass/socket", &MESSAGES).await {
                Ok(status) => self.stats.count(Kind::Socket, &status.to_string(), started),
                Err(error) => {
                    self.stats.count(Kind::Socket, "no response", started);
                    self.stats.unexpected(format!("a socket: {error}"));
                }
            }
        }
    }

    /// Invalidates pages softly, one by one and all together, and others hard.
    async fn invalidate(self) {
        let mut turn: u64 = 0;
        while !self.over.is_cancelled() {
            turn += 1;
            let hard = format!("/hard/{}", turn % HOT_PAGES);
            let wish = match turn % 50 {
                0 => r#"{ "path": "/hot" }"#.to_owned(),
                25 => r#"{ "tag": "hot" }"#.to_owned(),
                other if other % 10 == 5 => format!(r#"{{ "url": "http://{HOST}{hard}", "hard": true }}"#),
                other => format!(r#"{{ "url": "http://{HOST}/hot/{}" }}"#, other % HOT_PAGES),
            };
            if let Some(mut operator) = self.connected(Kind::Invalidate, Client::connect(self.admin).await) {
                let host = self.admin.to_string();
                let pending = operator.post("/api/v1/invalidate", &host, "application/json", wish.into());
                self.uncertain(Kind::Invalidate, "an invalidation", pending, |_| true).await;
            }
            if let Some(mut client) = self.connected(Kind::Hard, Client::connect(self.site).await) {
                self.uncertain(Kind::Hard, &hard, client.get(&hard), |response| is_page(response, &hard))
                    .await;
            }
            tokio::time::sleep(INVALIDATION_INTERVAL).await;
        }
    }

    /// Counts a response that may be an error of the origin or the table, but nothing else. Returns whether it is the
    /// expected one; if not, the connection may be closed.
    async fn uncertain(
        &self,
        kind: Kind,
        target: &str,
        pending: impl Future<Output = Result<Response<Bytes>, Error>>,
        is_right: impl Fn(&Response<Bytes>) -> bool,
    ) -> bool {
        let started = Instant::now();
        match pending.await {
            Ok(response) if response.status().is_server_error() => {
                self.stats.count(kind, response.status().as_str(), started);
            }
            Ok(response) if response.status() == 200 && is_right(&response) => {
                self.stats.count(kind, state(&response), started);
                return true;
            }
            Ok(response) => {
                self.stats.count(kind, "wrong", started);
                self.stats.unexpected(format!("{target}: {}", describe(&response)));
            }
            Err(error) => {
                self.stats.count(kind, "no response", started);
                self.stats.unexpected(format!("{target} of {}: {error}", self.site));
            }
        }
        false
    }

    /// The next connection; `None` when the load is over.
    async fn client(&self, kind: Kind) -> Option<Client> {
        while !self.over.is_cancelled() {
            if let Some(client) = self.connected(kind, Client::connect(self.site).await) {
                return Some(client);
            }
        }
        None
    }

    /// The requests of one connection, until the load is over.
    fn requests(&self) -> impl Iterator<Item = usize> {
        (0..REQUESTS_PER_CONNECTION).take_while(|_| !self.over.is_cancelled())
    }

    /// Connects; every connection must be accepted.
    fn connected(&self, kind: Kind, connected: Result<Client, Error>) -> Option<Client> {
        connected
            .inspect_err(|error| {
                self.stats.count(kind, "no connection", Instant::now());
                self.stats.unexpected(format!("{kind:?}: {error}"));
            })
            .ok()
    }
}

fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The cache state of a response.
fn state(response: &Response<Bytes>) -> &str {
    let state = response.headers().get("x-facetheory-isr").and_then(|state| state.to_str().ok());
    state.unwrap_or("not from the cache")
}

/// The `Cache-Status` of a response.
fn cache_status(response: &Response<Bytes>) -> &str {
    let status = response.headers().get("cache-status").and_then(|status| status.to_str().ok());
    status.unwrap_or("not from the cache")
}

/// Whether a response is the requested page.
fn is_page(response: &Response<Bytes>, target: &str) -> bool {
    response.body().starts_with(format!("<p>{target}, ").as_bytes())
}

fn describe(response: &Response<Bytes>) -> String {
    /// A short description of a response.
    const MAX_SHOWN: usize = 100;
    let text = String::from_utf8_lossy(&response.body()[..response.body().len().min(MAX_SHOWN)]).into_owned();
    format!("{} ({}): {text}", response.status(), cache_status(response))
}
