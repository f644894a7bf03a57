//! Many clients request one page at once: it is rendered once, whatever the number of processes.

use libtest_mimic::Failed;

use crate::child_protocol::{Burst, Responses};
use crate::process::{Process, release, renders};
use crate::stores::Stores;

const PROCESSES: usize = 3;
/// The number of clients of each of several processes.
const CLIENTS: usize = 2_000;
/// The number of clients of a single process.
const CLIENTS_OF_ONE: usize = 10_000;
/// Renders wait until this file exists.
const RELEASED: &str = "released";

pub(crate) fn in_one_process(stores: &Stores) -> Result<(), Failed> {
    missing(stores, 1, CLIENTS_OF_ONE)
}

pub(crate) fn of_a_missing_page(stores: &Stores) -> Result<(), Failed> {
    missing(stores, PROCESSES, CLIENTS)
}

/// The render ends once all requests of all processes have started.
fn missing(stores: &Stores, processes: usize, each: usize) -> Result<(), Failed> {
    let mut processes = start(stores, processes)?;
    Process::start_bursts(&mut processes, &burst(each))?;
    release(stores, RELEASED)?;
    let responses = responses(&mut processes)?;
    let row = processes[0].row("page")?;
    // A request whose lookup was slow finds the published page.
    let found = responses.of("hit", &row.rendered_by);
    let waited = processes.len() * each - 1 - found;
    let by = row.rendered_by.as_str();
    responses.expect(&[("miss", by, 1), ("wait-hit", by, waited), ("hit", by, found)])?;
    once(row.version, renders(stores))?;
    print("missing", processes.len(), each, &responses);
    processes.into_iter().try_for_each(Process::shut_down)
}

/// The render ends only after all clients of all processes were served.
pub(crate) fn of_a_stale_page(stores: &Stores) -> Result<(), Failed> {
    let mut earlier = Process::start(stores)?;
    let before = earlier.name();
    earlier.request(&Burst { interval: 0, ..Burst::of("page", 1) })?.expect(&[("miss", &before, 1)])?;
    let mut processes = start(stores, PROCESSES)?;
    Process::start_bursts(&mut processes, &burst(CLIENTS))?;
    let responses = responses(&mut processes)?;
    responses.expect(&[("stale", &before, PROCESSES * CLIENTS)])?;
    if earlier.row("page")?.version != 1 {
        return Err("the render ended before it was released".into());
    }
    release(stores, RELEASED)?;
    // They exit once their background work has finished.
    processes.into_iter().try_for_each(Process::shut_down)?;
    let row = earlier.row("page")?;
    if row.rendered_by == before {
        return Err("the render was not published".into());
    }
    once(row.version - 1, renders(stores) - 1)?;
    print("stale", PROCESSES, CLIENTS, &responses);
    earlier.shut_down()
}

fn burst(each: usize) -> Burst {
    Burst { until: Some(RELEASED.to_owned()), ..Burst::of("page", each) }
}

fn start(stores: &Stores, processes: usize) -> Result<Vec<Process>, Failed> {
    let mut started = Vec::new();
    for _ in 0..processes {
        let mut process = Process::start(stores)?;
        // Connects to its stores, so that all processes start the burst at once.
        process.row("page")?;
        started.push(process);
    }
    Ok(started)
}

fn responses(processes: &mut [Process]) -> Result<Responses, Failed> {
    let mut responses = Responses::default();
    for process in processes {
        responses.add(process.responses()?);
    }
    Ok(responses)
}

fn once(published: u64, rendered: usize) -> Result<(), Failed> {
    if (published, rendered) == (1, 1) {
        return Ok(());
    }
    Err(format!("rendered {rendered} times, published {published} times").into())
}

#[expect(clippy::print_stdout, reason = "the counts show what the run covered")]
fn print(page: &str, processes: usize, each: usize, responses: &Responses) {
    let states: Vec<_> =
        responses.counts.iter().map(|((state, _), count)| format!("{count} {state}")).collect();
    println!(
        "one {page} page, {processes} process(es) with {each} clients each: 1 render; {}; the slowest took {} ms",
        states.join(", "),
        responses.slowest,
    );
}
