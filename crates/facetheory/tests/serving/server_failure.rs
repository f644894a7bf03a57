//! Outages of servers that are really frozen or killed.
//!
//! They show effects that a proxy cannot simulate: responses that are late, a server that is not ready yet, and
//! one that has lost its data.

use libtest_mimic::Failed;

use crate::outage::{Outage, Proxies, run_outage, warm_up};
use crate::private_servers::{BODIES, Killed, PrivateServers, TABLE};
use crate::stores::Stores;

/// The servers that fail.
pub(crate) const CASES: [(&str, &[&str]); 3] =
    [("the_real_table", &[TABLE]), ("the_real_bodies", &[BODIES]), ("both_real_servers", &[TABLE, BODIES])];

/// Servers hang, as after `kill -STOP`, and later continue with the requests they received meanwhile. All cases use the
/// same servers, one after the other.
pub(crate) fn frozen() -> Result<(), Failed> {
    let servers = PrivateServers::start()?;
    for (what, failing) in CASES {
        let outage = FrozenServers { servers: &servers, failing };
        run_outage(&format!("{what} frozen"), servers.stores()?, outage)?;
    }
    Ok(())
}

/// Servers die, as after `kill -KILL`, and are started again. Bodies are in files and survive; the table is in memory,
/// so its rows are lost and it has to be created again.
pub(crate) fn killed(name: &str, failing: &[&'static str]) -> Result<(), Failed> {
    let servers = PrivateServers::start()?;
    run_outage(name, servers.stores()?, KilledServers { servers, failing, killed: vec![] })
}

struct FrozenServers<'a> {
    servers: &'a PrivateServers,
    failing: &'a [&'static str],
}

impl Outage for FrozenServers<'_> {
    fn affects(&self, server: &str) -> bool {
        self.failing.contains(&server)
    }

    fn loses_rows(&self) -> bool {
        false
    }

    fn start(&mut self, _: &mut Proxies) -> Result<(), Failed> {
        self.failing.iter().try_for_each(|name| self.servers.signal(name, "-STOP"))
    }

    fn end(&mut self, _: &Stores, _: &mut Proxies) -> Result<(), Failed> {
        self.failing.iter().try_for_each(|name| self.servers.signal(name, "-CONT"))
    }
}

struct KilledServers<'a> {
    servers: PrivateServers,
    failing: &'a [&'static str],
    killed: Vec<Killed>,
}

impl Outage for KilledServers<'_> {
    fn affects(&self, server: &str) -> bool {
        self.failing.contains(&server)
    }

    fn loses_rows(&self) -> bool {
        self.affects(TABLE)
    }

    fn start(&mut self, _: &mut Proxies) -> Result<(), Failed> {
        for name in self.failing {
            self.killed.push(self.servers.kill(name)?);
        }
        Ok(())
    }

    fn end(&mut self, stores: &Stores, _: &mut Proxies) -> Result<(), Failed> {
        self.servers.restart(std::mem::take(&mut self.killed))?;
        if self.loses_rows() {
            stores.run("create-table")?;
        }
        warm_up(stores)
    }
}
