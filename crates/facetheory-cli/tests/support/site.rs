//! A gateway in front of an origin of its own.

use tempfile::TempDir;

use super::client::Response;
use super::gateway::Gateway;
use super::origin::Origin;

/// The host that visitors ask for unless a test says otherwise.
pub(crate) const HOST: &str = "www.example.com";

/// The options of a gateway that keeps its pages in memory, where no disk decides how long a flood of them takes.
pub(crate) const IN_MEMORY: [&str; 4] = ["--table", "memory:", "--bodies", "memory:"];

/// The time that stores and origins have in stories that are not about slow ones: on a busy machine they may rest for
/// seconds, and are not gone.
pub(crate) const PATIENT: &str = "[timeouts]\ntable = \"20s\"\nbodies = \"1m\"\nheaders = \"5m\"\n";

/// This configuration, with time for stores and origins that rest. One with time-outs of its own says itself how long origins
/// may take, and stores unless it is silent about them.
pub(crate) fn patient(config: &str) -> String {
    const OWN: &str = "[timeouts]\n";
    if !config.contains(OWN) {
        return format!("{config}\n{PATIENT}");
    }
    if config.contains("\ntable = ") || config.contains("\nbodies = ") {
        return config.to_owned();
    }
    config.replacen(OWN, &format!("{OWN}table = \"20s\"\nbodies = \"1m\"\n"), 1)
}

/// A gateway in front of an origin of its own, with a directory of its own.
pub(crate) struct Site {
    /// The gateway. It ends before its directory does.
    pub(crate) gateway: Gateway,
    /// The origin behind it.
    pub(crate) origin: Origin,
    /// Where it keeps its pages and its configuration.
    pub(crate) directory: TempDir,
}

impl Site {
    /// Starts a gateway with this configuration, which [is patient](patient).
    pub(crate) fn start(config: &str) -> Site {
        Site::start_with(config, &[])
    }

    /// Starts a gateway with this configuration, which [is patient](patient), and these options.
    pub(crate) fn start_with(config: &str, arguments: &[&str]) -> Site {
        let directory = tempfile::tempdir().expect("a directory");
        let origin = Origin::start();
        let gateway = Gateway::start(directory.path(), origin.address, &patient(config), arguments);
        Site { gateway, origin, directory }
    }

    /// Gives the gateway another configuration, which [is patient](patient), and asks it to read it.
    pub(crate) fn reload(&self, config: &str) {
        std::fs::write(self.directory.path().join("facetheory.toml"), patient(config)).expect("a file");
        self.gateway.reload();
    }

    /// What a visitor gets for a target.
    pub(crate) fn get(&self, target: &str) -> Response {
        self.get_with(target, "")
    }

    /// What a visitor gets who sends these header lines as well, each with its end.
    pub(crate) fn get_with(&self, target: &str, lines: &str) -> Response {
        self.gateway.exchange(get(target, lines))
    }

    /// What a visitor gets for a request of this method.
    pub(crate) fn ask(&self, method: &str, target: &str, lines: &str) -> Response {
        let mut connection = self.gateway.connect();
        connection.send(request(method, target, lines));
        connection.next_answer(method).expect("an answer before the connection closes")
    }
}

/// A request without faults, with these header lines as well, each with its end.
pub(crate) fn get(target: &str, lines: &str) -> String {
    request("GET", target, lines)
}

/// A request of this method without faults, with these header lines as well, each with its end.
pub(crate) fn request(method: &str, target: &str, lines: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n")
}
