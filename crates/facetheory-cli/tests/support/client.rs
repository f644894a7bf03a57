//! A visitor who sends bytes, right or wrong, and reads what comes back.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::HANG;

/// A connection to a server, on which anything may be sent.
pub(crate) struct Connection {
    stream: TcpStream,
    /// What has come and was not looked at yet.
    ahead: Vec<u8>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// Its status.
    pub(crate) status: u16,
    /// Its headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Its body; as much as came, if it was cut.
    pub(crate) body: Vec<u8>,
    /// Whether the body came to its end.
    pub(crate) complete: bool,
}

/// What comes of one look at the connection.
enum Came {
    Bytes,
    End,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(address: SocketAddr) -> Connection {
        Connection::over(TcpStream::connect(address).expect("the server listens"))
    }

    /// Connects, if that can be done now.
    pub(crate) fn try_open(address: SocketAddr) -> Option<Connection> {
        TcpStream::connect(address).ok().map(Connection::over)
    }

    fn over(stream: TcpStream) -> Connection {
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(HANG)).expect("a socket");
        stream.set_write_timeout(Some(HANG)).expect("a socket");
        Connection { stream, ahead: Vec::new() }
    }

    /// Sends bytes. A server that has had enough need not take all of them: its answer tells.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        match self.stream.write_all(bytes.as_ref()) {
            Ok(()) => true,
            Err(error) if is_cut(error.kind()) => false,
            Err(error) => panic!("the server takes nothing more, and does not close: {error}"),
        }
    }

    /// Sends these bytes one after the other with a rest after each, while the connection goes on being read, until the
    /// server has had enough or none are left.
    pub(crate) fn trickle(&self, bytes: Vec<u8>) {
        let mut stream = self.stream.try_clone().expect("a socket");
        std::thread::spawn(move || {
            for byte in bytes {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(super::REST);
            }
        });
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&mut self) {
        // A server that is gone has nothing to be told.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next answer, to anything but HEAD.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn answer(&mut self) -> Response {
        self.next_answer("GET").expect("an answer before the connection closes")
    }

    /// The next answer to a request of this method, without those that are only interim; none if the connection closes.
    pub(crate) fn next_answer(&mut self, method: &str) -> Option<Response> {
        loop {
            let response = self.next_of_any_status(method)?;
            if !(100..200).contains(&response.status) || response.status == 101 {
                return Some(response);
            }
        }
    }

    /// The next answer to a request of this method, interim ones included.
    pub(crate) fn next_of_any_status(&mut self, method: &str) -> Option<Response> {
        let end = self.find(b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&self.ahead[..end]).into_owned();
        self.ahead.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let pair = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers = lines.map(pair).collect();
        let status = status.unwrap_or_else(|| panic!("no status: {status_line}"));
        let mut response = Response { status, headers, body: Vec::new(), complete: true };
        if method != "HEAD" && !matches!(status, 100..200 | 204 | 304) {
            self.read_body(&mut response);
        }
        Some(response)
    }

    /// So many bytes as they come, or fewer if the connection closes before.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.ahead.len() < count && matches!(self.look(), Came::Bytes) {}
        self.ahead.drain(..count.min(self.ahead.len())).collect()
    }

    /// All that comes until the connection closes.
    ///
    /// # Panics
    /// When it does not close.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while matches!(self.look(), Came::Bytes) {}
        std::mem::take(&mut self.ahead)
    }

    /// Fails unless the server closes the connection and sends nothing more.
    pub(crate) fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "more has come: {}", String::from_utf8_lossy(&rest));
    }

    fn read_body(&mut self, response: &mut Response) {
        if response.header("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            response.complete = self.chunks(&mut response.body).is_some();
        } else if let Some(length) = response.header("content-length") {
            let length: usize = length.parse().expect("a length");
            response.body = self.bytes(length);
            response.complete = response.body.len() == length;
        } else {
            response.body = self.rest();
        }
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> Option<()> {
        loop {
            let end = self.find(b"\r\n")?;
            let line = String::from_utf8_lossy(&self.ahead[..end]).into_owned();
            self.ahead.drain(..end + 2);
            let size = usize::from_str_radix(&line, 16).expect("the size of a chunk");
            if size == 0 {
                // What follows are trailers, up to an empty line.
                while self.find(b"\r\n")? > 0 {
                    let end = self.find(b"\r\n")?;
                    self.ahead.drain(..end + 2);
                }
                self.ahead.drain(..2);
                return Some(());
            }
            let piece = self.bytes(size + 2);
            body.extend_from_slice(&piece[..size.min(piece.len())]);
            if piece.len() < size + 2 {
                return None;
            }
        }
    }

    /// Where this comes first in what has come, waiting for it; none if the connection closes before.
    fn find(&mut self, sought: &[u8]) -> Option<usize> {
        loop {
            if let Some(at) = self.ahead.windows(sought.len()).position(|window| window == sought) {
                return Some(at);
            }
            if matches!(self.look(), Came::End) {
                return None;
            }
        }
    }

    fn look(&mut self) -> Came {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => Came::End,
            Ok(count) => {
                self.ahead.extend_from_slice(&piece[..count]);
                Came::Bytes
            }
            Err(error) if is_cut(error.kind()) => Came::End,
            Err(error) => panic!("nothing comes, and the connection does not close: {error}"),
        }
    }
}

/// Whether the other end is gone.
fn is_cut(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted)
}

impl Response {
    /// The first header of this name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// How the visit ended: `miss`, `hit` and so on; nothing where the answer is none of the cache's.
    pub(crate) fn state(&self) -> &str {
        self.header("x-facetheory-isr").unwrap_or_default()
    }

    /// The body, as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
