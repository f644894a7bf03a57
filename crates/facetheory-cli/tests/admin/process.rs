//! A gateway with its admin listener, and an origin behind it, that do not outlive their test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpSocket;

/// How long a condition is waited for that must come true.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long it is let be between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A server that counts what it is asked, and answers with the count.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    renders: Arc<AtomicUsize>,
    /// Told of each request for a page that is slow.
    pub(crate) asked: Receiver<()>,
    /// Lets such a request be answered.
    pub(crate) go_on: Sender<()>,
    /// Keeps the address of one that has gone from being given to somebody else.
    _kept: Option<TcpSocket>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let renders = Arc::new(AtomicUsize::new(0));
        let ((told, asked), (go_on, may)) = (channel(), channel());
        let counter = renders.clone();
        let may = Arc::new(std::sync::Mutex::new(may));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (counter, told, may) = (counter.clone(), told.clone(), may.clone());
                std::thread::spawn(move || answer(stream, &counter, &told, &may));
            }
        });
        Origin { address, renders, asked, go_on, _kept: None }
    }

    /// One that has gone: nobody listens at its address, as long as this is there.
    pub(crate) fn gone() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
        let address = socket.local_addr().expect("an address");
        Origin { address, _kept: Some(socket), ..Origin::start() }
    }

    /// How many pages it has rendered.
    pub(crate) fn renders(&self) -> usize {
        self.renders.load(Ordering::SeqCst)
    }
}

fn answer(
    mut stream: TcpStream,
    counter: &AtomicUsize,
    told: &Sender<()>,
    may: &std::sync::Mutex<Receiver<()>>,
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
            told.send(()).ok()?;
            may.lock().ok()?.recv().ok()?;
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

/// A gateway.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) site: String,
    pub(crate) admin: String,
    /// Kept open to the end: a program whose words nobody hears may die of it.
    output: BufReader<ChildStdout>,
    data: tempfile::TempDir,
}

/// The program.
pub(crate) fn facetheory() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_facetheory"));
    command.env_remove("FACETHEORY_ADMIN_TOKEN").env_remove("FACETHEORY_LOG");
    command
}

/// What it says about a command line that it does not go by.
pub(crate) fn refusal(command: &mut Command) -> String {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut status = None;
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        status = child.try_wait().expect("its state");
        if status.is_some() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    // One that goes by it would never end.
    let _ = child.kill();
    let said = child.wait_with_output().expect("its words").stderr;
    let said = String::from_utf8(said).expect("a text");
    assert!(status.is_some_and(|status| !status.success()), "it was not refused: {said}");
    said
}

impl Gateway {
    pub(crate) fn start(origin: &Origin) -> Self {
        Gateway::with(origin, &mut facetheory(), &["--log", "off"])
    }

    pub(crate) fn with(origin: &Origin, command: &mut Command, arguments: &[&str]) -> Self {
        const CONFIG: &str =
            "[routes]\n\"/**\" = { isr = \"1h\" }\n[timeouts]\ntable = \"20s\"\nbodies = \"1m\"\n";
        Gateway::by(CONFIG, origin, command, arguments)
    }

    /// One with this configuration.
    pub(crate) fn by(config: &str, origin: &Origin, command: &mut Command, arguments: &[&str]) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let rules = data.path().join("facetheory.toml");
        std::fs::write(&rules, config).expect("a configuration");
        let mut child = command
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--origin", &format!("http://{}", origin.address)])
            .arg("--data")
            .arg(data.path())
            .arg("--config")
            .arg(&rules)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let output = BufReader::new(child.stdout.take().expect("an output"));
        let mut gateway = Gateway { child, site: String::new(), admin: String::new(), output, data };
        gateway.site = gateway.told("listening on");
        gateway.admin = gateway.told("the admin listener is at");
        gateway
    }

    /// One without an admin listener, which ends in an orderly way all the same.
    pub(crate) fn without_admin(origin: &Origin) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let mut child = facetheory()
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--log", "off"])
            .args(["--origin", &format!("http://{}", origin.address)])
            .arg("--data")
            .arg(data.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let output = BufReader::new(child.stdout.take().expect("an output"));
        let mut gateway = Gateway { child, site: String::new(), admin: String::new(), output, data };
        gateway.site = gateway.told("listening on");
        gateway
    }

    /// The address that it says something is at.
    fn told(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            let bytes = self.output.read_line(&mut line).expect("a line");
            assert!(bytes > 0, "it ended before it said {what}");
            if let Some(address) = line.strip_prefix(what) {
                return address.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
            }
        }
    }

    /// The address of a page, as visitors have it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.site)
    }

    /// What a visitor gets.
    pub(crate) fn visit(&self, path: &str) -> Reply {
        Ask::get(path).send(&self.site)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        Ask::get(path).send(&self.admin)
    }

    /// What is told of a page.
    pub(crate) fn about(&self, what: &str, path: &str) -> Reply {
        let url = self.url(path).replace(':', "%3A");
        self.get(&format!("/api/v1/{what}?url={url}"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        Ask::post(path, body).send(&self.admin)
    }

    pub(crate) fn regenerate(&self, key: &str, path: &str) -> Reply {
        let body = serde_json::json!({ "url": self.url(path) });
        Ask::post("/api/v1/regenerate", &body).with("idempotency-key", key).send(&self.admin)
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs").success());
    }

    /// Whether it has ended, well.
    pub(crate) fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().expect("its state");
        status.inspect(|status| assert!(status.success(), "{status}")).is_some()
    }

    /// Where it keeps its pages.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Waits until it has ended, and returns what it said on the standard error, where that is listened to.
    pub(crate) fn end(mut self) -> String {
        self.signal("TERM");
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).expect("a text");
        }
        assert!(self.child.wait().expect("it ends").success(), "{said}");
        said
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request.
pub(crate) struct Ask {
    head: String,
    host: Option<String>,
    body: String,
}

impl Ask {
    pub(crate) fn get(path: &str) -> Self {
        Ask { head: format!("GET {path} HTTP/1.1\r\n"), host: None, body: String::new() }
    }

    pub(crate) fn post(path: &str, body: &Value) -> Self {
        let ask = Ask { head: format!("POST {path} HTTP/1.1\r\n"), host: None, body: body.to_string() };
        ask.with("content-type", "application/json")
    }

    /// The same with another method and another body.
    pub(crate) fn sent_as(mut self, method: &str, body: &str) -> Self {
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

    pub(crate) fn send(self, address: &str) -> Reply {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let host = self.host.unwrap_or_else(|| address.to_owned());
        let length = self.body.len();
        let text = format!(
            "{}host: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{}",
            self.head, self.body
        );
        // One that refuses the head may close before it has read all.
        let _ = stream.write_all(text.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let response = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
    }

    pub(crate) fn state(&self) -> &str {
        self.header("x-facetheory-isr")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that it is a problem of this status, told as RFC 9457 says, and returns what it says to do.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(
            (self.status, self.header("content-type")),
            (status, "application/problem+json"),
            "{self:?}"
        );
        let told = self.json();
        assert_eq!(told["status"], status);
        assert!(
            told["type"].as_str().is_some_and(|kind| kind.starts_with("urn:facetheory:problem:")),
            "{told}"
        );
        assert!(told["title"].is_string());
        told["detail"].as_str().expect("a detail").to_owned()
    }
}

/// Waits until this is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if is_so() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{what} did not come about");
}
