//! Socket activation: the test opens the sockets, as systemd does, and passes them to the gateway.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};

use super::CONFIG;
use super::load::{Clients, Kind, Load};
use super::rolling::assert_no_failure;
use super::support::client::Connection;
use super::support::gateway::{Gateway, StartError};
use super::support::origin::Origin;
use super::support::site::{get, with_long_timeouts};

/// The first descriptor that the service manager passes.
const FIRST: i32 = 3;
const RESTARTS: usize = 3;
/// The number of requests between two restarts.
const REQUESTS: usize = 100;

/// Starts the gateway as the service manager does: with these sockets and their names.
fn activate(
    directory: &Path,
    origin: &Origin,
    sockets: Vec<OwnedFd>,
    names: &str,
    arguments: &[&str],
) -> Result<Gateway, StartError> {
    // The shell becomes the gateway, so it knows its process id.
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_facetheory")]);
    command.env("LISTEN_FDS", sockets.len().to_string()).env("LISTEN_FDNAMES", names);
    let mappings = (FIRST..).zip(sockets).map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd });
    command.fd_mappings(mappings.collect()).expect("different descriptors");
    Gateway::try_start_by(command, directory, origin.address, &with_long_timeouts(CONFIG), arguments)
}

fn copy(listener: &TcpListener) -> OwnedFd {
    listener.try_clone().expect("a descriptor").into()
}

/// Activates a gateway that must not start, and returns its error output.
fn error_of(sockets: Vec<OwnedFd>, names: &str, arguments: &[&str]) -> String {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    match activate(directory.path(), &origin, sockets, names, arguments) {
        Ok(_) => panic!("the gateway starts"),
        Err(error) => error.errors,
    }
}

#[test]
fn the_sockets_of_the_service_manager_are_used_by_their_names() {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let open = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let (admin, clients) = (open(), open());
    let sockets = vec![copy(&admin), copy(&clients)];
    let gateway = activate(directory.path(), &origin, sockets, "admin:clients", &[]).expect("a gateway");
    assert_eq!(gateway.address, clients.local_addr().expect("an address"));
    assert_eq!(gateway.admin(), admin.local_addr().expect("an address"));
    assert_eq!(gateway.exchange(get("/cached/a", "")).status, 200);
    assert_eq!(gateway.admin_get("/readyz").status, 200);
}

#[test]
fn a_restart_of_an_activated_service_fails_no_request() {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    // systemd names a socket after its unit unless the unit says otherwise.
    let start = || {
        activate(directory.path(), &origin, vec![copy(&socket)], "facetheory.socket", &["--no-access-log"])
            .expect("a gateway")
    };
    let mut gateway = start();
    let clients = [
        Clients { kind: Kind::KeepAlive, count: 4, rate: 40 },
        Clients { kind: Kind::NewConnections, count: 4, rate: 40 },
        Clients { kind: Kind::Http2, count: 2, rate: 20 },
    ];
    let load = Load::start(gateway.address, &clients, None, Duration::from_secs(1));
    for _ in 0..RESTARTS {
        load.wait_for_requests(REQUESTS);
        // Between these two, connections wait in the socket.
        gateway.shut_down();
        gateway = start();
    }
    load.wait_for_requests(REQUESTS);
    let (report, lasted) = load.stop();
    assert_no_failure("socket activation", RESTARTS, &report, lasted);
}

#[test]
fn connections_that_wait_in_the_socket_are_served_after_the_start() {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut early = Connection::open(socket.local_addr().expect("an address"));
    early.send(get("/cached/a", ""));
    let _gateway =
        activate(directory.path(), &origin, vec![copy(&socket)], "clients", &[]).expect("a gateway");
    assert_eq!(early.response().status, 200);
}

#[test]
fn a_socket_that_does_not_fit_is_an_error_that_says_what_to_change() {
    // The arguments of the gateway contain --listen 127.0.0.1:0.
    let elsewhere = TcpListener::bind("127.0.0.2:0").expect("a port");
    let error = error_of(vec![copy(&elsewhere)], "clients", &[]);
    let actual = elsewhere.local_addr().expect("an address").to_string();
    for part in [actual.as_str(), "--listen is 127.0.0.1:0", "ListenStream="] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }

    let open = || copy(&TcpListener::bind("127.0.0.1:0").expect("a port"));
    for (count, names, expected) in [
        (2, "clients:clients", "two sockets are named clients"),
        (2, "clients:other", "a socket is named \"other\""),
        (3, "clients:admin", "3 sockets and 2 names"),
        (1, "admin", "no socket for clients"),
    ] {
        let error = error_of((0..count).map(|_| open()).collect(), names, &[]);
        assert!(error.contains(expected) && error.contains("FileDescriptorName="), "{names}: {error}");
    }

    let error = error_of(vec![open(), open()], "clients:admin", &["--admin", "off"]);
    assert!(error.contains("the admin listener is off"), "{error}");

    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port").into();
    let error = error_of(vec![datagrams], "clients", &[]);
    assert!(error.contains("not a TCP socket"), "{error}");

    let path = tempfile::tempdir().expect("a directory").path().join("hand-over.sock").display().to_string();
    let error = error_of(vec![open()], "clients", &["--hand-over", &path]);
    assert!(error.contains("exclude each other"), "{error}");
}

#[test]
fn sockets_that_were_passed_to_another_process_are_ignored() {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let environment = [("LISTEN_FDS", "1".to_owned()), ("LISTEN_PID", "1".to_owned())];
    let config = with_long_timeouts(CONFIG);
    let gateway = Gateway::try_start_in(&environment, directory.path(), origin.address, &config, &[])
        .expect("a gateway");
    assert_eq!(gateway.exchange(get("/cached/a", "")).status, 200);
}
