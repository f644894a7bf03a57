//! Renders that take longer than their lease, in a process that goes on and in one that is frozen.

use libtest_mimic::Failed;
use tabletheory::{Clock as _, SystemClock};

use crate::order::{Row, Visits};
use crate::place::Place;
use crate::process::{Process, SHORT_LEASE, release, renders, wait_until};

/// The file for which renders wait, where they do.
const RELEASED: &str = "released";

/// The render ends long after the end of its first lease, which is prolonged while it goes on.
pub(crate) fn not_at_all(place: &Place) -> Result<(), Failed> {
    let (mut slow, mut other) = (Process::with_short_leases(place)?, Process::with_short_leases(place)?);
    let by = slow.name();
    slow.begin(&Visits { until: Some(RELEASED.to_owned()), ..Visits::of("page", 1) })?;
    let first = held(&mut other)?;
    wait_until("the end of its first lease", || Ok(SystemClock.now().seconds() > first))?;
    // A visitor of another process waits for it, too.
    other.begin(&Visits::of("page", 1))?;
    release(place, RELEASED)?;
    slow.tally()?.expect(&[("miss", &by, 1)])?;
    other.tally()?.expect(&[("wait-hit", &by, 1)])?;
    is_published_once(&mut other, &by)?;
    rendered(place, 1)?;
    tell(&format!(
        "a render longer than its lease of {SHORT_LEASE:?} was published, and another process waited"
    ));
    slow.end()?;
    other.end()
}

/// A process is frozen in the middle of its render, and its render goes on with it.
pub(crate) fn past_the_lease(place: &Place) -> Result<(), Failed> {
    let (mut frozen, mut other) = freeze(place)?;
    let by = other.name();
    frozen.signal("-CONT")?;
    frozen.tally()?.expect(&[("hit", &by, 1)])?;
    is_published_once(&mut other, &by)?;
    rendered(place, 2)?;
    tell("a frozen process has lost its lease: its visitor was given the page of the one that took over");
    frozen.end()?;
    other.end()
}

/// A process is frozen in the middle of its render, which is at its end when it goes on.
pub(crate) fn at_the_end(place: &Place) -> Result<(), Failed> {
    let (mut frozen, mut other) = freeze(place)?;
    let (late, by) = (frozen.name(), other.name());
    release(place, RELEASED)?;
    frozen.signal("-CONT")?;
    let tally = frozen.tally()?;
    // Whether the render or the heartbeat notices first is left to chance; the visitor is given a page either way.
    if tally.expect(&[("bypass", &late, 1)]).is_err() {
        tally.expect(&[("hit", &by, 1)])?;
    }
    is_published_once(&mut other, &by)?;
    rendered(place, 2)?;
    let given: Vec<_> = tally.answers.keys().map(|(state, _)| state.as_str()).collect();
    tell(&format!("a render that ended after a freeze was not published; its visitor: {}", given.join(", ")));
    frozen.end()?;
    other.end()
}

/// Freezes a process in the middle of its render, until another has taken over and published.
fn freeze(place: &Place) -> Result<(Process, Process), Failed> {
    let (mut frozen, mut other) = (Process::with_short_leases(place)?, Process::with_short_leases(place)?);
    let by = other.name();
    frozen.begin(&Visits { until: Some(RELEASED.to_owned()), ..Visits::of("page", 1) })?;
    let first = held(&mut other)?;
    // It has just prolonged its lease, and so is not in the middle of a write, which would lock an SQLite file.
    wait_until("a prolonged lease", || Ok(held(&mut other)? > first))?;
    frozen.signal("-STOP")?;
    other.visit(&Visits::of("page", 1))?.expect(&[("miss", &by, 1)])?;
    is_published_once(&mut other, &by)?;
    Ok((frozen, other))
}

/// Until when the lease is held, once somebody holds it.
fn held(observer: &mut Process) -> Result<i64, Failed> {
    let mut row = Row::default();
    wait_until("a lease", || {
        row = observer.row("page")?;
        Ok(row.held_until > 0)
    })?;
    Ok(row.held_until)
}

fn is_published_once(observer: &mut Process, by: &str) -> Result<(), Failed> {
    let row = observer.row("page")?;
    let expected = Row { version: 1, held_until: 0, by: by.to_owned() };
    if row == expected { Ok(()) } else { Err(format!("{row:?} instead of {expected:?}").into()) }
}

fn rendered(place: &Place, times: usize) -> Result<(), Failed> {
    let renders = renders(place);
    if renders == times { Ok(()) } else { Err(format!("{renders} renders instead of {times}").into()) }
}

#[expect(clippy::print_stdout, reason = "what was seen is the point of the run")]
fn tell(what: &str) {
    println!("{what}");
}
