//! An origin that sends scripted responses byte for byte, and records everything that it receives.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// An origin on a port of its own.
pub(crate) struct Origin {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Its method.
    pub(crate) method: String,
    /// Its target, with the query.
    pub(crate) target: String,
    /// Its headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Its body.
    pub(crate) body: Vec<u8>,
}

/// Gives the response to a request.
type Script = Box<dyn Fn(&Request) -> ScriptedResponse + Send + Sync>;

#[derive(Default)]
struct Shared {
    scripts: Mutex<HashMap<String, Script>>,
    requests: Mutex<Vec<Request>>,
    bytes: Mutex<Vec<u8>>,
    renders: AtomicUsize,
    over: AtomicBool,
}

/// The bytes to send for a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedResponse {
    steps: Vec<Step>,
    early: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u8>),
    Wait(Gate),
    Repeat(Vec<u8>),
    Echo,
    Close,
}

/// Delays a response until the test opens it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Origin {
    /// Starts an origin that responds to every request with a page that contains its target and a unique number.
    pub(crate) fn start() -> Origin {
        Origin::start_at("127.0.0.1")
    }

    /// Starts an origin on a port of this loopback address. Nothing else listens on an address that only one test uses, so
    /// connections to it are refused once the origin was dropped.
    pub(crate) fn start_at(address: &str) -> Origin {
        let listener = TcpListener::bind((address, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.over.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), shared) = (stream, of_thread.clone()) else { continue };
                std::thread::spawn(move || Peer { stream, shared, buffer: Vec::new() }.serve());
            }
        });
        Origin { address, shared }
    }

    /// Sets the response for a target, or for a path with any query.
    pub(crate) fn respond(&self, target: &str, response: ScriptedResponse) {
        self.script(target, move |_| response.clone());
    }

    /// Sets a function that gives the response for a target, or for a path with any query.
    pub(crate) fn script(
        &self,
        target: &str,
        script: impl Fn(&Request) -> ScriptedResponse + Send + Sync + 'static,
    ) {
        self.shared.scripts.lock().expect("scripts").insert(target.to_owned(), Box::new(script));
    }

    /// All requests so far, without those whose body was truncated.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().expect("requests").clone()
    }

    /// The requests for this target so far.
    pub(crate) fn requests_for(&self, target: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.target == target).collect()
    }

    /// The number of received bytes.
    pub(crate) fn byte_count(&self) -> usize {
        self.shared.bytes.lock().expect("bytes").len()
    }

    /// Whether the received bytes contain this text, ignoring case.
    pub(crate) fn received(&self, text: &str) -> bool {
        let bytes = self.shared.bytes.lock().expect("bytes");
        String::from_utf8_lossy(&bytes).to_ascii_lowercase().contains(&text.to_ascii_lowercase())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, so that it ends.
        let _ = TcpStream::connect(self.address);
    }
}

impl Request {
    /// The first header with this name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether there is a header with this name, which is in lower case.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.header(name).is_some()
    }

    fn of(head: &str) -> Request {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
        let pair = |line: &str| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Request {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            headers: lines.map(pair).collect(),
            body: Vec::new(),
        }
    }
}

impl ScriptedResponse {
    /// A page with these headers besides its content type and length.
    pub(crate) fn page(headers: &[&str], body: &str) -> ScriptedResponse {
        ScriptedResponse::with("200 OK", headers, body)
    }

    /// A response with this status.
    pub(crate) fn with(status: &str, headers: &[&str], body: &str) -> ScriptedResponse {
        let mut head = format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\n");
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        let bodiless = status.starts_with("204") || status.starts_with("304");
        let length = if bodiless { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        ScriptedResponse::raw(format!("{head}{length}\r\n{body}"))
    }

    /// These bytes, valid or not.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> ScriptedResponse {
        ScriptedResponse { steps: vec![Step::Send(bytes.into())], early: false }
    }

    /// Then these bytes.
    pub(crate) fn then(self, bytes: impl Into<Vec<u8>>) -> ScriptedResponse {
        self.step(Step::Send(bytes.into()))
    }

    /// Then waits until the gate is open.
    pub(crate) fn then_wait(self, gate: &Gate) -> ScriptedResponse {
        self.step(Step::Wait(gate.clone()))
    }

    /// Then sends these bytes forever.
    pub(crate) fn then_endlessly(self, bytes: impl Into<Vec<u8>>) -> ScriptedResponse {
        self.step(Step::Repeat(bytes.into()))
    }

    /// Then echoes everything that is received.
    pub(crate) fn then_echo(self) -> ScriptedResponse {
        self.step(Step::Echo)
    }

    /// Then closes the connection.
    pub(crate) fn then_close(self) -> ScriptedResponse {
        self.step(Step::Close)
    }

    /// Waits until the gate is open before everything else.
    pub(crate) fn after(mut self, gate: &Gate) -> ScriptedResponse {
        self.steps.insert(0, Step::Wait(gate.clone()));
        self
    }

    /// Responds without reading the request body. The connection is unusable then, so the response should close it.
    pub(crate) fn early(mut self) -> ScriptedResponse {
        self.early = true;
        self
    }

    fn step(mut self, step: Step) -> ScriptedResponse {
        self.steps.push(step);
        self
    }
}

impl Gate {
    /// Opens it permanently.
    pub(crate) fn open(&self) {
        *self.0.0.lock().expect("a gate") = true;
        self.0.1.notify_all();
    }

    /// Waits without a timeout: only a detached thread waits here, and if the gate stays closed the test times out at
    /// its client.
    fn wait(&self) {
        let opened = self.0.0.lock().expect("a gate");
        drop(self.0.1.wait_while(opened, |open| !*open).expect("a gate"));
    }
}

/// One connection to the origin.
struct Peer {
    stream: TcpStream,
    shared: Arc<Shared>,
    buffer: Vec<u8>,
}

impl Peer {
    fn serve(mut self) {
        while self.serve_one().is_some() {}
    }

    /// Serves one request; `None` once the connection has ended.
    fn serve_one(&mut self) -> Option<()> {
        let mut request = Request::of(&self.line_up_to(b"\r\n\r\n")?);
        let response = self.response_to(&request);
        if !response.early {
            request.body = self.body_of(&request)?;
        }
        self.shared.requests.lock().expect("requests").push(request);
        self.send(&response)
    }

    /// The response to a request; its body has not been read.
    fn response_to(&self, request: &Request) -> ScriptedResponse {
        let scripts = self.shared.scripts.lock().expect("scripts");
        let path = request.target.split('?').next().unwrap_or_default();
        if let Some(script) = scripts.get(&request.target).or_else(|| scripts.get(path)) {
            return script(request);
        }
        let number = self.shared.renders.fetch_add(1, Ordering::Relaxed) + 1;
        ScriptedResponse::page(&[], &format!("<p>{}, render {number}</p>", request.target))
    }

    fn send(&mut self, response: &ScriptedResponse) -> Option<()> {
        for step in &response.steps {
            match step {
                Step::Send(bytes) => self.stream.write_all(bytes).ok()?,
                Step::Wait(gate) => gate.wait(),
                Step::Repeat(bytes) => loop {
                    self.stream.write_all(bytes).ok()?;
                },
                Step::Echo => loop {
                    if self.buffer.is_empty() {
                        self.read_more()?;
                    }
                    self.stream.write_all(&std::mem::take(&mut self.buffer)).ok()?;
                },
                Step::Close => return None,
            }
        }
        Some(())
    }

    fn body_of(&mut self, request: &Request) -> Option<Vec<u8>> {
        if let Some(length) = request.header("content-length").and_then(|length| length.parse().ok()) {
            return self.exactly(length);
        }
        let mut body = Vec::new();
        if request.header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            loop {
                let size = self.line_up_to(b"\r\n")?;
                let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16).ok()?;
                if size == 0 {
                    while !self.line_up_to(b"\r\n")?.is_empty() {}
                    break;
                }
                body.extend(self.exactly(size)?);
                self.exactly(2)?;
            }
        }
        Some(body)
    }

    fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            self.read_more()?;
        }
        Some(self.buffer.drain(..count).collect())
    }

    fn line_up_to(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                let line = self.buffer.drain(..at + end.len()).take(at).collect::<Vec<u8>>();
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> Option<()> {
        let mut piece = [0; 16 * 1024];
        let count = self.stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        self.shared.bytes.lock().expect("bytes").extend_from_slice(&piece[..count]);
        self.buffer.extend_from_slice(&piece[..count]);
        Some(())
    }
}
