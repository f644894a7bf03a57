//! An origin that answers what a test says, byte for byte, and remembers every byte that it was sent.

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

/// A request as it came.
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

/// What a test says about a target.
type Script = Box<dyn Fn(&Request) -> Answer + Send + Sync>;

#[derive(Default)]
struct Shared {
    scripts: Mutex<HashMap<String, Script>>,
    requests: Mutex<Vec<Request>>,
    bytes: Mutex<Vec<u8>>,
    renders: AtomicUsize,
    over: AtomicBool,
}

/// What is sent for a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
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

/// What an answer waits at until the test opens it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Origin {
    /// Starts one that answers every request with a page that tells its target and a number of its own.
    pub(crate) fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.over.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), shared) = (stream, of_thread.clone()) else { continue };
                std::thread::spawn(move || Peer { stream, shared, ahead: Vec::new() }.serve());
            }
        });
        Origin { address, shared }
    }

    /// From now on this is the answer for a target, or for a path with whatever query.
    pub(crate) fn answer(&self, target: &str, answer: Answer) {
        self.script(target, move |_| answer.clone());
    }

    /// From now on the answer for a target, or for a path with whatever query, depends on the head of the request.
    pub(crate) fn script(&self, target: &str, script: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
        self.shared.scripts.lock().expect("scripts").insert(target.to_owned(), Box::new(script));
    }

    /// All requests that came so far, those whose body broke off left out.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().expect("requests").clone()
    }

    /// The requests for this target that came so far.
    pub(crate) fn requests_for(&self, target: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.target == target).collect()
    }

    /// How many bytes came so far, of requests or of anything else.
    pub(crate) fn byte_count(&self) -> usize {
        self.shared.bytes.lock().expect("bytes").len()
    }

    /// Whether this stood anywhere in what came so far, in whatever case.
    pub(crate) fn was_told(&self, text: &str) -> bool {
        let bytes = self.shared.bytes.lock().expect("bytes");
        String::from_utf8_lossy(&bytes).to_ascii_lowercase().contains(&text.to_ascii_lowercase())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts, so that it sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl Request {
    /// The first header of this name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether there is a header of this name, which is in lower case.
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

impl Answer {
    /// A page with these headers besides its type and its length.
    pub(crate) fn page(headers: &[&str], body: &str) -> Answer {
        Answer::with("200 OK", headers, body)
    }

    /// An answer of this status.
    pub(crate) fn with(status: &str, headers: &[&str], body: &str) -> Answer {
        let mut head = format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\n");
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        let bodiless = status.starts_with("204") || status.starts_with("304");
        let length = if bodiless { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        Answer::raw(format!("{head}{length}\r\n{body}"))
    }

    /// These bytes, whatever they mean.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Answer {
        Answer { steps: vec![Step::Send(bytes.into())], early: false }
    }

    /// Then these bytes.
    pub(crate) fn then(self, bytes: impl Into<Vec<u8>>) -> Answer {
        self.step(Step::Send(bytes.into()))
    }

    /// Then nothing, until the gate is open.
    pub(crate) fn then_wait(self, gate: &Gate) -> Answer {
        self.step(Step::Wait(gate.clone()))
    }

    /// Then these bytes without an end.
    pub(crate) fn then_endlessly(self, bytes: impl Into<Vec<u8>>) -> Answer {
        self.step(Step::Repeat(bytes.into()))
    }

    /// Then whatever is sent, sent back.
    pub(crate) fn then_echo(self) -> Answer {
        self.step(Step::Echo)
    }

    /// Then the connection is closed.
    pub(crate) fn then_close(self) -> Answer {
        self.step(Step::Close)
    }

    /// Nothing, until the gate is open; then the rest.
    pub(crate) fn after(mut self, gate: &Gate) -> Answer {
        self.steps.insert(0, Step::Wait(gate.clone()));
        self
    }

    /// Without waiting for the body of the request. What comes after it makes no sense then, so it had better close.
    pub(crate) fn early(mut self) -> Answer {
        self.early = true;
        self
    }

    fn step(mut self, step: Step) -> Answer {
        self.steps.push(step);
        self
    }
}

impl Gate {
    /// Opens it for good.
    pub(crate) fn open(&self) {
        *self.0.0.lock().expect("a gate") = true;
        self.0.1.notify_all();
    }

    /// It never opens by itself: whoever waits is a thread that nobody waits for, and a test of a gate that stays shut fails
    /// at its visitors.
    fn wait(&self) {
        let opened = self.0.0.lock().expect("a gate");
        drop(self.0.1.wait_while(opened, |open| !*open).expect("a gate"));
    }
}

/// One connection to the origin.
struct Peer {
    stream: TcpStream,
    shared: Arc<Shared>,
    ahead: Vec<u8>,
}

impl Peer {
    fn serve(mut self) {
        while self.serve_one().is_some() {}
    }

    /// Nothing once the connection has ended.
    fn serve_one(&mut self) -> Option<()> {
        let mut request = Request::of(&self.line_up_to(b"\r\n\r\n")?);
        let answer = self.answer_for(&request);
        if !answer.early {
            request.body = self.body_of(&request)?;
        }
        self.shared.requests.lock().expect("requests").push(request);
        self.send(&answer)
    }

    /// What a request gets, of which only the head has come.
    fn answer_for(&self, request: &Request) -> Answer {
        let scripts = self.shared.scripts.lock().expect("scripts");
        let path = request.target.split('?').next().unwrap_or_default();
        if let Some(script) = scripts.get(&request.target).or_else(|| scripts.get(path)) {
            return script(request);
        }
        let number = self.shared.renders.fetch_add(1, Ordering::Relaxed) + 1;
        Answer::page(&[], &format!("<p>{}, render {number}</p>", request.target))
    }

    fn send(&mut self, answer: &Answer) -> Option<()> {
        for step in &answer.steps {
            match step {
                Step::Send(bytes) => self.stream.write_all(bytes).ok()?,
                Step::Wait(gate) => gate.wait(),
                Step::Repeat(bytes) => loop {
                    self.stream.write_all(bytes).ok()?;
                },
                Step::Echo => loop {
                    if self.ahead.is_empty() {
                        self.look()?;
                    }
                    self.stream.write_all(&std::mem::take(&mut self.ahead)).ok()?;
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
        while self.ahead.len() < count {
            self.look()?;
        }
        Some(self.ahead.drain(..count).collect())
    }

    fn line_up_to(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self.ahead.windows(end.len()).position(|window| window == end) {
                let line = self.ahead.drain(..at + end.len()).take(at).collect::<Vec<u8>>();
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
            self.look()?;
        }
    }

    fn look(&mut self) -> Option<()> {
        let mut piece = [0; 16 * 1024];
        let count = self.stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        self.shared.bytes.lock().expect("bytes").extend_from_slice(&piece[..count]);
        self.ahead.extend_from_slice(&piece[..count]);
        Some(())
    }
}
