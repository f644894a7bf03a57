//! The real binary, between an application and its visitors.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use http::StatusCode;
use tempfile::TempDir;

use crate::client::{Client, Response};
use crate::recorder::Recorder;

/// How many come at once.
const CLIENTS: usize = 50;
/// The applications and the disk may be slow while so many come, and are not gone.
const LONG_TIMEOUTS: &str = "[timeouts]\nheaders = \"60s\"\ntable = \"20s\"\nbodies = \"1m\"\n";

/// A gateway that does not outlive its test.
pub(crate) struct Gateway {
    child: Child,
    address: String,
    /// Where its operators ask.
    admin: String,
    recorder: Option<Recorder>,
    /// Its configuration and its pages.
    _directory: TempDir,
    /// Kept open to the end: a program whose words nobody hears may die of it.
    _output: BufReader<ChildStdout>,
}

impl Gateway {
    /// In front of the application at this address, with these `[routes]`. A witness stands between the two.
    pub(crate) async fn before(application: &str, routes: &str) -> Self {
        let recorder = Recorder::before(application).await;
        Gateway::start(&recorder.address.clone(), routes, Some(recorder))
    }

    /// The same without a witness, who understands HTTP only.
    pub(crate) fn directly_in_front_of(application: &str, routes: &str) -> Self {
        Gateway::start(application, routes, None)
    }

    fn start(origin: &str, routes: &str, recorder: Option<Recorder>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("facetheory.toml");
        // Gateways of other tests run beside it, so none has the usual address for its operators.
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
            .expect("the binary runs");
        let mut output = BufReader::new(child.stdout.take().expect("an output"));
        let address = address_after("listening on", &mut output);
        let admin = address_after("admin listener on", &mut output);
        Gateway { child, address, admin, recorder, _directory: directory, _output: output }
    }

    /// Who has seen what reached the application.
    pub(crate) fn recorder(&self) -> &Recorder {
        self.recorder.as_ref().expect("there is a witness")
    }

    /// The application is not there any more, as far as the gateway can tell.
    pub(crate) fn stop_application(&mut self) {
        self.recorder = None;
    }

    /// Somebody who has never been there.
    pub(crate) fn client(&self) -> Client {
        Client::of(&self.address)
    }

    /// What many visitors get who come at once.
    pub(crate) async fn concurrently(&self, target: &str) -> Vec<Response> {
        let visits = (0..CLIENTS).map(|_| {
            let mut client = self.client();
            async move { client.get(target).await }
        });
        futures_util::future::join_all(visits).await
    }

    /// Has a page rendered before anybody sees it again, as an operator does.
    pub(crate) async fn invalidate(&self, target: &str) {
        let wish = format!(r#"{{ "url": "http://{}{target}", "hard": true }}"#, self.address);
        let response = Client::of(&self.admin).post("/api/v1/invalidate", "application/json", wish).await;
        assert_eq!((response.status, &*response.text()), (StatusCode::OK, r#"{"outcome":"stale"}"#));
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

/// The address that it says after these words, which are the next that it says.
fn address_after(words: &str, output: &mut impl BufRead) -> String {
    let mut printed = String::new();
    output.read_line(&mut printed).expect("words");
    let address = printed.strip_prefix(words).and_then(|rest| rest.trim().strip_prefix("http://"));
    let address = address.unwrap_or_else(|| panic!("no {words:?} in {printed:?}"));
    address.trim_end_matches('/').to_owned()
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
