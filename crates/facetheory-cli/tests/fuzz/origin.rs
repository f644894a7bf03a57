//! The origin of the fuzzer: it parses the gateway's requests strictly and reports them to the request log.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::request_log::RequestLog;
use crate::strict_parser::{self, Parsed, Request};

/// The prefix of every page, followed by its target.
pub(crate) const ECHO_PREFIX: &str = "requested ";
/// The most headers of a request.
const MAX_HEADERS: usize = 256;
/// Headers that only the gateway may set, in any case.
const GATEWAY_HEADERS: &str = "x-original-url x-rewrite-url x-http-method-override x-middleware-subrequest x-real-ip \
    x-tenant-id keep-alive proxy-connection proxy-authorization";

/// An origin on a free port.
pub(crate) struct RecordingOrigin {
    pub(crate) address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl RecordingOrigin {
    /// Starts an origin that reports to this log.
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
                std::thread::spawn(move || {
                    let mut connection = OriginConnection { stream, log, received: Vec::new() };
                    while connection.serve_one().is_some() {}
                });
            }
        });
        RecordingOrigin { address, over }
    }
}

impl Drop for RecordingOrigin {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, so that it ends.
        let _ = TcpStream::connect(self.address);
    }
}

/// A connection of the gateway.
struct OriginConnection {
    stream: TcpStream,
    log: Arc<RequestLog>,
    received: Vec<u8>,
}

impl OriginConnection {
    /// Serves one request; `None` once the connection has ended or is unusable.
    fn serve_one(&mut self) -> Option<()> {
        let mut has_responded = false;
        loop {
            match strict_parser::read(&self.received) {
                Parsed::Complete(request, end) => {
                    // After an early response the next request may follow immediately.
                    if self.received.len() > end && !has_responded {
                        self.violate("pipelined requests reached the origin");
                    }
                    self.check(&request, end);
                    let may_switch = self.log.receive(&request, true);
                    self.received.drain(..end);
                    if !has_responded {
                        self.respond(&request, may_switch)?;
                    }
                    return Some(());
                }
                Parsed::Part(request, None) => {
                    if !has_responded && request.target.contains("say=early") {
                        has_responded = true;
                        self.respond(&request, false)?;
                    }
                    if self.read_more().is_none() {
                        self.log.receive(&request, false);
                        return None;
                    }
                }
                Parsed::Open => self.read_more()?,
                Parsed::Invalid(why) | Parsed::Part(_, Some(why)) => {
                    let bytes = self.received.escape_ascii();
                    self.log.violate(format!("malformed bytes reached the origin, {why}: {bytes}"));
                    return None;
                }
            }
        }
    }

    /// Checks for well-formed content that must not reach the origin.
    fn check(&self, request: &Request, end: usize) {
        let bytes = &self.received[..end];
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
            if name.contains('_') || GATEWAY_HEADERS.split(' ').any(|header| header == name) {
                violate(&format!("`{name}` reached the origin"));
            }
        }
        let only = |name: &str| {
            let values: Vec<&[u8]> = request.values(name).collect();
            if let [one] = values.as_slice() { Some(one.to_vec()) } else { None }
        };
        if only("x-forwarded-host").is_none_or(|host| !host.eq_ignore_ascii_case(request.host.as_bytes())) {
            violate("the Host is missing or wrong");
        }
        if only("x-forwarded-proto").is_none_or(|scheme| scheme != b"http") {
            violate("X-Forwarded-Proto is wrong");
        }
        // The client, or the address that renders have.
        let address = only("x-forwarded-for").unwrap_or_default();
        if ![&b"127.0.0.1"[..], b"192.0.2.1"].contains(&&*address) {
            violate("X-Forwarded-For is wrong");
        }
        // `Forwarded` must agree with the X-Forwarded headers.
        let address = String::from_utf8_lossy(&address);
        let printed = format!("for={address};host=\"{}\";proto=http", request.host);
        let is_ours = |value: &[u8]| String::from_utf8_lossy(value).eq_ignore_ascii_case(&printed);
        if only("forwarded").is_none_or(|value| !is_ours(&value))
            || request.trailers.iter().any(|(name, _)| name == "forwarded")
        {
            violate("Forwarded is wrong");
        }
        if request.values("connection").any(|value| value != b"upgrade") {
            violate("Connection is wrong");
        }
    }

    fn violate(&self, what: &str) {
        self.log.violate(format!("{what}: {}", self.received.escape_ascii()));
    }

    fn respond(&mut self, request: &Request, may_switch: bool) -> Option<()> {
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
        // The response to HEAD has the length of the page.
        let end = text.find(ECHO_PREFIX).filter(|_| request.method == "HEAD" && !says("say=chunked"));
        let text = match end {
            Some(end) => &text[..end],
            None if request.method == "HEAD" => text.split_inclusive("\r\n\r\n").next().unwrap_or_default(),
            None => &text,
        };
        self.stream.write_all(text.as_bytes()).ok()
    }

    /// Echoes bytes. None may come from a client that did not request an upgrade.
    fn tunnel(&mut self, may_switch: bool) -> Option<()> {
        loop {
            let received = std::mem::take(&mut self.received);
            if !received.is_empty() && !may_switch {
                let what = "bytes came through a tunnel that was not requested";
                self.log.violate(format!("{what}: {}", received.escape_ascii()));
            }
            self.stream.write_all(&received).ok()?;
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> Option<()> {
        let mut piece = [0; 16 * 1024];
        let count = self.stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        self.received.extend_from_slice(&piece[..count]);
        Some(())
    }
}
