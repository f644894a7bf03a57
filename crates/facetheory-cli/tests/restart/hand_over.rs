//! Hand-over to a new process: who gets the sockets, and what happens if the new process does not start.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use tempfile::TempDir;

use super::CONFIG;
use super::support::client::Connection;
use super::support::gateway::{Gateway, StartError};
use super::support::http2::{Frame, GOAWAY, Http2, NO_ERROR, Outcome};
use super::support::origin::{Gate, Origin, ScriptedResponse};
use super::support::site::{get, with_long_timeouts};
use super::support::wait_for;

/// A place where gateways replace each other.
struct Place {
    directory: TempDir,
    origin: Origin,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().expect("a directory"), origin: Origin::start() }
    }

    fn with_gateway() -> (Place, Gateway) {
        let place = Place::new();
        let gateway = place.start();
        (place, gateway)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("hand-over.sock")
    }

    fn try_start(&self, config: &str, arguments: &[&str]) -> Result<Gateway, StartError> {
        let path = self.path().display().to_string();
        let arguments = [&["--hand-over", &path], arguments].concat();
        let config = with_long_timeouts(config);
        Gateway::try_start(self.directory.path(), self.origin.address, &config, &arguments)
    }

    fn start(&self) -> Gateway {
        self.try_start(CONFIG, &[]).expect("a gateway")
    }
}

fn assert_serves(gateway: &Gateway) {
    assert_eq!(gateway.exchange(get("/cached/a", "")).status, 200);
}

#[test]
fn a_new_process_takes_both_listeners_and_the_old_one_exits() {
    let (place, old) = Place::with_gateway();
    let (address, admin) = (old.address, old.admin());
    assert_serves(&old);
    let new = place.start();
    assert_eq!((new.address, new.admin()), (address, admin));
    old.wait_for_exit();
    assert_serves(&new);
    assert_eq!(new.admin_get("/readyz").status, 200);
    new.shut_down();
    assert!(!place.path().exists(), "the last process removes its socket");
}

#[test]
fn a_new_process_that_fails_to_start_leaves_the_old_one_serving() {
    let (place, old) = Place::with_gateway();
    let no_certificate = format!("{CONFIG}[tls]\ncertificate = \"missing.pem\"\nkey = \"missing.key\"\n");
    // The first one fails before it asks for the sockets, and the second one after it has received them.
    for (config, expected) in [("no_such_key = 1\n", "no_such_key"), (no_certificate.as_str(), "missing.pem")]
    {
        let error = place.try_start(config, &[]).err().expect("an error");
        assert!(error.errors.contains(expected), "{}", error.errors);
        assert_serves(&old);
    }
    wait_for("a line in the log", || {
        old.log().contains("the sockets were not handed over; this process goes on serving").then_some(())
    });
    assert_eq!(old.admin_get("/readyz").status, 200);
    let new = place.start();
    assert_eq!(new.address, old.address);
    old.wait_for_exit();
    assert_serves(&new);
}

#[test]
fn the_old_process_serves_and_reloads_until_the_new_one_is_ready() {
    let (place, old) = Place::with_gateway();
    let mut pending = UnixStream::connect(place.path()).expect("the socket of the hand-over");
    let mut greeting = [0; 8];
    pending.read_exact(&mut greeting).expect("the sockets");
    assert_serves(&old);
    assert_eq!(old.exchange(get("/else", "")).state(), "bypass", "paths without a rule are passed through");
    let config = with_long_timeouts("[routes]\n\"/**\" = { isr = \"1h\" }\n");
    std::fs::write(place.directory.path().join("facetheory.toml"), config).expect("a file");
    old.reload();
    wait_for("the new rules", || (old.exchange(get("/else", "")).state() != "bypass").then_some(()));
    drop(pending);
    wait_for("a line in the log", || {
        old.log().contains("the new process exited before it was ready").then_some(())
    });
    assert_serves(&old);
}

#[test]
fn a_process_that_does_not_follow_the_protocol_does_not_stop_the_old_one() {
    let (place, old) = Place::with_gateway();
    let mut other = UnixStream::connect(place.path()).expect("the socket of the hand-over");
    other.write_all(b"?").expect("the old process reads");
    wait_for("a line in the log", || old.log().contains("the new process sent").then_some(()));
    assert_serves(&old);
    let new = place.start();
    old.wait_for_exit();
    assert_serves(&new);
}

#[test]
fn only_the_second_signal_after_a_hand_over_aborts_requests() {
    for signals in [1, 2] {
        let place = Place::new();
        let gate = Gate::default();
        place.origin.respond("/slow", ScriptedResponse::page(&[], "slow").after(&gate));
        let mut old = place.start();
        let mut client = old.connect();
        client.send(get("/slow", ""));
        wait_for("the request", || (!place.origin.requests_for("/slow").is_empty()).then_some(()));
        let new = place.start();
        wait_for("a line in the log", || old.log().contains("shutting down").then_some(()));
        for _ in 0..signals {
            old.signal("TERM");
        }
        if signals == 1 {
            assert_serves(&new);
            for _ in 0..10 {
                assert_eq!(new.admin_get("/readyz").status, 200, "only the new process reports its state");
            }
            assert!(old.is_alive(), "it waits for the request");
            gate.open();
            let response = client.response();
            assert_eq!((response.status, response.header("connection")), (200, Some("close")));
        } else {
            assert!(client.next_response("GET").is_none_or(|response| response.status != 200));
        }
        old.wait_for_exit();
        gate.open();
        assert_serves(&new);
    }
}

#[test]
fn the_socket_of_a_killed_process_is_replaced_and_other_files_are_not() {
    let (place, old) = Place::with_gateway();
    old.kill();
    assert!(place.path().exists());
    let new = place.start();
    assert_serves(&new);
    new.shut_down();

    std::fs::write(place.path(), "notes").expect("a file");
    let error = place.try_start(CONFIG, &[]).err().expect("an error");
    assert!(error.errors.contains("is not a socket"), "{}", error.errors);
    assert_eq!(std::fs::read_to_string(place.path()).expect("the file"), "notes");
}

#[test]
fn only_the_user_of_the_process_may_connect() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let _gateway = place.start();
    let permissions = std::fs::metadata(place.path()).expect("the socket").permissions();
    assert_eq!(permissions.mode() & 0o777, 0o600);
}

#[test]
fn a_new_process_with_another_address_binds_it_and_the_old_address_is_closed() {
    let (place, old) = Place::with_gateway();
    let address = old.address;
    let new = place.try_start(CONFIG, &["--listen", "127.0.0.2:0"]).expect("a gateway");
    assert_ne!(new.address.ip(), address.ip());
    assert_serves(&new);
    old.wait_for_exit();
    assert!(Connection::try_open(address).is_none(), "nobody listens any more");
}

#[test]
fn without_a_hand_over_a_second_process_on_the_same_address_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_facetheory"))
        .args([
            "serve",
            "--origin",
            "http://127.0.0.1:9",
            "--admin",
            "off",
            "--table",
            "memory:",
            "--bodies",
            "memory:",
        ])
        .args(["--listen", &address])
        .output()
        .expect("the binary runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("is in use by another program"), "{error}");
}

#[test]
fn an_http_2_connection_is_told_to_go_away_and_requests_that_were_sent_before_are_answered() {
    let (place, old) = Place::with_gateway();
    let authority = old.address.to_string();
    let mut client = Http2::open(old.address);
    client.send(&Frame::get(1, &authority, "/cached/a"));
    assert_eq!(client.outcome(1), Outcome::Response { status: 200 });
    let new = place.start();
    let goaway = loop {
        let frame = client.next().expect("GOAWAY before the connection closes");
        if frame.kind == GOAWAY {
            break frame.payload;
        }
    };
    let largest_stream = [0x7f, 0xff, 0xff, 0xff];
    assert_eq!(goaway[..8], [largest_stream, NO_ERROR.to_be_bytes()].concat(), "no stream is excluded");
    // The client has not seen GOAWAY when it sends this.
    client.send(&Frame::get(3, &authority, "/cached/a"));
    assert_eq!(client.outcome(3), Outcome::Response { status: 200 });
    drop(client);
    old.wait_for_exit();
    assert_serves(&new);
}

#[test]
fn an_idle_connection_may_send_one_more_request_to_the_old_process() {
    let (place, old) = Place::with_gateway();
    let mut idle = old.connect();
    idle.send(get("/cached/a", ""));
    assert_eq!(idle.response().header("connection"), None);
    let _new = place.start();
    wait_for("a line in the log", || old.log().contains("shutting down").then_some(()));
    // The old process waits ten seconds for it.
    idle.send(get("/cached/a", ""));
    let response = idle.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    idle.assert_closed();
    old.wait_for_exit();
}
