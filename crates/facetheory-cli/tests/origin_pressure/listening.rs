//! An origin whose port can be closed and opened again, and which counts its connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// An origin that responds to each request with the same short page, once it may.
pub(crate) struct ListeningOrigin {
    pub(crate) address: SocketAddr,
    runtime: Arc<Runtime>,
    counts: Arc<Counts>,
    accepting: Mutex<Option<JoinHandle<()>>>,
    is_responding: watch::Sender<bool>,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    most: AtomicUsize,
    requests: AtomicUsize,
}

impl ListeningOrigin {
    /// Starts an origin that responds at once, or not before [`respond`](Self::respond).
    pub(crate) fn start(runtime: &Arc<Runtime>, is_responding: bool) -> Self {
        let (counts, (is_responding, _)) = (Arc::default(), watch::channel(is_responding));
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut origin = ListeningOrigin {
            address: any,
            runtime: runtime.clone(),
            counts,
            accepting: Mutex::new(None),
            is_responding,
        };
        origin.address = origin.listen();
        origin
    }

    /// Opens the port.
    pub(crate) fn listen(&self) -> SocketAddr {
        let listener = self.runtime.block_on(async {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_reuseaddr(true).expect("a socket");
            socket.bind(self.address).expect("the port is free");
            socket.listen(BACKLOG).expect("a listener")
        });
        let address = listener.local_addr().expect("an address");
        let serving = accept(listener, self.counts.clone(), self.is_responding.subscribe());
        *self.accepting.lock() = Some(self.runtime.spawn(serving));
        address
    }

    /// Closes the port and all connections. Returns once connections are refused.
    pub(crate) fn refuse(&self) {
        let accepting = self.accepting.lock().take().expect("it listens");
        accepting.abort();
        // It was cancelled.
        let _ = self.runtime.block_on(accepting);
    }

    /// Responds to all requests.
    pub(crate) fn respond(&self) {
        self.is_responding.send_replace(true);
    }

    /// Responds to no further request.
    pub(crate) fn pause(&self) {
        self.is_responding.send_replace(false);
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.counts.open.load(Ordering::SeqCst)
    }

    /// The most connections that were open at the same time.
    pub(crate) fn most(&self) -> usize {
        self.counts.most.load(Ordering::SeqCst)
    }

    /// The number of requests that have arrived.
    pub(crate) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, counts: Arc<Counts>, is_responding: watch::Receiver<bool>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let open = counts.open.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most.fetch_max(open, Ordering::SeqCst);
        let (open, is_responding) = (Open(counts.clone()), is_responding.clone());
        connections.spawn(async move {
            // A broken connection is the end of it.
            let _ = serve(stream, &open.0, is_responding).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Counts a connection until it is closed.
struct Open(Arc<Counts>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(
    mut stream: TcpStream,
    counts: &Counts,
    mut is_responding: watch::Receiver<bool>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        while let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
            buffer.drain(..end + 4);
            while buffer.len() < length {
                match stream.read(&mut piece).await? {
                    0 => return Ok(()),
                    count => buffer.extend_from_slice(&piece[..count]),
                }
            }
            buffer.drain(..length);
            counts.requests.fetch_add(1, Ordering::SeqCst);
            // A gateway that gives the request up closes the connection.
            tokio::select! {
                responding = is_responding.wait_for(|may| *may) => drop(responding),
                closed = stream.read(&mut piece) => return closed.map(drop),
            }
            let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 11\r\n\r\n<p>page</p>";
            stream.write_all(page.as_bytes()).await?;
        }
        match stream.read(&mut piece).await? {
            0 => return Ok(()),
            count => buffer.extend_from_slice(&piece[..count]),
        }
    }
}
