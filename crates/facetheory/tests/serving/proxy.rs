//! A server that can be taken away and given back: a proxy in front of a real one, which counts what it is asked.
//!
//! The servers of the tests are used by others at the same time, so that none of them can be stopped. To a client a stopped
//! proxy looks the same: its connections end, and new ones are refused. Where servers are really stopped, it only counts.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::Failed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};

/// The longest line that is looked at; what is longer is no line of a request's head.
const MOST_BYTES: usize = 16 * 1024;
/// So many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// How a server is away.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// Connections end, and are refused.
    Stopped,
    /// Connections are accepted, and nothing is answered.
    Silent,
}

/// A running proxy. It ends when it is dropped.
pub(crate) struct Proxy {
    runtime: Runtime,
    address: SocketAddr,
    /// Keeps the port while nobody listens on it, so that nobody else can have it.
    _port: TcpSocket,
    server: String,
    seen: Arc<Mutex<Vec<String>>>,
    task: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(crate) fn start(endpoint: &str) -> Result<Proxy, Failed> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let port = bind(([127, 0, 0, 1], 0).into())?;
        let mut proxy = Proxy {
            address: port.local_addr()?,
            _port: port,
            runtime,
            server: endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned(),
            seen: Arc::default(),
            task: None,
        };
        proxy.mend()?;
        Ok(proxy)
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The server is away from now on.
    pub(crate) fn cut(&mut self, how: Cut) -> Result<(), Failed> {
        self.stop();
        if let Cut::Silent = how {
            let listener = self.listen()?;
            self.task = Some(self.runtime.spawn(async move {
                let mut silent = Vec::new();
                while let Ok((client, _)) = listener.accept().await {
                    silent.push(client);
                }
            }));
        }
        Ok(())
    }

    /// The server is back.
    pub(crate) fn mend(&mut self) -> Result<(), Failed> {
        self.stop();
        let listener = self.listen()?;
        self.pass(listener);
        Ok(())
    }

    /// What was asked since this was last called: operations of DynamoDB, methods of S3.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn listen(&self) -> std::io::Result<TcpListener> {
        let _inside = self.runtime.enter();
        bind(self.address)?.listen(BACKLOG)
    }

    fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // It has let go of its port and its connections once it has ended; that it was cancelled is no surprise.
            let _ = self.runtime.block_on(task);
        }
    }

    fn pass(&mut self, listener: TcpListener) {
        let (server, seen) = (self.server.clone(), self.seen.clone());
        self.task = Some(self.runtime.spawn(async move {
            // The connections end with the proxy.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, seen) = (server.clone(), seen.clone());
                connections.spawn(async move {
                    // A connection that breaks is the client's to deal with.
                    let _ = connect(client, &server, &seen).await;
                });
            }
        }));
    }
}

/// Takes a port, which other sockets of ours may have as well. It is refused to clients until one of them listens.
fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Passes everything on in both directions, and reads along in one of them.
async fn connect(client: TcpStream, server: &str, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let asking = async {
        let (mut buffer, mut line) = (vec![0; MOST_BYTES], Vec::new());
        loop {
            let read = from_client.read(&mut buffer).await?;
            if read == 0 {
                return Ok::<_, std::io::Error>(());
            }
            for byte in &buffer[..read] {
                match byte {
                    b'\n' => {
                        seen.lock().unwrap_or_else(PoisonError::into_inner).extend(asked(&line));
                        line.clear();
                    }
                    byte if line.len() < MOST_BYTES => line.push(*byte),
                    _ => line.clear(),
                }
            }
            to_server.write_all(&buffer[..read]).await?;
        }
    };
    // Where one side has ended, the other has nobody left to talk to.
    tokio::select! {
        asked = asking => asked,
        answered = tokio::io::copy(&mut from_server, &mut to_client) => answered.map(drop),
    }
}

/// What a line of a request asks for, if it is one that says so: of DynamoDB a header does, of S3 the request's line,
/// before which the body of the last request may stand.
fn asked(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end();
    if let Some(target) = line.strip_prefix("x-amz-target: ") {
        return target.rsplit('.').next().map(str::to_owned);
    }
    let request = line.strip_suffix(" HTTP/1.1")?;
    ["GET", "PUT", "HEAD", "DELETE"]
        .into_iter()
        .find(|method| request.contains(&format!("{method} /")))
        .map(str::to_owned)
}
