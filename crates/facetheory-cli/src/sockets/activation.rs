//! Socket activation: the service manager opens the sockets and passes them to the process (systemd, `LISTEN_FDS`).

use anyhow::{Context as _, Result, ensure};
use listenfd::ListenFd;

use super::{CLIENTS, Sockets, Source};

/// Names of the sockets, separated by colons.
const NAMES: &str = "LISTEN_FDNAMES";

/// Takes the sockets of the service manager, if it passed some to this process.
pub(super) fn take() -> Result<Sockets> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Sockets::default();
    if passed.len() == 0 {
        return Ok(sockets);
    }
    sockets.source = Source::ServiceManager;
    let names = names(std::env::var(NAMES).ok().as_deref(), passed.len())?;
    for (at, name) in names.into_iter().enumerate() {
        let socket = passed.take_tcp_listener(at).with_context(|| {
            format!("the socket {name:?} of the service manager is not a TCP socket; check ListenStream=")
        })?;
        let socket = socket.context("the service manager passed a socket twice")?;
        sockets.insert(&name, socket).context(
            "the sockets of the service manager do not fit; set FileDescriptorName= in each socket unit",
        )?;
    }
    Ok(sockets)
}

/// The names of the sockets. A single one needs none: it is for clients.
fn names(variable: Option<&str>, count: usize) -> Result<Vec<String>> {
    if count == 1 && variable != Some(super::ADMIN) {
        return Ok(vec![CLIENTS.to_owned()]);
    }
    let names: Vec<String> = variable.unwrap_or_default().split(':').map(str::to_owned).collect();
    ensure!(
        names.len() == count,
        "the service manager passed {count} sockets and {} names in {NAMES}; set FileDescriptorName= in each socket unit",
        names.len()
    );
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_socket_is_for_clients_and_several_have_names() {
        // systemd names a socket after its unit unless the unit says otherwise.
        for variable in [None, Some(""), Some("facetheory.socket"), Some("clients")] {
            assert_eq!(names(variable, 1).expect("names"), ["clients"], "{variable:?}");
        }
        assert_eq!(names(Some("admin"), 1).expect("names"), ["admin"]);
        assert_eq!(names(Some("admin:clients"), 2).expect("names"), ["admin", "clients"]);
        for variable in [None, Some("clients"), Some("clients:admin:other")] {
            let error = names(variable, 2).expect_err("another number of names").to_string();
            assert!(error.contains("FileDescriptorName="), "{error}");
        }
    }
}
