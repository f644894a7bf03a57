//! The stores of a gateway: a directory, or servers.

use std::path::Path;

use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::site::{Site, with_long_timeouts};
use crate::support::store::Store;

/// Directives of clients count, as in a cache that follows RFC 9111 to the letter.
const OBEY: &str = "client_cache_control = \"obey\"\n";

/// A gateway on SQLite and files, with this configuration.
pub(crate) fn embedded(config: &str) -> Site {
    Site::start(&format!("{OBEY}{config}"))
}

/// A gateway on DynamoDB and S3, with this configuration and a new table.
pub(crate) fn on_servers(config: &str) -> Site {
    let directory = tempfile::tempdir().expect("a directory");
    let origin = Origin::start();
    let gateway = gateway_on(&Store::on_servers(), directory.path(), &origin, config);
    Site { gateway, origin, directory }
}

/// A gateway with this configuration and [long timeouts](with_long_timeouts), on stores and in front of an origin that others
/// may share.
pub(crate) fn gateway_on(store: &Store, directory: &Path, origin: &Origin, config: &str) -> Gateway {
    Gateway::start_on(store, directory, origin.address, &with_long_timeouts(&format!("{OBEY}{config}")))
}
