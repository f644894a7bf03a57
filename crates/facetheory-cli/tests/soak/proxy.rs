//! A line between gateways and a server. Clients keep connections for a minute and a half that nobody uses; so that they
//! can be told from those that leak, the line can hang up.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A line that passes everything on.
pub(crate) struct Proxy {
    address: SocketAddr,
    hang_up: Arc<Notify>,
}

impl Proxy {
    /// A line to the server of an endpoint.
    pub(crate) fn start(runtime: &Runtime, endpoint: &str) -> Proxy {
        let server = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let (address, hang_up) = (listener.local_addr().expect("an address"), Arc::new(Notify::new()));
        runtime.spawn(pass(listener, server, hang_up.clone()));
        Proxy { address, hang_up }
    }

    /// Where gateways find it.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes all connections that are open. Who needs one makes a new one.
    pub(crate) fn hang_up(&self) {
        self.hang_up.notify_one();
    }
}

async fn pass(listener: TcpListener, server: String, hang_up: Arc<Notify>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (Ok((client, _)), server) = (accepted, server.clone()) else { continue };
                // A connection that breaks, or a server that is away, is the client's to deal with.
                connections.spawn(async move { join(client, &server).await.ok() });
            }
            () = hang_up.notified() => connections.abort_all(),
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn join(mut client: TcpStream, server: &str) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
