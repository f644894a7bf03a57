//! Outages: what is in memory is served, what is not is passed through, and nobody thunders in the end.

use std::time::Duration;

use libtest_mimic::Failed;
use tabletheory::{Clock as _, SystemClock};

use crate::order::{Tally, Visits};
use crate::place::Place;
use crate::process::{PATIENCE, Process, SHORT_LIMIT, renders, wait_until};
use crate::proxy::{Cut, Proxy};

/// How long an outage is, unless `FACETHEORY_OUTAGE_SECONDS` says otherwise.
const SECONDS: u64 = 5;
/// So many pages are in memory when it begins, and so many are not.
const PAGES: usize = 5;
/// So many visitors each page has at a time while it lasts.
const VISITORS: usize = 100;
/// So many once it is over.
const CROWD: usize = 1_000;
/// Pages are fresh again this soon after it.
const INTERVAL: Duration = Duration::from_secs(60);
/// So often is a store read for each page once the outage is over, until all are fresh again. What it says is believed
/// for a second, so that each second more may be one read more.
const MOST_READS: usize = 8;
/// Between two rounds of visitors.
const PAUSE: Duration = Duration::from_millis(100);
const UNREACHABLE: &str = "the store cannot be reached";

/// Why servers are away.
pub(crate) trait Cause {
    fn takes_the_table(&self) -> bool;

    fn takes_the_bodies(&self) -> bool;

    /// Whether the table has lost its rows in the end.
    fn loses_rows(&self) -> bool;

    fn begin(&mut self, proxies: &mut Proxies) -> Result<(), Failed>;

    /// Everything is there again, and there is a table at this place.
    fn end(&mut self, place: &Place, proxies: &mut Proxies) -> Result<(), Failed>;
}

/// The outage of servers that others use at the same time: what is in front of them is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) table: Option<Cut>,
    pub(crate) bodies: Option<Cut>,
}

impl Cause for Outage {
    fn takes_the_table(&self) -> bool {
        self.table.is_some()
    }

    fn takes_the_bodies(&self) -> bool {
        self.bodies.is_some()
    }

    fn loses_rows(&self) -> bool {
        false
    }

    fn begin(&mut self, proxies: &mut Proxies) -> Result<(), Failed> {
        self.table.map_or(Ok(()), |how| proxies.table.cut(how))?;
        self.bodies.map_or(Ok(()), |how| proxies.bodies.cut(how))
    }

    fn end(&mut self, _: &Place, proxies: &mut Proxies) -> Result<(), Failed> {
        proxies.table.mend()?;
        proxies.bodies.mend()
    }
}

pub(crate) fn happens(name: &str, mut place: Place, mut cause: impl Cause) -> Result<(), Failed> {
    let seconds = std::env::var("FACETHEORY_OUTAGE_SECONDS").map_or(Ok(SECONDS), |text| text.parse())?;
    place.run("make")?;
    warm_up(&place)?;
    // What another process has rendered is in the stores, and not in the memory of this one.
    let mut other = Process::start(&place)?;
    other.visit(&pages("uncached", 1))?.expect(&[("miss", &other.name(), PAGES)])?;
    other.end()?;

    let mut proxies = Proxies::in_front_of(&mut place)?;
    let mut process = Process::start_without(&place, cause.takes_the_table(), cause.takes_the_bodies())?;
    // They are stale long before the outage is over. A server that is slow just now is not waited for, and what was
    // passed through is not in memory.
    wait_until("pages in memory", || {
        let tally = process.visit(&Visits { interval: 1, ..pages("cached", 1) })?;
        Ok(tally.is_all(&["miss", "hit", "stale"]))
    })?;
    let before = renders(&place);
    cause.begin(&mut proxies)?;
    let during = last(&mut process, cause.takes_the_table(), Duration::from_secs(seconds))?;
    let rendered = renders(&place) - before;
    cause.end(&place, &mut proxies)?;
    let _ = proxies.reads();
    let before = renders(&place);
    let end = SystemClock.now();
    let mut crowd = Tally::default();
    for name in ["cached", "uncached"] {
        wait_until("a fresh page", || {
            let tally = process.visit(&pages(name, CROWD))?;
            let fresh = tally.is_all(&["hit"]);
            let mut served = vec!["hit", "stale", "wait-hit", "stale-metadata-error"];
            // Where there are no rows, a page has to be rendered like one that never was.
            served.extend(cause.loses_rows().then_some("miss"));
            if name == "cached" && !tally.is_all(&served) {
                return Err(format!("after it was over visitors were given {:?}", tally.answers).into());
            }
            crowd.add(tally);
            Ok(fresh)
        })?;
    }
    let took = Duration::from_millis(u64::try_from((SystemClock.now().millis() - end.millis()).max(0))?);
    if took > INTERVAL {
        return Err(format!("pages were fresh again after {took:?}").into());
    }
    let (reads, gets) = proxies.reads();
    let most_reads = 2 * PAGES * MOST_READS + PAGES * usize::try_from(took.as_secs())?;
    let to_render = if cause.loses_rows() { 2 * PAGES } else { PAGES };
    // What was rendered is lost only where a store was waited for in vain, on a machine that is slow.
    let most_renders = to_render * (1 + usize::try_from(took.as_secs() / SHORT_LIMIT.as_secs())?);
    let again = renders(&place) - before;
    if reads.max(gets) > most_reads || again > most_renders {
        let what = format!("{reads} + {gets} reads and {again} renders within {took:?} after it was over");
        return Err(what.into());
    }
    tell(&format!(
        "{name} for {seconds} s: {}; {rendered} renders meanwhile; fresh again after {took:?} with {again} renders; \
         then {} visitors of {} pages, {reads} reads of the table and {gets} of bodies",
        summary(&during),
        crowd.answers.values().sum::<usize>(),
        2 * PAGES,
    ));
    process.end()
}

/// Returns once servers that have just been started answer like those that have run for a while: whoever asks first
/// waits for seconds, which is longer than a store is waited for.
pub(crate) fn warm_up(place: &Place) -> Result<(), Failed> {
    // A process of its own, since it may have found the servers too slow, and would remember it.
    let mut first = Process::start(place)?;
    let pages = pages("warming-up", 1);
    wait_until("a server that is warm", || Ok(first.visit(&pages)?.is_all(&["hit"])))?;
    first.end()
}

/// Visitors come for as long as it lasts, and until it was noticed. None is given an error.
fn last(process: &mut Process, without_table: bool, time: Duration) -> Result<Tally, Failed> {
    let by = process.name();
    let end = SystemClock.now() + time;
    let (mut during, mut noticed) = (Tally::default(), !without_table);
    while SystemClock.now() < end || !noticed {
        let cached = process.visit(&pages("cached", VISITORS))?;
        if !without_table {
            // Whether a page is fresh or not can be told; it just cannot be renewed.
            allow(&cached, &["hit", "stale"])?;
        } else if noticed {
            cached.expect(&[("stale-metadata-error", &by, PAGES * VISITORS)])?;
        } else {
            // What the table said is believed for a second.
            allow(&cached, &["hit", "stale", "stale-metadata-error"])?;
            noticed = cached.is_all(&["stale-metadata-error"]);
        }
        during.add(cached);
        let uncached = process.visit(&pages("uncached", VISITORS))?;
        uncached.expect(&[("bypass", UNREACHABLE, PAGES * VISITORS)])?;
        during.add(uncached);
        if SystemClock.now() > end + PATIENCE {
            return Err("that the table is away was never noticed".into());
        }
        std::thread::sleep(PAUSE);
    }
    // What cannot be kept is rendered for a visitor alone, here or by itself.
    let missing = process.visit(&Visits::of("missing", 1))?;
    allow(&missing, &["bypass"])?;
    during.add(missing);
    Ok(during)
}

fn allow(tally: &Tally, states: &[&str]) -> Result<(), Failed> {
    if tally.is_all(states) { Ok(()) } else { Err(format!("visitors were given {:?}", tally.answers).into()) }
}

fn pages(name: &str, each: usize) -> Visits {
    Visits { pages: PAGES, ..Visits::of(name, each) }
}

fn summary(tally: &Tally) -> String {
    let answers = tally.answers.iter().map(|((state, text), count)| match state.as_str() {
        "bypass" => format!("{count} {state} ({text})"),
        _ => format!("{count} {state}"),
    });
    format!("{}, the slowest after {} ms", answers.collect::<Vec<_>>().join(", "), tally.slowest)
}

/// What stands in front of the servers: it counts, and can be cut.
pub(crate) struct Proxies {
    table: Proxy,
    bodies: Proxy,
}

impl Proxies {
    /// Puts proxies between the processes of a place and its servers.
    fn in_front_of(place: &mut Place) -> Result<Proxies, Failed> {
        let mut proxy = |name: &str| {
            let endpoint = place.environment.iter_mut().find(|(other, _)| *other == name);
            let (_, endpoint) = endpoint.ok_or("the place has no such server")?;
            let proxy = Proxy::start(endpoint)?;
            *endpoint = proxy.endpoint();
            Ok::<_, Failed>(proxy)
        };
        Ok(Proxies { table: proxy("AWS_ENDPOINT_URL_DYNAMODB")?, bodies: proxy("AWS_ENDPOINT_URL_S3")? })
    }

    /// How often the table and the bodies were read since this was last called.
    fn reads(&self) -> (usize, usize) {
        let count = |proxy: &Proxy, reads: &[&str]| {
            proxy.take().iter().filter(|asked| reads.contains(&asked.as_str())).count()
        };
        (count(&self.table, &["Query", "GetItem", "BatchGetItem"]), count(&self.bodies, &["GET", "HEAD"]))
    }
}

#[expect(clippy::print_stdout, reason = "what was counted is the point of the run")]
fn tell(what: &str) {
    println!("{what}");
}
