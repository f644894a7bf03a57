//! A proxy in front of a server, which counts requests and can simulate that the server is down.
//!
//! Other tests use the same servers at the same time, so the servers themselves cannot be stopped. To a client a
//! stopped proxy looks the same: its connections end, and new ones are refused. In tests that really stop servers it
//! only counts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use libtest_mimic::Failed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};

/// The longest line of a request head that is inspected.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// How a server fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// Connections are closed and refused.
    Stopped,
    /// Connections are accepted, but no response is sent.
    Unresponsive,
}

/// A running proxy, stopped when it is dropped.
pub(crate) struct Proxy {
    runtime: Runtime,
    address: SocketAddr,
    /// Reserves the port while the proxy is stopped.
    _port: TcpSocket,
    server: String,
    seen: Arc<Mutex<Vec<String>>>,
    denies_puts: Arc<AtomicBool>,
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
            denies_puts: Arc::default(),
            task: None,
        };
        proxy.restore()?;
        Ok(proxy)
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Simulates a failure from now on.
    pub(crate) fn fail(&mut self, failure: Failure) -> Result<(), Failed> {
        self.stop();
        if let Failure::Unresponsive = failure {
            let listener = self.listen()?;
            self.task = Some(self.runtime.spawn(async move {
                let mut open = Vec::new();
                while let Ok((client, _)) = listener.accept().await {
                    open.push(client);
                }
            }));
        }
        Ok(())
    }

    /// Responds to every PUT of S3 with 403 from now on, as without `s3:PutObject`.
    pub(crate) fn deny_puts(&self) {
        self.denies_puts.store(true, Ordering::SeqCst);
    }

    /// Forwards to the server again.
    pub(crate) fn restore(&mut self) -> Result<(), Failed> {
        self.stop();
        let listener = self.listen()?;
        self.forward(listener);
        Ok(())
    }

    /// The requests since the last call: operations of DynamoDB, methods of S3.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().expect("not poisoned"))
    }

    fn listen(&self) -> std::io::Result<TcpListener> {
        let _inside = self.runtime.enter();
        bind(self.address)?.listen(BACKLOG)
    }

    fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // Its port and connections are closed only once the task has ended; the result says that it was cancelled.
            let _ = self.runtime.block_on(task);
        }
    }

    fn forward(&mut self, listener: TcpListener) {
        let (server, seen, denies_puts) = (self.server.clone(), self.seen.clone(), self.denies_puts.clone());
        self.task = Some(self.runtime.spawn(async move {
            // Dropped with the task, which closes the connections.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, seen, denies_puts) = (server.clone(), seen.clone(), denies_puts.clone());
                connections.spawn(async move {
                    // A broken connection is an error for the client to handle.
                    let _ = connect(client, &server, &seen, &denies_puts).await;
                });
            }
        }));
    }
}

/// Binds a port that several of our sockets may share. Clients are refused until one of them listens.
fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Forwards both directions, and records the requests.
async fn connect(
    client: TcpStream,
    server: &str,
    seen: &Mutex<Vec<String>>,
    denies_puts: &AtomicBool,
) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let requests = async {
        let (mut buffer, mut line) = (vec![0; MAX_LINE_BYTES], Vec::new());
        loop {
            let read = from_client.read(&mut buffer).await?;
            if read == 0 {
                return Ok::<_, std::io::Error>(false);
            }
            let mut is_put = false;
            for byte in &buffer[..read] {
                match byte {
                    b'\n' => {
                        let operation = operation(&line);
                        is_put |= operation.as_deref() == Some("PUT");
                        seen.lock().expect("not poisoned").extend(operation);
                        line.clear();
                    }
                    byte if line.len() < MAX_LINE_BYTES => line.push(*byte),
                    _ => line.clear(),
                }
            }
            if is_put && denies_puts.load(Ordering::SeqCst) {
                return Ok(true);
            }
            to_server.write_all(&buffer[..read]).await?;
        }
    };
    // The connection is over when either side has closed it.
    let is_denied = tokio::select! {
        result = requests => result?,
        result = tokio::io::copy(&mut from_server, &mut to_client) => result.map(|_| false)?,
    };
    if is_denied {
        let denied = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        to_client.write_all(denied.as_bytes()).await?;
    }
    Ok(())
}

/// The operation that a line of a request names, if any: for DynamoDB in a header, for S3 in the request line, which
/// may follow the body of the previous request on the same line.
fn operation(line: &[u8]) -> Option<String> {
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
