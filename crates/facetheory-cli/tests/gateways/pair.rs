//! Two gateways with the same stores in front of one origin.

use tempfile::TempDir;

use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::site::with_long_timeouts;
use crate::support::store::Store;

/// Two gateways that share stores on servers. Declared before their directories, which are deleted after they have
/// stopped.
pub(crate) struct Pair {
    /// One gateway.
    pub(crate) one: Gateway,
    /// The other gateway.
    pub(crate) other: Gateway,
    /// The origin of both.
    pub(crate) origin: Origin,
    /// The stores of both.
    pub(crate) store: Store,
    _directories: [TempDir; 2],
}

impl Pair {
    /// Starts both with the same configuration and [long timeouts](with_long_timeouts).
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
