//! Renders that take longer than their lease, in a running and in a frozen process.

use libtest_mimic::Failed;
use tabletheory::{Clock as _, SystemClock};

use crate::child_protocol::{Burst, Row};
use crate::process::{Process, SHORT_LEASE, release, renders, table_calls, wait_until};
use crate::stores::Stores;

/// Renders wait until this file exists.
const RELEASED: &str = "released";

/// The render ends long after its first lease would have expired; the lease is refreshed meanwhile.
pub(crate) fn without_freeze(stores: &Stores) -> Result<(), Failed> {
    let (mut slow, mut other) = (Process::with_short_leases(stores)?, Process::with_short_leases(stores)?);
    let by = slow.name();
    slow.start_burst(&Burst { until: Some(RELEASED.to_owned()), ..Burst::of("page", 1) })?;
    let first = held(&mut other)?;
    wait_until("the end of its first lease", || Ok(SystemClock.now().seconds() > first))?;
    // A request in another process waits for the render, too, once its lookup has found the lease.
    let calls = table_calls(stores, &other);
    other.start_burst(&Burst::of("page", 1))?;
    wait_until("the lookup of the other process", || Ok(table_calls(stores, &other) > calls))?;
    release(stores, RELEASED)?;
    slow.responses()?.expect(&[("miss", &by, 1)])?;
    other.responses()?.expect(&[("wait-hit", &by, 1)])?;
    is_published_once(&mut other, &by)?;
    rendered(stores, 1)?;
    print(&format!(
        "a render longer than its lease of {SHORT_LEASE:?} was published; another process waited for it"
    ));
    slow.shut_down()?;
    other.shut_down()
}

/// A process is frozen during a render, and continues it after its lease has expired.
pub(crate) fn during_render(stores: &Stores) -> Result<(), Failed> {
    let (mut frozen, mut other) = freeze(stores)?;
    let by = other.name();
    frozen.signal("-CONT")?;
    frozen.responses()?.expect(&[("hit", &by, 1)])?;
    is_published_once(&mut other, &by)?;
    rendered(stores, 2)?;
    print("a frozen process lost its lease: its client got the page of the process that took over");
    frozen.shut_down()?;
    other.shut_down()
}

/// A process is frozen during a render, which is finished when the process continues.
pub(crate) fn until_render_ends(stores: &Stores) -> Result<(), Failed> {
    let (mut frozen, mut other) = freeze(stores)?;
    let (late, by) = (frozen.name(), other.name());
    release(stores, RELEASED)?;
    frozen.signal("-CONT")?;
    let responses = frozen.responses()?;
    // Either the render or the heartbeat notices the lost lease first; the client gets a page in both cases.
    if responses.expect(&[("bypass", &late, 1)]).is_err() {
        responses.expect(&[("hit", &by, 1)])?;
    }
    is_published_once(&mut other, &by)?;
    rendered(stores, 2)?;
    let states: Vec<_> = responses.counts.keys().map(|(state, _)| state.as_str()).collect();
    print(&format!(
        "a render that ended after a freeze was not published; its client got: {}",
        states.join(", ")
    ));
    frozen.shut_down()?;
    other.shut_down()
}

/// Freezes a process during its render, until another one has taken over and published.
fn freeze(stores: &Stores) -> Result<(Process, Process), Failed> {
    let (mut frozen, mut other) = (Process::with_short_leases(stores)?, Process::with_short_leases(stores)?);
    let by = other.name();
    frozen.start_burst(&Burst { until: Some(RELEASED.to_owned()), ..Burst::of("page", 1) })?;
    let first = held(&mut other)?;
    // Right after a refresh of its lease it is not writing, which would lock a SQLite file.
    wait_until("a refreshed lease", || Ok(held(&mut other)? > first))?;
    frozen.signal("-STOP")?;
    other.request(&Burst::of("page", 1))?.expect(&[("miss", &by, 1)])?;
    is_published_once(&mut other, &by)?;
    Ok((frozen, other))
}

/// Waits until a process holds the lease, and returns when it expires.
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
    let expected = Row { version: 1, held_until: 0, rendered_by: by.to_owned() };
    if row == expected { Ok(()) } else { Err(format!("{row:?} instead of {expected:?}").into()) }
}

fn rendered(stores: &Stores, times: usize) -> Result<(), Failed> {
    let renders = renders(stores);
    if renders == times { Ok(()) } else { Err(format!("{renders} renders instead of {times}").into()) }
}

#[expect(clippy::print_stdout, reason = "the observations show what the run covered")]
fn print(what: &str) {
    println!("{what}");
}
