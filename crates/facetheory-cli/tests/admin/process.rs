//! A gateway with an admin listener, and its origin.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpSocket;

/// How long a test waits for a condition.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(20);

/// An origin that counts its renders and returns the count.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    renders: Arc<AtomicUsize>,
    /// Receives a message for each request for a slow page.
    pub(crate) requested: Receiver<()>,
    /// Releases the response to such a request.
    pub(crate) release: Sender<()>,
    /// Reserves the address of an origin that is down.
    _reserved: Option<TcpSocket>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let renders = Arc::new(AtomicUsize::new(0));
        let ((sent, requested), (release, released)) = (channel(), channel());
        let counter = renders.clone();
        let released = Arc::new(Mutex::new(released));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (counter, sent, released) = (counter.clone(), sent.clone(), released.clone());
                std::thread::spawn(move || respond(stream, &counter, &sent, &released));
            }
        });
        Origin { address, renders, requested, release, _reserved: None }
    }

    /// Returns an origin that is down: connections to its address are refused.
    pub(crate) fn down() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
        let address = socket.local_addr().expect("an address");
        Origin { address, _reserved: Some(socket), ..Origin::start() }
    }

    pub(crate) fn renders(&self) -> usize {
        self.renders.load(Ordering::SeqCst)
    }
}

fn respond(
    mut stream: TcpStream,
    counter: &AtomicUsize,
    sent: &Sender<()>,
    released: &Mutex<Receiver<()>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut first = String::new();
        reader.read_line(&mut first).ok().filter(|bytes| *bytes > 0)?;
        let mut line = String::new();
        while reader.read_line(&mut line).ok()? > 2 {
            line.clear();
        }
        let path = first.split(' ').nth(1)?;
        if path.starts_with("/slow") {
            sent.send(()).ok()?;
            released.lock().recv().ok()?;
        }
        let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
        let extra = if path.starts_with("/private") { "set-cookie: a=b\r\n" } else { "" };
        let body = format!("<p>{path} render {number}</p>\n");
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n{extra}\r\n");
        stream.write_all((head + &body).as_bytes()).ok()?;
    }
}

/// A gateway process, which is killed at the end of the test.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) site: String,
    pub(crate) admin: String,
    /// Stays open: writing to a closed pipe would end the process.
    output: BufReader<ChildStdout>,
    data: tempfile::TempDir,
}

/// Returns the command without settings from the environment.
pub(crate) fn facetheory() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_facetheory"));
    command.env_remove("FACETHEORY_ADMIN_TOKEN").env_remove("FACETHEORY_LOG");
    command
}

/// Runs a command that must fail, and returns its error output.
pub(crate) fn error_of(command: &mut Command) -> String {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut errors = child.stderr.take().expect("its error output");
    let (sender, printed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        sender.send(errors.read_to_string(&mut text).map(|_| text))
    });
    let printed = printed.recv_timeout(TIMEOUT);
    // A command that does not fail would never end.
    if printed.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().expect("its status");
    let printed = printed.expect("the command ends").expect("a text");
    assert!(!status.success(), "the command did not fail: {printed}");
    printed
}

impl Gateway {
    pub(crate) fn start(origin: &Origin) -> Self {
        Gateway::with(origin, &mut facetheory(), &["--log", "off"])
    }

    pub(crate) fn with(origin: &Origin, command: &mut Command, arguments: &[&str]) -> Self {
        const CONFIG: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n[timeouts]\ntable = \"20s\"\nbodies = \"1m\"\npublish = \"2m\"\n";
        Gateway::with_config(CONFIG, origin, command, arguments)
    }

    /// Starts a gateway with this configuration.
    pub(crate) fn with_config(
        config: &str,
        origin: &Origin,
        command: &mut Command,
        arguments: &[&str],
    ) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        Gateway::in_directory(data, config, origin, command, arguments)
    }

    /// Stops the gateway and starts another one with this configuration on its store.
    pub(crate) fn restarted(mut self, config: &str, origin: &Origin) -> Self {
        let empty = tempfile::tempdir().expect("a directory");
        let data = std::mem::replace(&mut self.data, empty);
        drop(self);
        Gateway::in_directory(data, config, origin, &mut facetheory(), &["--log", "off"])
    }

    fn in_directory(
        data: tempfile::TempDir,
        config: &str,
        origin: &Origin,
        command: &mut Command,
        arguments: &[&str],
    ) -> Self {
        let rules = data.path().join("facetheory.toml");
        std::fs::write(&rules, config).expect("a configuration");
        command.args(["serve", "--admin", "127.0.0.1:0", "--config"]).arg(&rules).args(arguments);
        let mut gateway = Gateway::spawn(data, origin, command);
        gateway.admin = gateway.printed_address("admin listener on");
        gateway
    }

    /// Starts a gateway without an admin listener.
    pub(crate) fn without_admin(origin: &Origin) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        Gateway::spawn(data, origin, facetheory().args(["serve", "--admin", "off", "--log", "off"]))
    }

    /// Runs a command `serve` with its data in this directory, and waits until it listens.
    fn spawn(data: tempfile::TempDir, origin: &Origin, command: &mut Command) -> Self {
        let mut child = command
            .args(["--listen", "127.0.0.1:0", "--origin", &format!("http://{}", origin.address)])
            .arg("--data")
            .arg(data.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let output = BufReader::new(child.stdout.take().expect("an output"));
        let mut gateway = Gateway { child, site: String::new(), admin: String::new(), output, data };
        gateway.site = gateway.printed_address("listening on");
        gateway
    }

    /// Returns the address that the gateway prints after a text.
    fn printed_address(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            let bytes = self.output.read_line(&mut line).expect("a line");
            assert!(bytes > 0, "the gateway ended before it printed {what}");
            if let Some(address) = line.strip_prefix(what) {
                return address.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
            }
        }
    }

    /// Returns the URL of a page.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.site)
    }

    /// Requests a page as a client.
    pub(crate) fn client_get(&self, path: &str) -> Response {
        Request::get(path).send(&self.site)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        Request::get(path).send(&self.admin)
    }

    /// Calls an endpoint of the API for a page.
    pub(crate) fn get_page(&self, what: &str, path: &str) -> Response {
        let url = self.url(path).replace(':', "%3A");
        self.get(&format!("/api/v1/{what}?url={url}"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        Request::post(path, body).send(&self.admin)
    }

    pub(crate) fn regenerate(&self, key: &str, path: &str) -> Response {
        let body = serde_json::json!({ "url": self.url(path) });
        Request::post("/api/v1/regenerate", &body).with("idempotency-key", key).send(&self.admin)
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs").success());
    }

    /// Whether the process has exited. Panics if it failed.
    pub(crate) fn has_exited(&mut self) -> bool {
        let status = self.child.try_wait().expect("its state");
        status.inspect(|status| assert!(status.success(), "{status}")).is_some()
    }

    /// Returns the directory of the store.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Shuts the gateway down, and returns its output on standard error, if that is a pipe.
    pub(crate) fn shut_down(mut self) -> String {
        self.signal("TERM");
        let mut printed = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut printed).expect("a text");
        }
        assert!(self.child.wait().expect("it exits").success(), "{printed}");
        printed
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request.
pub(crate) struct Request {
    head: String,
    host: Option<String>,
    body: String,
}

impl Request {
    pub(crate) fn get(path: &str) -> Self {
        Request { head: format!("GET {path} HTTP/1.1\r\n"), host: None, body: String::new() }
    }

    pub(crate) fn post(path: &str, body: &Value) -> Self {
        let request =
            Request { head: format!("POST {path} HTTP/1.1\r\n"), host: None, body: body.to_string() };
        request.with("content-type", "application/json")
    }

    /// Replaces the method and the body.
    pub(crate) fn method(mut self, method: &str, body: &str) -> Self {
        self.head = self.head.replacen("GET", method, 1);
        self.body = body.to_owned();
        self
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        if name == "host" {
            self.host = Some(value.to_owned());
        } else {
            self.head.push_str(&format!("{name}: {value}\r\n"));
        }
        self
    }

    pub(crate) fn send(self, address: &str) -> Response {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let host = self.host.unwrap_or_else(|| address.to_owned());
        let length = self.body.len();
        let text = format!(
            "{}host: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{}",
            self.head, self.body
        );
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(text.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let response = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Response { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
    }

    pub(crate) fn state(&self) -> &str {
        self.header("x-facetheory-isr")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that the response is a problem (RFC 9457) of this status, and returns its detail.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(
            (self.status, self.header("content-type")),
            (status, "application/problem+json"),
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(
            problem["type"].as_str().is_some_and(|kind| kind.starts_with("urn:facetheory:problem:")),
            "{problem}"
        );
        assert!(problem["title"].is_string());
        problem["detail"].as_str().expect("a detail").to_owned()
    }
}

/// Waits until a condition is true.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..TIMEOUT.as_millis() / PAUSE.as_millis() {
        if condition() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("timeout: {what}");
}
