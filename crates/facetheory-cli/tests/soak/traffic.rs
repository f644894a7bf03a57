//! Everybody who comes: each asks again and again until it is over.

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

/// The pages that everybody asks for.
const HOT_PAGES: u64 = 50;
/// How many of each kind come to one gateway.
const HOT: usize = 8;
const HTTP2: usize = 2;
const COLD: usize = 4;
const POSTS: usize = 4;
const SOCKETS: usize = 2;
/// How many ask at once over one HTTP/2 connection.
const STREAMS: usize = 8;
/// How often is asked over one connection before it is closed.
const REQUESTS_PER_CONNECTION: usize = 200;
/// How often an operator wants something.
const INVALIDATION_INTERVAL: Duration = Duration::from_millis(200);
/// How often a page is asked for before the gateway should have it: the origin fails now and then, and a table that was just
/// started is slow.
const ATTEMPTS: usize = 1_000;
/// How long is waited before it is asked for again.
const PAUSE: Duration = Duration::from_millis(50);

/// The number of the next request; no two are alike.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Everybody, until it is over.
pub(crate) struct Traffic {
    over: CancellationToken,
    tasks: TaskTracker,
    runtime: tokio::runtime::Handle,
}

/// What a visitor needs to know.
#[derive(Clone)]
struct Target {
    site: SocketAddr,
    admin: SocketAddr,
    stats: Arc<Stats>,
    over: CancellationToken,
}

impl Traffic {
    /// Lets everybody come to these gateways.
    pub(crate) fn start(runtime: &Runtime, gateways: &[Gateway], stats: &Arc<Stats>) -> Traffic {
        let (over, tasks) = (CancellationToken::new(), TaskTracker::new());
        let _entered = runtime.enter();
        for gateway in gateways {
            let (site, admin) = (gateway.address, gateway.admin());
            let way = || Target { site, admin, stats: stats.clone(), over: over.clone() };
            for _ in 0..HOT {
                tasks.spawn(way().ask_for_hot_pages());
            }
            for _ in 0..HTTP2 {
                tasks.spawn(way().ask_over_http2());
            }
            for _ in 0..COLD {
                tasks.spawn(way().ask_for_cold_pages());
            }
            for _ in 0..POSTS {
                tasks.spawn(way().send_forms());
            }
            for _ in 0..SOCKETS {
                tasks.spawn(way().open_sockets());
            }
            tasks.spawn(way().invalidate());
        }
        tasks.close();
        Traffic { over, tasks, runtime: runtime.handle().clone() }
    }

    /// Returns once everybody has had an answer, and has gone.
    pub(crate) fn end(self) {
        self.over.cancel();
        self.runtime.block_on(self.tasks.wait());
    }
}

/// Has every gateway keep all hot pages.
pub(crate) fn warm_up(runtime: &Runtime, gateways: &[Gateway]) {
    for gateway in gateways {
        for number in 0..HOT_PAGES {
            let target = format!("/hot/{number}");
            let is_kept = (0..ATTEMPTS).any(|attempt| {
                runtime.block_on(async {
                    if attempt > 0 {
                        tokio::time::sleep(PAUSE).await;
                    }
                    let mut client = Client::connect(gateway.address).await.expect("a gateway");
                    client.get(&target).await.is_ok_and(|response| state(&response) == "hit")
                })
            });
            assert!(is_kept, "{target} cannot be had");
        }
    }
}

impl Target {
    async fn ask_for_hot_pages(self) {
        while !self.over.is_cancelled() {
            let Some(mut client) = self.connected(Kind::Hot, Client::connect(self.site).await) else {
                continue;
            };
            self.hot(Kind::Hot, &mut client).await;
        }
    }

    async fn ask_over_http2(self) {
        while !self.over.is_cancelled() {
            let connected = Client::connect_http2(self.site).await;
            let Some(client) = self.connected(Kind::Http2, connected) else { continue };
            let companions = (0..STREAMS).filter_map(|_| client.companion());
            let visits = companions.map(|mut companion| {
                let way = self.clone();
                async move { way.hot(Kind::Http2, &mut companion).await }
            });
            futures_util::future::join_all(visits).await;
        }
    }

    /// Hot pages are always there, whatever becomes of the origin and of the table.
    async fn hot(&self, kind: Kind, client: &mut Client) {
        for _ in 0..REQUESTS_PER_CONNECTION {
            if self.over.is_cancelled() {
                return;
            }
            let (target, began) = (format!("/hot/{}", next() % HOT_PAGES), Instant::now());
            match client.get(&target).await {
                Ok(response) if response.status() == 200 && is_of(&response, &target) => {
                    self.stats.count(kind, state(&response), began);
                }
                Ok(response) => {
                    self.stats.count(kind, response.status().as_str(), began);
                    self.stats.fault(format!("{target}: {}", told(&response)));
                }
                Err(error) => {
                    self.stats.count(kind, "no answer", began);
                    self.stats.fault(format!("{target}: {error}"));
                    return;
                }
            }
        }
    }

    async fn ask_for_cold_pages(self) {
        while !self.over.is_cancelled() {
            let Some(mut client) = self.connected(Kind::Cold, Client::connect(self.site).await) else {
                continue;
            };
            for _ in 0..REQUESTS_PER_CONNECTION {
                if self.over.is_cancelled() {
                    break;
                }
                let target = format!("/cold/{}", next());
                let asking = client.get(&target);
                if !self.uncertain(Kind::Cold, &target, asking, |response| is_of(response, &target)).await {
                    break;
                }
            }
        }
    }

    async fn send_forms(self) {
        /// The longest form.
        const LONGEST: usize = 64 * 1024;
        let form = Bytes::from(vec![b'x'; LONGEST]);
        while !self.over.is_cancelled() {
            let Some(mut client) = self.connected(Kind::Post, Client::connect(self.site).await) else {
                continue;
            };
            for _ in 0..REQUESTS_PER_CONNECTION {
                if self.over.is_cancelled() {
                    break;
                }
                let body = form.slice(..usize::try_from(next()).unwrap_or_default() * 1_021 % LONGEST);
                let asking = client.post("/pass/form", HOST, "text/plain", body.clone());
                // A gateway that could not pass a form on need not read it to its end, and hangs up.
                if !self
                    .uncertain(Kind::Post, "/pass/form", asking, |response| *response.body() == body)
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
            let began = Instant::now();
            match echo(self.site, "/pass/socket", &MESSAGES).await {
                Ok(status) => self.stats.count(Kind::Socket, &status.to_string(), began),
                Err(error) => {
                    self.stats.count(Kind::Socket, "no answer", began);
                    self.stats.fault(format!("a socket: {error}"));
                }
            }
        }
    }

    /// An operator makes pages stale, one by one and all together, and forbids others.
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
                let asking = operator.post("/api/v1/invalidate", &host, "application/json", wish.into());
                self.uncertain(Kind::Invalidate, "an invalidation", asking, |_| true).await;
            }
            if let Some(mut client) = self.connected(Kind::Hard, Client::connect(self.site).await) {
                self.uncertain(Kind::Hard, &hard, client.get(&hard), |response| is_of(response, &hard)).await;
            }
            tokio::time::sleep(INVALIDATION_INTERVAL).await;
        }
    }

    /// Counts an answer that may be an error of the origin or of the table, but nothing else. Whether it is what was asked
    /// for; if not, the connection may have ended with it.
    async fn uncertain(
        &self,
        kind: Kind,
        target: &str,
        asking: impl Future<Output = Result<Response<Bytes>, Error>>,
        is_right: impl Fn(&Response<Bytes>) -> bool,
    ) -> bool {
        let began = Instant::now();
        match asking.await {
            Ok(response) if response.status().is_server_error() => {
                self.stats.count(kind, response.status().as_str(), began);
            }
            Ok(response) if response.status() == 200 && is_right(&response) => {
                self.stats.count(kind, state(&response), began);
                return true;
            }
            Ok(response) => {
                self.stats.count(kind, "wrong", began);
                self.stats.fault(format!("{target}: {}", told(&response)));
            }
            Err(error) => {
                self.stats.count(kind, "no answer", began);
                self.stats.fault(format!("{target} of {}: {error}", self.site));
            }
        }
        false
    }

    /// A connection, which nobody is refused.
    fn connected(&self, kind: Kind, connected: Result<Client, Error>) -> Option<Client> {
        connected
            .inspect_err(|error| {
                self.stats.count(kind, "no connection", Instant::now());
                self.stats.fault(format!("{kind:?}: {error}"));
            })
            .ok()
    }
}

fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// How the visit ended, as far as the cache had a part in it.
fn state(response: &Response<Bytes>) -> &str {
    let state = response.headers().get("x-facetheory-isr").and_then(|state| state.to_str().ok());
    state.unwrap_or("no part of the cache")
}

/// How an answer came to be, in the cache's own words.
fn how(response: &Response<Bytes>) -> &str {
    let status = response.headers().get("cache-status").and_then(|status| status.to_str().ok());
    status.unwrap_or("no part of the cache")
}

/// Whether an answer is the page that was asked for.
fn is_of(response: &Response<Bytes>, target: &str) -> bool {
    response.body().starts_with(format!("<p>{target}, ").as_bytes())
}

fn told(response: &Response<Bytes>) -> String {
    /// As much as says what it is about.
    const MAX_SHOWN: usize = 100;
    let text = String::from_utf8_lossy(&response.body()[..response.body().len().min(MAX_SHOWN)]).into_owned();
    format!("{} ({}): {text}", response.status(), how(response))
}
