//! Open connections to the origin. One that is idle is reused for the next request.
//!
//! There are never more connections than permits of the [`ConnectionQueue`](super::connection_queue::ConnectionQueue): a
//! permit is held until its connection is idle or closed, and a connection is opened only while none is idle. If a request
//! is cancelled, its connection is closed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::body::{BodyError, RequestBody};
use super::connection_queue::ConnectionPermit;
use super::upstream_io::{Connector, UpstreamState};

/// The number of unused connections to the origin that stay open.
const MAX_IDLE_CONNECTIONS: usize = 256;
/// The number of headers of a response.
const MAX_HEADERS: usize = 200;
/// The size of a response's headers.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// The connections to the origin. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct OriginPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connector: Connector,
    address: Uri,
    /// How long an idle connection stays open.
    keep_alive: Duration,
    idle: Mutex<IdleConnections>,
}

/// Idle connections, in the order in which they became idle.
#[derive(Debug, Default)]
struct IdleConnections {
    connections: Vec<(Instant, Connection)>,
    /// Whether a task closes those that are idle for too long.
    is_watched: bool,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<RequestBody>,
    state: Arc<UpstreamState>,
    /// Ends when the connection is closed.
    task: JoinHandle<()>,
    is_reused: bool,
}

/// Why a request got no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// There is no connection.
    Connect(BodyError),
    /// The request failed on its connection.
    Request {
        error: hyper::Error,
        /// Whether the origin may have closed the connection before it saw the request.
        may_have_closed_before: bool,
    },
}

/// Which connection a request is sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// An idle one, if there is one.
    Idle,
    /// A new one, which the origin cannot have closed just before.
    Never,
}

impl OriginPool {
    pub(crate) fn new(connector: Connector, address: Uri, keep_alive: Duration) -> Self {
        OriginPool { shared: Arc::new(Shared { connector, address, keep_alive, idle: Mutex::default() }) }
    }

    /// Connects to the origin, and closes the connection again.
    pub(crate) fn probe(&self) -> impl Future<Output = Result<(), BodyError>> + Send + use<> {
        let (connector, address) = (self.shared.connector.clone(), self.shared.address.clone());
        async move { connector.connect(address).await.map(drop) }
    }

    /// Sends a request, whose URI is a path, and returns the response once its headers have arrived.
    pub(crate) async fn send(
        &self,
        mut request: Request<RequestBody>,
        mut permit: ConnectionPermit,
        reuse: Reuse,
    ) -> Result<Response<Incoming>, SendError> {
        // Each round but the last uses up an idle connection.
        loop {
            let mut connection = match self.shared.take_idle(reuse) {
                Some(connection) => connection,
                None => self.shared.connect().await.map_err(SendError::Connect)?,
            };
            let (is_reused, state) = (connection.is_reused, connection.state.clone());
            let sending = connection.sender.try_send_request(request);
            let mut in_use = InUse { held: Some((connection, permit)), pool: &self.shared };
            let mut failed = match sending.await {
                Ok(mut response) => {
                    response.extensions_mut().insert(state);
                    in_use.finish();
                    return Ok(response);
                }
                Err(failed) => failed,
            };
            // Nothing of the request was sent, so it may be sent again, whatever its method.
            if let (true, Some(unsent)) = (is_reused, failed.take_message())
                && let Some((_closed, free)) = in_use.held.take()
            {
                (request, permit) = (unsent, free);
                continue;
            }
            let may_have_closed_before = state.may_have_closed_before_request();
            return Err(SendError::Request { error: failed.into_error(), may_have_closed_before });
        }
    }
}

impl Shared {
    async fn connect(&self) -> Result<Connection, BodyError> {
        let io = self.connector.connect(self.address.clone()).await?;
        let state = io.state();
        let mut builder = Builder::new();
        builder.max_headers(MAX_HEADERS).max_buf_size(MAX_HEADER_BYTES);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        let task = tokio::spawn(async move {
            // The request that failed has the same error.
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to the origin failed");
            }
        });
        Ok(Connection { sender, state, task, is_reused: false })
    }

    /// Takes the connection that became idle last. If it must not be reused, it is closed, to make room for a new one.
    fn take_idle(&self, reuse: Reuse) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some((since, connection)) = idle.connections.pop() {
            if reuse == Reuse::Never {
                return None;
            }
            if since.elapsed() >= self.keep_alive {
                // All others have been idle for longer.
                idle.connections.clear();
            } else if connection.sender.is_ready() {
                return Some(Connection { is_reused: true, ..connection });
            }
        }
        None
    }

    /// Keeps a connection open for the next request.
    fn put_idle(self: &Arc<Self>, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.connections.len() >= MAX_IDLE_CONNECTIONS || self.keep_alive.is_zero() {
            return;
        }
        idle.connections.push((Instant::now(), connection));
        if !std::mem::replace(&mut idle.is_watched, true) {
            tokio::spawn(Shared::close_idle(Arc::downgrade(self), self.keep_alive));
        }
    }

    /// Closes connections that have been idle for too long, until none is left.
    async fn close_idle(pool: Weak<Self>, keep_alive: Duration) {
        loop {
            tokio::time::sleep(keep_alive).await;
            let Some(pool) = pool.upgrade() else { return };
            let mut idle = pool.idle.lock();
            idle.connections
                .retain(|(since, connection)| since.elapsed() < keep_alive && !connection.sender.is_closed());
            if idle.connections.is_empty() {
                idle.is_watched = false;
                return;
            }
        }
    }
}

/// A connection with a request on it. It is closed when this is dropped: the request was cancelled, or has failed.
struct InUse<'a> {
    held: Option<(Connection, ConnectionPermit)>,
    pool: &'a Arc<Shared>,
}

impl InUse<'_> {
    /// Makes the connection idle once the response has ended.
    fn finish(mut self) {
        let Some((mut connection, permit)) = self.held.take() else { return };
        if connection.sender.is_ready() {
            return self.pool.put_idle(connection);
        }
        let pool = self.pool.clone();
        tokio::spawn(async move {
            if connection.sender.ready().await.is_ok() {
                pool.put_idle(connection);
            } else {
                close(connection, permit).await;
            }
        });
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if let (Some((connection, permit)), Ok(runtime)) = (self.held.take(), Handle::try_current()) {
            runtime.spawn(close(connection, permit));
        }
    }
}

/// Closes a connection, and returns its permit once it is closed.
async fn close(Connection { sender, task, .. }: Connection, permit: ConnectionPermit) {
    drop(sender);
    // It fails only if it panicked, and then the connection is closed too.
    let _ = task.await;
    drop(permit);
}
