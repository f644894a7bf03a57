//! Outages of real servers, which are frozen or killed in the middle of what they do.
//!
//! What is between them and the visitors only counts. So visitors meet what a proxy that is cut cannot show: requests
//! that are answered late, a server that has yet to become ready, and one that has lost what it knew.

use libtest_mimic::Failed;

use crate::installation::{BODIES, Installation, Killed, TABLE};
use crate::outage::{Cause, Proxies, happens, warm_up};
use crate::place::Place;

/// Which servers fail.
pub(crate) const CASES: [(&str, &[&str]); 3] =
    [("the_real_table", &[TABLE]), ("the_real_bodies", &[BODIES]), ("both_real_servers", &[TABLE, BODIES])];

/// Servers hang, as under `kill -STOP`, and go on with what they were asked meanwhile. All cases have the same servers,
/// one after the other.
pub(crate) fn by_being_frozen() -> Result<(), Failed> {
    let installation = Installation::start()?;
    for (what, servers) in CASES {
        let frozen = Frozen { installation: &installation, servers };
        happens(&format!("{what} frozen"), installation.place()?, frozen)?;
    }
    Ok(())
}

/// Servers are gone, as under `kill -KILL`, and are started again. Bodies are in files and stay; the table is in memory,
/// so its rows are lost and it has to be made anew.
pub(crate) fn by_being_killed(name: &str, servers: &[&'static str]) -> Result<(), Failed> {
    let installation = Installation::start()?;
    happens(name, installation.place()?, Dead { installation, servers, killed: vec![] })
}

struct Frozen<'a> {
    installation: &'a Installation,
    servers: &'a [&'static str],
}

impl Cause for Frozen<'_> {
    fn takes_the_table(&self) -> bool {
        self.servers.contains(&TABLE)
    }

    fn takes_the_bodies(&self) -> bool {
        self.servers.contains(&BODIES)
    }

    fn loses_rows(&self) -> bool {
        false
    }

    fn begin(&mut self, _: &mut Proxies) -> Result<(), Failed> {
        self.servers.iter().try_for_each(|name| self.installation.signal(name, "-STOP"))
    }

    fn end(&mut self, _: &Place, _: &mut Proxies) -> Result<(), Failed> {
        self.servers.iter().try_for_each(|name| self.installation.signal(name, "-CONT"))
    }
}

struct Dead<'a> {
    installation: Installation,
    servers: &'a [&'static str],
    killed: Vec<Killed>,
}

impl Cause for Dead<'_> {
    fn takes_the_table(&self) -> bool {
        self.servers.contains(&TABLE)
    }

    fn takes_the_bodies(&self) -> bool {
        self.servers.contains(&BODIES)
    }

    fn loses_rows(&self) -> bool {
        self.takes_the_table()
    }

    fn begin(&mut self, _: &mut Proxies) -> Result<(), Failed> {
        for name in self.servers {
            self.killed.push(self.installation.kill(name)?);
        }
        Ok(())
    }

    fn end(&mut self, place: &Place, _: &mut Proxies) -> Result<(), Failed> {
        self.installation.revive(std::mem::take(&mut self.killed))?;
        if self.loses_rows() {
            place.run("make")?;
        }
        warm_up(place)
    }
}
