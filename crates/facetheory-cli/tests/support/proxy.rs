//! A proxy between gateways and a server. SDK clients pool idle connections for a minute and a half; closing them at
//! the proxy distinguishes them from leaked ones.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A proxy that forwards everything.
pub(crate) struct Proxy {
    address: SocketAddr,
    close_all: Arc<Notify>,
}

impl Proxy {
    /// Starts a proxy to the server of this endpoint.
    pub(crate) fn start(runtime: &Runtime, endpoint: &str) -> Proxy {
        let server = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let (address, close_all) = (listener.local_addr().expect("an address"), Arc::new(Notify::new()));
        runtime.spawn(pass(listener, server, close_all.clone()));
        Proxy { address, close_all }
    }

    /// The endpoint of the proxy.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes all open connections.
    pub(crate) fn close_all(&self) {
        self.close_all.notify_one();
    }
}

async fn pass(listener: TcpListener, server: String, close_all: Arc<Notify>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (Ok((client, _)), server) = (accepted, server.clone()) else { continue };
                // A broken connection is an error for the client to handle.
                connections.spawn(async move { join(client, &server).await.ok() });
            }
            () = close_all.notified() => connections.abort_all(),
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
