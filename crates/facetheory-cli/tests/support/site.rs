//! A gateway in front of an origin of its own.

use tempfile::TempDir;

use super::client::Response;
use super::gateway::Gateway;
use super::origin::Origin;

/// The host of requests unless a test sets another one.
pub(crate) const HOST: &str = "www.example.com";

/// Arguments of a gateway with stores in memory, so that a test with many pages does not depend on the disk.
pub(crate) const IN_MEMORY: [&str; 4] = ["--table", "memory:", "--bodies", "memory:"];

/// Long timeouts, for tests that are not about slow stores, origins or clients: on a busy machine these may pause for seconds.
/// A test that expects a connection to be closed cannot pass because the connection was idle.
pub(crate) const LONG_TIMEOUTS: &str = "[timeouts]\ntable = \"20s\"\nbodies = \"1m\"\npublish = \"2m\"\nheaders = \"5m\"\nclient_headers = \"1h\"\nclient_idle = \"1h\"\n";

/// Adds long timeouts to a configuration. If it has timeouts of its own, only those of the stores are added, unless it
/// sets one of them.
pub(crate) fn with_long_timeouts(config: &str) -> String {
    const OWN: &str = "[timeouts]\n";
    if !config.contains(OWN) {
        return format!("{config}\n{LONG_TIMEOUTS}");
    }
    if config.contains("\ntable = ") || config.contains("\nbodies = ") {
        return config.to_owned();
    }
    config.replacen(OWN, &format!("{OWN}table = \"20s\"\nbodies = \"1m\"\npublish = \"2m\"\n"), 1)
}

/// A gateway in front of an origin, with a directory.
pub(crate) struct Site {
    /// The gateway. Declared first, since it must stop before its directory is deleted.
    pub(crate) gateway: Gateway,
    /// The origin behind it.
    pub(crate) origin: Origin,
    /// The directory of its pages and its configuration.
    pub(crate) directory: TempDir,
}

impl Site {
    /// Starts a gateway with this configuration and [long timeouts](with_long_timeouts).
    pub(crate) fn start(config: &str) -> Site {
        Site::start_with(config, &[])
    }

    /// Starts a gateway with this configuration, [long timeouts](with_long_timeouts) and these arguments.
    pub(crate) fn start_with(config: &str, arguments: &[&str]) -> Site {
        let directory = tempfile::tempdir().expect("a directory");
        let origin = Origin::start();
        let gateway =
            Gateway::start(directory.path(), origin.address, &with_long_timeouts(config), arguments);
        Site { gateway, origin, directory }
    }

    /// Replaces the configuration, with [long timeouts](with_long_timeouts), and makes the gateway reload it.
    pub(crate) fn reload(&self, config: &str) {
        std::fs::write(self.directory.path().join("facetheory.toml"), with_long_timeouts(config))
            .expect("a file");
        self.gateway.reload();
    }

    /// Sends a GET for a target.
    pub(crate) fn get(&self, target: &str) -> Response {
        self.get_with(target, "")
    }

    /// Sends a GET with additional header lines, each with its line break.
    pub(crate) fn get_with(&self, target: &str, lines: &str) -> Response {
        self.gateway.exchange(get(target, lines))
    }

    /// Sends a request with this method and additional header lines.
    pub(crate) fn request(&self, method: &str, target: &str, lines: &str) -> Response {
        let mut connection = self.gateway.connect();
        connection.send(request(method, target, lines));
        connection.next_response(method).expect("a response before the connection closes")
    }
}

/// A valid GET with additional header lines, each with its line break.
pub(crate) fn get(target: &str, lines: &str) -> String {
    request("GET", target, lines)
}

/// A valid request with this method and additional header lines, each with its line break.
pub(crate) fn request(method: &str, target: &str, lines: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n")
}
