//! Outages: pages in memory are served, requests for other pages are passed through, and there is no stampede
//! afterwards.

use std::time::Duration;

use libtest_mimic::Failed;
use tabletheory::{Clock as _, SystemClock, Timestamp};

use crate::child_protocol::{Burst, Responses};
use crate::private_servers::{BODIES, TABLE};
use crate::process::{Process, TIMEOUT, renders, wait_until};
use crate::proxy::{Failure, Proxy};
use crate::stores::Stores;

/// The length of an outage, unless `FACETHEORY_OUTAGE_SECONDS` is set.
const SECONDS: u64 = 5;
/// The number of pages in memory when it starts, and of pages that are only in the stores.
const PAGES: usize = 5;
/// The number of concurrent clients per page during the outage.
const CLIENTS: usize = 100;
/// The number of concurrent clients per page after the outage.
const CLIENTS_AFTERWARDS: usize = 1_000;
/// Pages are fresh again at most this long after it.
const INTERVAL: Duration = Duration::from_secs(60);
/// The most reads of a store per page after the outage, until all pages are fresh. One more per second is allowed,
/// since metadata is used for a second.
const MAX_READS: usize = 8;
/// The most renders per page of a burst, or of the time after the outage: one that is published, one that is not, and
/// one of a regeneration that failed. One more per second is allowed, since a render is shared for a second.
const MAX_RENDERS: usize = 3;
/// The pause between two bursts.
const PAUSE: Duration = Duration::from_millis(100);

/// A way to make servers unreachable.
pub(crate) trait Outage {
    /// Whether the table, or the body store, is unreachable.
    fn affects(&self, server: &str) -> bool;

    /// Whether the table has lost its rows afterwards.
    fn loses_rows(&self) -> bool;

    fn start(&mut self, proxies: &mut Proxies) -> Result<(), Failed>;

    /// Makes all servers reachable again, with a table in these stores.
    fn end(&mut self, stores: &Stores, proxies: &mut Proxies) -> Result<(), Failed>;
}

/// Proxies simulate the failure of servers that other tests use at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyOutage {
    pub(crate) table: Option<Failure>,
    pub(crate) bodies: Option<Failure>,
}

impl Outage for ProxyOutage {
    fn affects(&self, server: &str) -> bool {
        if server == TABLE { self.table.is_some() } else { self.bodies.is_some() }
    }

    fn loses_rows(&self) -> bool {
        false
    }

    fn start(&mut self, proxies: &mut Proxies) -> Result<(), Failed> {
        self.table.map_or(Ok(()), |failure| proxies.table.fail(failure))?;
        self.bodies.map_or(Ok(()), |failure| proxies.bodies.fail(failure))
    }

    fn end(&mut self, _: &Stores, proxies: &mut Proxies) -> Result<(), Failed> {
        proxies.table.restore()?;
        proxies.bodies.restore()
    }
}

pub(crate) fn run_outage(name: &str, mut stores: Stores, mut outage: impl Outage) -> Result<(), Failed> {
    /// How long pages are fresh that are in memory when it starts.
    const FRESH_SECONDS: u64 = 3;
    let seconds = std::env::var("FACETHEORY_OUTAGE_SECONDS").map_or(Ok(SECONDS), |text| text.parse())?;
    stores.run("create-table")?;
    warm_up(&stores)?;
    // Pages rendered by another process are in the stores, but not in the memory of this one.
    let mut other = Process::start(&stores)?;
    other.request(&pages("uncached", 1))?.expect(&[("miss", &other.name(), PAGES)])?;
    other.shut_down()?;

    let mut proxies = Proxies::in_front_of(&mut stores)?;
    let mut process = Process::start_without(&stores, outage.affects(TABLE), outage.affects(BODIES))?;
    // These pages are stale before the outage is over. All of them are fresh when it starts, so none is being regenerated:
    // a version that is published during the outage would make the copy in memory an old one.
    wait_until("pages in memory", || {
        let responses = process.request(&Burst { interval: FRESH_SECONDS, ..pages("cached", 1) })?;
        Ok(responses.is_all(&["hit"]))
    })?;
    let before = renders(&stores);
    outage.start(&mut proxies)?;
    let during =
        send_requests_during(&stores, &mut process, outage.affects(TABLE), Duration::from_secs(seconds))?;
    let rendered = renders(&stores) - before;
    outage.end(&stores, &mut proxies)?;
    let _ = proxies.reads();
    let before = renders(&stores);
    let end = SystemClock.now();
    let mut afterwards = Responses::default();
    for name in ["cached", "uncached"] {
        wait_until("a fresh page", || {
            let responses = process.request(&pages(name, CLIENTS_AFTERWARDS))?;
            let fresh = responses.is_all(&["hit"]);
            let mut served = vec!["hit", "stale", "wait-hit", "stale-metadata-error"];
            // Without its row, a page is rendered like a new one. Until a store is noticed to be back, that is not published.
            if outage.loses_rows() {
                served.extend(["miss", "bypass"]);
            }
            if name == "cached" && !responses.is_all(&served) {
                return Err(format!("after the outage clients got {:?}", responses.counts).into());
            }
            afterwards.add(responses);
            Ok(fresh)
        })?;
    }
    let took = since(end)?;
    if took > INTERVAL {
        return Err(format!("pages were fresh again after {took:?}").into());
    }
    let (reads, gets) = proxies.reads();
    let max_reads = 2 * PAGES * MAX_READS + PAGES * usize::try_from(took.as_secs())?;
    let max_renders = max_renders(2 * PAGES, took)?;
    let again = renders(&stores) - before;
    if reads.max(gets) > max_reads || again > max_renders {
        let what = format!("{reads} + {gets} reads and {again} renders within {took:?} after the outage");
        return Err(what.into());
    }
    print(&format!(
        "{name} for {seconds} s: {}; {rendered} renders meanwhile; fresh again after {took:?} with {again} renders; \
         then {} requests for {} pages, {reads} reads of the table and {gets} of bodies",
        summary(&during),
        afterwards.counts.values().sum::<usize>(),
        2 * PAGES,
    ));
    process.shut_down()
}

/// Returns once newly started servers respond as fast as usual: their first responses take seconds, which is longer
/// than the timeout of a store.
pub(crate) fn warm_up(stores: &Stores) -> Result<(), Failed> {
    // A separate process, since its circuit breaker may open.
    let mut first = Process::start(stores)?;
    let pages = pages("warming-up", 1);
    wait_until("a warm server", || Ok(first.request(&pages)?.is_all(&["hit"])))?;
    first.shut_down()
}

/// Sends requests until the outage is over and was noticed. No client gets an error.
fn send_requests_during(
    stores: &Stores,
    process: &mut Process,
    without_table: bool,
    time: Duration,
) -> Result<Responses, Failed> {
    let by = process.name();
    let end = SystemClock.now() + time;
    let (mut during, mut noticed) = (Responses::default(), !without_table);
    while SystemClock.now() < end || !noticed {
        let cached = process.request(&pages("cached", CLIENTS))?;
        if !without_table {
            // Freshness is known, but a stale page cannot be regenerated.
            allow(&cached, &["hit", "stale"])?;
        } else if noticed {
            cached.expect(&[("stale-metadata-error", &by, PAGES * CLIENTS)])?;
        } else {
            // Metadata is used for a second.
            allow(&cached, &["hit", "stale", "stale-metadata-error"])?;
            noticed = cached.is_all(&["stale-metadata-error"]);
        }
        during.add(cached);
        // The clients of a page share one render, which is not published.
        let (before, start) = (renders(stores), SystemClock.now());
        let uncached = process.request(&pages("uncached", CLIENTS))?;
        uncached.expect(&[("bypass", &by, PAGES * CLIENTS)])?;
        // Pages in memory are regenerated as well.
        let (rendered, took) = (renders(stores) - before, since(start)?);
        if rendered > max_renders(2 * PAGES, took)? {
            return Err(format!(
                "{rendered} renders for {} clients of {PAGES} pages in {took:?}",
                PAGES * CLIENTS
            )
            .into());
        }
        during.add(uncached);
        if SystemClock.now() > end + TIMEOUT {
            return Err("the outage of the table was not noticed".into());
        }
        std::thread::sleep(PAUSE);
    }
    // A page that cannot be stored is rendered for this client alone.
    let missing = process.request(&Burst::of("missing", 1))?;
    allow(&missing, &["bypass"])?;
    during.add(missing);
    Ok(during)
}

fn max_renders(pages: usize, time: Duration) -> Result<usize, Failed> {
    Ok(pages * (MAX_RENDERS + usize::try_from(time.as_secs())?))
}

fn since(start: Timestamp) -> Result<Duration, Failed> {
    Ok(Duration::from_millis(u64::try_from((SystemClock.now().millis() - start.millis()).max(0))?))
}

fn allow(responses: &Responses, states: &[&str]) -> Result<(), Failed> {
    if responses.is_all(states) { Ok(()) } else { Err(format!("clients got {:?}", responses.counts).into()) }
}

fn pages(name: &str, each: usize) -> Burst {
    let mut burst = Burst::of(name, each);
    burst.pages.count = PAGES;
    burst
}

fn summary(responses: &Responses) -> String {
    let counts = responses.counts.iter().map(|((state, text), count)| match state.as_str() {
        "bypass" => format!("{count} {state} ({text})"),
        _ => format!("{count} {state}"),
    });
    format!("{}, the slowest after {} ms", counts.collect::<Vec<_>>().join(", "), responses.slowest)
}

/// The proxies in front of the servers.
pub(crate) struct Proxies {
    table: Proxy,
    pub(crate) bodies: Proxy,
}

impl Proxies {
    /// Puts proxies between the processes and the servers of these stores.
    pub(crate) fn in_front_of(stores: &mut Stores) -> Result<Proxies, Failed> {
        let mut proxy = |name: &str| {
            let endpoint = stores.environment.iter_mut().find(|(other, _)| *other == name);
            let (_, endpoint) = endpoint.ok_or("the stores have no such server")?;
            let proxy = Proxy::start(endpoint)?;
            *endpoint = proxy.endpoint();
            Ok::<_, Failed>(proxy)
        };
        Ok(Proxies { table: proxy("AWS_ENDPOINT_URL_DYNAMODB")?, bodies: proxy("AWS_ENDPOINT_URL_S3")? })
    }

    /// The reads of the table and of the bodies since the last call.
    fn reads(&self) -> (usize, usize) {
        let count = |proxy: &Proxy, reads: &[&str]| {
            proxy.take().iter().filter(|operation| reads.contains(&operation.as_str())).count()
        };
        (count(&self.table, &["Query", "GetItem", "BatchGetItem"]), count(&self.bodies, &["GET", "HEAD"]))
    }
}

#[expect(clippy::print_stdout, reason = "the counts show what the run covered")]
fn print(what: &str) {
    println!("{what}");
}
