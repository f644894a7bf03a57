//! Connections that have switched to another protocol, such as WebSocket: bytes in both directions, until either end closes.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::Client;

/// All of them, to be ended with the gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tunnels {
    open: TaskTracker,
    stop: CancellationToken,
}

impl Tunnels {
    /// Joins a visitor and the origin, once both have switched. The visitor's connection keeps its place.
    pub(crate) fn join(&self, (visitor, client): (OnUpgrade, Arc<Client>), origin: OnUpgrade) {
        let stop = self.stop.clone();
        self.open.spawn(async move {
            let _place = client.place.clone();
            tokio::select! {
                () = copy(visitor, origin) => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Ends all of them: nobody knows when such a protocol would.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.open.close();
        self.open.wait().await;
    }
}

async fn copy(visitor: OnUpgrade, origin: OnUpgrade) {
    let (visitor, origin) = match tokio::try_join!(visitor, origin) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(%error, "a connection did not switch");
            return;
        }
    };
    let ended = tokio::io::copy_bidirectional(&mut TokioIo::new(visitor), &mut TokioIo::new(origin)).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a tunnel broke off");
    }
}
