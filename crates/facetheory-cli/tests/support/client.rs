//! A client that sends arbitrary bytes and reads the responses.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::TIMEOUT;

/// A connection to a server, on which anything may be sent.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes that were received and not used yet.
    buffer: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// Its status.
    pub(crate) status: u16,
    /// Its headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Its body; truncated if the connection closed.
    pub(crate) body: Vec<u8>,
    /// Whether the body is complete.
    pub(crate) complete: bool,
}

enum ReadResult {
    Bytes,
    Closed,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(address: SocketAddr) -> Connection {
        Connection::over(TcpStream::connect(address).expect("the server listens"))
    }

    /// Connects, or returns `None` if the server does not accept.
    pub(crate) fn try_open(address: SocketAddr) -> Option<Connection> {
        TcpStream::connect(address).ok().map(Connection::over)
    }

    fn over(stream: TcpStream) -> Connection {
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a socket");
        Connection { stream, buffer: Vec::new() }
    }

    /// Sends bytes. Returns false if the server has closed the connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        match self.stream.write_all(bytes.as_ref()) {
            Ok(()) => true,
            Err(error) if is_cut(error.kind()) => false,
            Err(error) => panic!("the server neither reads nor closes: {error}"),
        }
    }

    /// Sends these bytes one by one, again and again with pauses, in the background, until the server closes. It never ends before,
    /// so that a timeout which starts again with each byte does not expire.
    pub(crate) fn trickle(&self, bytes: Vec<u8>) {
        let mut stream = self.stream.try_clone().expect("a socket");
        std::thread::spawn(move || {
            for byte in bytes.into_iter().cycle() {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(super::POLL_INTERVAL);
            }
        });
    }

    /// Closes the sending direction.
    pub(crate) fn finish(&mut self) {
        // Fails if the server has closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next response to a request other than HEAD.
    ///
    /// # Panics
    /// If the connection closes before.
    pub(crate) fn response(&mut self) -> Response {
        self.next_response("GET").expect("a response before the connection closes")
    }

    /// The next final response to a request of this method; `None` if the connection closes before.
    pub(crate) fn next_response(&mut self, method: &str) -> Option<Response> {
        loop {
            let response = self.next_response_or_interim(method)?;
            if !(100..200).contains(&response.status) || response.status == 101 {
                return Some(response);
            }
        }
    }

    /// The next response to a request of this method, including interim ones.
    pub(crate) fn next_response_or_interim(&mut self, method: &str) -> Option<Response> {
        let end = self.find(b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let pair = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers = lines.map(pair).collect();
        let status = status.unwrap_or_else(|| panic!("no status in {status_line:?}"));
        let mut response = Response { status, headers, body: Vec::new(), complete: true };
        if method != "HEAD" && !matches!(status, 100..200 | 204 | 304) {
            self.read_body(&mut response);
        }
        Some(response)
    }

    /// Reads this many bytes, or fewer if the connection closes before.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count && matches!(self.read_more(), ReadResult::Bytes) {}
        self.buffer.drain(..count.min(self.buffer.len())).collect()
    }

    /// Reads until the connection closes.
    ///
    /// # Panics
    /// If it does not close.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        while matches!(self.read_more(), ReadResult::Bytes) {}
        std::mem::take(&mut self.buffer)
    }

    /// Fails unless the server closes the connection without sending more.
    pub(crate) fn assert_closed(&mut self) {
        let rest = self.read_to_end();
        assert!(rest.is_empty(), "unexpected bytes: {}", String::from_utf8_lossy(&rest));
    }

    fn read_body(&mut self, response: &mut Response) {
        if response.header("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            response.complete = self.chunks(&mut response.body).is_some();
        } else if let Some(length) = response.header("content-length") {
            let length: usize = length.parse().expect("a length");
            response.body = self.bytes(length);
            response.complete = response.body.len() == length;
        } else {
            response.body = self.read_to_end();
        }
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> Option<()> {
        loop {
            let end = self.find(b"\r\n")?;
            let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
            self.buffer.drain(..end + 2);
            let size = usize::from_str_radix(&line, 16).expect("the size of a chunk");
            if size == 0 {
                // Trailers follow, up to an empty line.
                while self.find(b"\r\n")? > 0 {
                    let end = self.find(b"\r\n")?;
                    self.buffer.drain(..end + 2);
                }
                self.buffer.drain(..2);
                return Some(());
            }
            let piece = self.bytes(size + 2);
            body.extend_from_slice(&piece[..size.min(piece.len())]);
            if piece.len() < size + 2 {
                return None;
            }
        }
    }

    /// Reads until these bytes occur, and returns their position; `None` if the connection closes before.
    fn find(&mut self, sought: &[u8]) -> Option<usize> {
        loop {
            if let Some(at) = self.buffer.windows(sought.len()).position(|window| window == sought) {
                return Some(at);
            }
            if matches!(self.read_more(), ReadResult::Closed) {
                return None;
            }
        }
    }

    fn read_more(&mut self) -> ReadResult {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => ReadResult::Closed,
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                ReadResult::Bytes
            }
            Err(error) if is_cut(error.kind()) => ReadResult::Closed,
            Err(error) => panic!("the server neither sends nor closes: {error}"),
        }
    }
}

/// Whether the peer has closed the connection.
fn is_cut(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted)
}

impl Response {
    /// The first header with this name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The cache state, such as `miss` or `hit`; "" if the response did not come from the cache.
    pub(crate) fn state(&self) -> &str {
        self.header("x-facetheory-isr").unwrap_or_default()
    }

    /// The body, as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
