//! The gateway binary between an application and its clients.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use http::StatusCode;
use tempfile::TempDir;

use crate::client::{Client, Response};
use crate::recorder::Recorder;

/// The number of concurrent clients.
const CLIENTS: usize = 50;
/// Long timeouts, since applications and the disk may be slow under load.
const LONG_TIMEOUTS: &str =
    "[timeouts]\nheaders = \"60s\"\ntable = \"20s\"\nbodies = \"1m\"\npublish = \"2m\"\n";

/// A gateway process, killed when this is dropped.
pub(crate) struct Gateway {
    child: Child,
    address: String,
    /// The address of the admin listener.
    admin: String,
    recorder: Option<Recorder>,
    /// The directory of its configuration and its pages.
    _directory: TempDir,
    /// Open until the end: the gateway would fail when it prints to a closed pipe.
    _output: BufReader<ChildStdout>,
}

impl Gateway {
    /// Starts a gateway in front of the application at this address, with these `[routes]`. A recorder is between the
    /// two.
    pub(crate) async fn in_front_of(application: &str, routes: &str) -> Self {
        let recorder = Recorder::in_front_of(application).await;
        Gateway::start(&recorder.address.clone(), routes, Some(recorder))
    }

    /// Starts a gateway without a recorder, which supports only HTTP.
    pub(crate) fn directly_in_front_of(application: &str, routes: &str) -> Self {
        Gateway::start(application, routes, None)
    }

    fn start(origin: &str, routes: &str, recorder: Option<Recorder>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("facetheory.toml");
        // Other tests run gateways at the same time, so the default admin address is not free.
        let text = format!("[admin]\nlisten = \"127.0.0.1:0\"\n\n{LONG_TIMEOUTS}\n[routes]\n{routes}\n");
        std::fs::write(&config, text).expect("a configuration");
        let mut child = Command::new(env!("CARGO_BIN_EXE_facetheory"))
            .args(["serve", "--listen", "127.0.0.1:0", "--origin", &format!("http://{origin}")])
            .arg("--config")
            .arg(&config)
            .arg("--data")
            .arg(directory.path().join("data"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut output = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let address = address_after("listening on", &mut output);
        let admin = address_after("admin listener on", &mut output);
        Gateway { child, address, admin, recorder, _directory: directory, _output: output }
    }

    /// The requests that reached the application.
    pub(crate) fn recorder(&self) -> &Recorder {
        self.recorder.as_ref().expect("a recorder")
    }

    /// Makes the application unreachable for the gateway.
    pub(crate) fn stop_application(&mut self) {
        self.recorder = None;
    }

    /// A client without cookies.
    pub(crate) fn client(&self) -> Client {
        Client::of(&self.address)
    }

    /// The responses to many concurrent requests.
    pub(crate) async fn concurrently(&self, target: &str) -> Vec<Response> {
        let requests = (0..CLIENTS).map(|_| {
            let mut client = self.client();
            async move { client.get(target).await }
        });
        futures_util::future::join_all(requests).await
    }

    /// Fails unless concurrent clients get this page, with these headers, of one request to the application, and it is cached
    /// then.
    pub(crate) async fn assert_one_render_for_all(&self, target: &str, page: &Response, headers: &[&str]) {
        let responses = self.concurrently(target).await;
        for response in &responses {
            assert_eq!((response.status, &response.body), (StatusCode::OK, &page.body));
            for name in headers {
                assert_eq!(response.header(name), page.header(name), "{name}");
            }
        }
        let states: BTreeSet<&str> = responses.iter().map(Response::state).collect();
        assert!(states.contains("miss") && !states.contains("bypass"), "{states:?}");
        assert_eq!(self.recorder().requests_for(target).len(), 1);
        assert_eq!(self.client().get(target).await.state(), "hit");
    }

    /// Invalidates a page hard through the admin API.
    pub(crate) async fn invalidate(&self, target: &str) {
        let body = format!(r#"{{ "url": "http://{}{target}", "hard": true }}"#, self.address);
        let response = Client::of(&self.admin).post("/api/v1/invalidate", "application/json", body).await;
        assert_eq!((response.status, &*response.text()), (StatusCode::OK, r#"{"outcome":"stale"}"#));
    }

    /// The address on which it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

/// The address after these words in the next line of output.
fn address_after(words: &str, output: &mut impl BufRead) -> String {
    let mut printed = String::new();
    output.read_line(&mut printed).expect("words");
    let address = printed.strip_prefix(words).and_then(|rest| rest.trim().strip_prefix("http://"));
    let address = address.unwrap_or_else(|| panic!("no {words:?} in {printed:?}"));
    address.trim_end_matches('/').to_owned()
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
