//! Two gateways that keep the same pages, in front of one origin.

use tempfile::TempDir;

use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::site::with_long_timeouts;
use crate::support::store::Store;

/// Two gateways on servers that keep the same pages. They end before their directories do.
pub(crate) struct Pair {
    /// One of them.
    pub(crate) one: Gateway,
    /// The other.
    pub(crate) other: Gateway,
    /// The origin behind both.
    pub(crate) origin: Origin,
    /// Where both keep their pages.
    pub(crate) store: Store,
    _directories: [TempDir; 2],
}

impl Pair {
    /// Starts both with the same configuration, which [is patient](patient).
    pub(crate) fn start(config: &str) -> Pair {
        let (store, origin) = (Store::on_servers(), Origin::start());
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let config = with_long_timeouts(config);
        let [one, other] = directories
            .each_ref()
            .map(|directory| Gateway::start_on(&store, directory.path(), origin.address, &config));
        Pair { one, other, origin, store, _directories: directories }
    }
}
