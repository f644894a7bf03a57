//! Everyone comes at once: one render, counted at the renderer, whatever the number of processes.

use libtest_mimic::Failed;

use crate::order::{Tally, Visits};
use crate::place::Place;
use crate::process::{Process, release, renders};

const PROCESSES: usize = 3;
/// So many visitors of each of them.
const VISITORS: usize = 2_000;
/// So many of one that is alone.
const VISITORS_OF_ONE: usize = 10_000;
/// The file for which renders wait.
const RELEASED: &str = "released";

pub(crate) fn in_one_process(place: &Place) -> Result<(), Failed> {
    missing(place, 1, VISITORS_OF_ONE)
}

pub(crate) fn of_a_missing_page(place: &Place) -> Result<(), Failed> {
    missing(place, PROCESSES, VISITORS)
}

/// The render ends once all visitors of all processes are on their way.
fn missing(place: &Place, processes: usize, each: usize) -> Result<(), Failed> {
    let mut processes = start(place, processes)?;
    Process::begin_all(&mut processes, &visits(each))?;
    release(place, RELEASED)?;
    let tally = tally(&mut processes)?;
    let row = processes[0].row("page")?;
    // Whose first look at the table was slow finds the page there.
    let found = tally.of("hit", &row.by);
    let waited = processes.len() * each - 1 - found;
    tally.expect(&[("miss", &row.by, 1), ("wait-hit", &row.by, waited), ("hit", &row.by, found)])?;
    once(row.version, renders(place))?;
    tell("missing", processes.len(), each, &tally);
    processes.into_iter().try_for_each(Process::end)
}

/// The render ends only after all visitors of all processes were served.
pub(crate) fn of_a_stale_page(place: &Place) -> Result<(), Failed> {
    let mut earlier = Process::start(place)?;
    let before = earlier.name();
    earlier.visit(&Visits { interval: 0, ..Visits::of("page", 1) })?.expect(&[("miss", &before, 1)])?;
    let mut processes = start(place, PROCESSES)?;
    Process::begin_all(&mut processes, &visits(VISITORS))?;
    let tally = tally(&mut processes)?;
    tally.expect(&[("stale", &before, PROCESSES * VISITORS)])?;
    if earlier.row("page")?.version != 1 {
        return Err("the render ended before it was released".into());
    }
    release(place, RELEASED)?;
    // They end once what goes on in the background has ended.
    processes.into_iter().try_for_each(Process::end)?;
    let row = earlier.row("page")?;
    if row.by == before {
        return Err("what was rendered was not published".into());
    }
    once(row.version - 1, renders(place) - 1)?;
    tell("stale", PROCESSES, VISITORS, &tally);
    earlier.end()
}

fn visits(each: usize) -> Visits {
    Visits { until: Some(RELEASED.to_owned()), ..Visits::of("page", each) }
}

fn start(place: &Place, processes: usize) -> Result<Vec<Process>, Failed> {
    let mut started = Vec::new();
    for _ in 0..processes {
        let mut process = Process::start(place)?;
        // It can reach its stores, so that all begin at once.
        process.row("page")?;
        started.push(process);
    }
    Ok(started)
}

fn tally(processes: &mut [Process]) -> Result<Tally, Failed> {
    let mut tally = Tally::default();
    for process in processes {
        tally.add(process.tally()?);
    }
    Ok(tally)
}

fn once(published: u64, rendered: usize) -> Result<(), Failed> {
    if (published, rendered) == (1, 1) {
        return Ok(());
    }
    Err(format!("rendered {rendered} times, published {published} times").into())
}

#[expect(clippy::print_stdout, reason = "what was counted is the point of the run")]
fn tell(page: &str, processes: usize, each: usize, tally: &Tally) {
    let states: Vec<_> = tally.answers.iter().map(|((state, _), count)| format!("{count} {state}")).collect();
    println!(
        "one {page} page, {processes} process(es) with {each} visitors each: 1 render; {}; the slowest took {} ms",
        states.join(", "),
        tally.slowest,
    );
}
