//! The origin of the fuzzer: it reads what the gateway sends as strictly as it can be read, and tells the ledger.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::request_log::RequestLog;
use crate::strict_parser::{self, Parsed, Request};

/// What the page of a request begins with; its target follows.
pub(crate) const ECHO_PREFIX: &str = "asked ";
/// The most headers of a request that is looked at.
const MAX_HEADERS: usize = 256;
/// What visitors may not say to an origin, in whatever spelling.
const GATEWAY_HEADERS: [&str; 9] = [
    "x-original-url",
    "x-rewrite-url",
    "x-http-method-override",
    "x-middleware-subrequest",
    "x-real-ip",
    "x-tenant-id",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
];

/// An origin on a port of its own.
pub(crate) struct RecordingOrigin {
    pub(crate) address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl RecordingOrigin {
    /// Starts one that tells this ledger what it hears.
    pub(crate) fn start(log: &Arc<RequestLog>) -> RecordingOrigin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let over = Arc::new(AtomicBool::new(false));
        let (log, is_over) = (log.clone(), over.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), log) = (stream, log.clone()) else { continue };
                std::thread::spawn(move || OriginConnection { stream, log, came: Vec::new() }.listen());
            }
        });
        RecordingOrigin { address, over }
    }
}

impl Drop for RecordingOrigin {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts, so that it sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

/// One connection of the gateway.
struct OriginConnection {
    stream: TcpStream,
    log: Arc<RequestLog>,
    came: Vec<u8>,
}

impl OriginConnection {
    fn listen(mut self) {
        while self.hear_one().is_some() {}
    }

    /// Nothing once the connection has ended, or is good for nothing.
    fn hear_one(&mut self) -> Option<()> {
        let mut is_answered = false;
        loop {
            match strict_parser::read(&self.came) {
                Parsed::Whole(request, end) => {
                    // After an early answer the next request may follow at once.
                    if self.came.len() > end && !is_answered {
                        self.violate("more than one request reached the origin at once");
                    }
                    self.judge(&request, end);
                    let may_switch = self.log.hear(&request, true);
                    self.came.drain(..end);
                    if !is_answered {
                        self.answer(&request, may_switch)?;
                    }
                    return Some(());
                }
                Parsed::Part(request, None) => {
                    if !is_answered && request.target.contains("say=early") {
                        is_answered = true;
                        self.answer(&request, false)?;
                    }
                    if self.look().is_none() {
                        self.log.hear(&request, false);
                        return None;
                    }
                }
                Parsed::Open => self.look()?,
                Parsed::Wrong(why) | Parsed::Part(_, Some(why)) => {
                    let bytes = self.came.escape_ascii();
                    self.log.violate(format!("what is malformed reached the origin, {why}: {bytes}"));
                    return None;
                }
            }
        }
    }

    /// Looks for what may not be in a request even if it is well formed.
    fn judge(&self, request: &Request, end: usize) {
        let bytes = &self.came[..end];
        let violate = |what: &str| self.violate(what);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut other = httparse::Request::new(&mut headers);
        let agrees = other.parse(bytes).is_ok_and(|status| status.is_complete())
            && other.method == Some(request.method.as_str())
            && other.path == Some(request.target.as_str())
            && other.version == Some(1)
            && other.headers.len() == request.fields.len();
        if !agrees {
            violate("another parser sees another request");
        }
        for (name, _) in request.fields.iter().chain(&request.trailers) {
            if name.contains('_') || GATEWAY_HEADERS.contains(&name.as_str()) {
                violate(&format!("the origin was told `{name}`"));
            }
        }
        let only = |name: &str| {
            let values: Vec<&[u8]> = request.values(name).collect();
            if let [one] = values.as_slice() { Some(one.to_vec()) } else { None }
        };
        if only("x-forwarded-host").is_none_or(|host| !host.eq_ignore_ascii_case(request.host.as_bytes())) {
            violate("the origin was not told for which host the request is");
        }
        if only("x-forwarded-proto").is_none_or(|scheme| scheme != b"http") {
            violate("the origin was told of another scheme");
        }
        if request.values("x-forwarded-for").any(|address| address != b"127.0.0.1") {
            violate("the origin was told of another address");
        }
        // The same in other words, with an address where there is one.
        let printed = format!("host=\"{}\";proto=http", request.host);
        let is_ours = |value: &[u8]| {
            let value = String::from_utf8_lossy(value);
            value.strip_prefix("for=127.0.0.1;").unwrap_or(&value).eq_ignore_ascii_case(&printed)
        };
        if only("forwarded").is_none_or(|value| !is_ours(&value))
            || request.trailers.iter().any(|(name, _)| name == "forwarded")
        {
            violate("the origin was told another `Forwarded`");
        }
        if request.values("connection").any(|value| value != b"upgrade") {
            violate("the origin was told about another connection");
        }
    }

    fn violate(&self, what: &str) {
        self.log.violate(format!("{what}: {}", self.came.escape_ascii()));
    }

    fn answer(&mut self, request: &Request, may_switch: bool) -> Option<()> {
        let page = format!("{ECHO_PREFIX}{}\n", request.target);
        let says = |what: &str| request.target.contains(what);
        if says("say=switch") {
            let switch =
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
            self.stream.write_all(switch.as_bytes()).ok()?;
            return self.tunnel(may_switch);
        }
        let head = "content-type: text/html\r\n";
        let text = if says("say=chunked") {
            format!(
                "HTTP/1.1 200 OK\r\n{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{page}\r\n0\r\n\r\n",
                page.len()
            )
        } else if says("say=none") {
            "HTTP/1.1 204 No Content\r\n\r\n".to_owned()
        } else {
            let hint = if says("say=hint") { "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" } else { "" };
            format!("{hint}HTTP/1.1 200 OK\r\n{head}content-length: {}\r\n\r\n{page}", page.len())
        };
        // The head tells how long the page is that HEAD does not get.
        let end = text.find(ECHO_PREFIX).filter(|_| request.method == "HEAD" && !says("say=chunked"));
        let text = match end {
            Some(end) => &text[..end],
            None if request.method == "HEAD" => text.split_inclusive("\r\n\r\n").next().unwrap_or_default(),
            None => &text,
        };
        self.stream.write_all(text.as_bytes()).ok()
    }

    /// Sends back what comes. Nothing may come from a visitor who did not ask for this.
    fn tunnel(&mut self, may_switch: bool) -> Option<()> {
        loop {
            let came = std::mem::take(&mut self.came);
            if !came.is_empty() && !may_switch {
                let what = "bytes came through a tunnel that nobody asked for";
                self.log.violate(format!("{what}: {}", came.escape_ascii()));
            }
            self.stream.write_all(&came).ok()?;
            self.look()?;
        }
    }

    fn look(&mut self) -> Option<()> {
        let mut piece = [0; 16 * 1024];
        let count = self.stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        self.came.extend_from_slice(&piece[..count]);
        Some(())
    }
}
