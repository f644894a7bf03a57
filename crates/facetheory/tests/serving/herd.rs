//! Many clients of a page that cannot be served as usual: they cost one render per process.

use libtest_mimic::Failed;

use crate::child_protocol::Burst;
use crate::outage::Proxies;
use crate::process::{Process, release, renders, wait_until};
use crate::stores::Stores;

/// Renders wait until this file exists.
const RELEASED: &str = "released";
const CLIENTS: usize = 300;

fn burst(clients: usize) -> Burst {
    Burst { until: Some(RELEASED.to_owned()), ..Burst::of("page", clients) }
}

/// The process that holds the lease is killed. Another one takes over once the lease has expired.
pub(crate) fn after_the_holder_was_killed(stores: &Stores) -> Result<(), Failed> {
    let (mut killed, mut other) = (Process::start(stores)?, Process::start(stores)?);
    killed.start_burst(&burst(1))?;
    wait_until("the render of the first process", || Ok(renders(stores) == 1))?;
    drop(killed);
    other.start_burst(&burst(CLIENTS))?;
    wait_until("the render of the other process", || Ok(renders(stores) == 2))?;
    release(stores, RELEASED)?;
    let by = other.name();
    other.responses()?.expect(&[("miss", &by, 1), ("wait-hit", &by, CLIENTS - 1)])?;
    if renders(stores) != 2 {
        return Err(format!("{} renders", renders(stores)).into());
    }
    other.shut_down()
}

/// Bodies can be read, but not stored. The clients that wait share the render that could not be published.
///
/// With one thread, every client waits for the render before it begins. A client that comes after it would share it, or
/// another one, for a second at most, and one client a second tries to publish again: tests of the engine have both.
pub(crate) fn while_puts_are_denied() -> Result<(), Failed> {
    let mut stores = Stores::on_servers()?;
    stores.run("create-table")?;
    let proxies = Proxies::in_front_of(&mut stores)?;
    proxies.bodies.deny_puts();
    let mut process = Process::on_one_thread(&stores)?;
    process.start_burst(&burst(CLIENTS))?;
    wait_until("a render", || Ok(renders(&stores) == 1))?;
    release(&stores, RELEASED)?;
    let by = process.name();
    process.responses()?.expect(&[("bypass", &by, CLIENTS)])?;
    if renders(&stores) != 1 {
        return Err(format!("{} renders for {CLIENTS} clients", renders(&stores)).into());
    }
    process.shut_down()
}
