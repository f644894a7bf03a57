//! Tunnels: connections that switched to another protocol, such as WebSocket. Bytes are copied in both directions.

use std::time::Duration;

use futures_util::future::OptionFuture;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::InspectWriter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::Client;
use crate::wire::slow_client::IdleTracker;

/// All open tunnels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tunnels {
    open: TaskTracker,
    stop: CancellationToken,
}

impl Tunnels {
    /// Connects a client with the origin once both have switched, until one side closes or neither reads for so long. The
    /// tunnel holds the permit of the client's connection.
    pub(crate) fn open(&self, client: &Client, io: OnUpgrade, origin: OnUpgrade, idle: Option<Duration>) {
        let (stop, permit) = (self.stop.clone(), client.permit.upgrade());
        self.open.spawn(async move {
            let _permit = permit;
            stop.run_until_cancelled(async {
                match tokio::try_join!(io, origin) {
                    Ok((client, origin)) => copy(TokioIo::new(client), TokioIo::new(origin), idle).await,
                    Err(error) => tracing::debug!(%error, "protocol upgrade failed"),
                }
            })
            .await;
        });
    }

    /// Closes all tunnels: they may last for any time, so shutdown does not wait for them.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.open.close();
        self.open.wait().await;
    }
}

/// Copies bytes in both directions. Writes count as activity, not reads: a side that does not read stops both.
async fn copy<C, O>(client: C, origin: O, idle: Option<Duration>)
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let tracker = IdleTracker::new();
    let touch = |_: &[u8]| tracker.touch();
    let (mut client, mut origin) = (InspectWriter::new(client, touch), InspectWriter::new(origin, touch));
    let idle = OptionFuture::from(idle.map(|limit| tracker.idle(limit)));
    tokio::select! {
        copied = tokio::io::copy_bidirectional(&mut client, &mut origin) => if let Err(error) = copied {
            tracing::debug!(%error, "tunnel failed");
        },
        Some(()) = idle => tracing::debug!("tunnel closed: idle timeout"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, advance};

    const LIMIT: Duration = Duration::from_secs(10);
    const ROOM: usize = 16;

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_that_is_idle_in_both_directions_is_closed() {
        let ((mut client, inner), (outer, mut origin)) = (duplex(ROOM), duplex(ROOM));
        let tunnel = tokio::spawn(copy(inner, outer, Some(LIMIT)));
        for round in 0..6 {
            advance(LIMIT * 2 / 3).await;
            let (from, to) =
                if round % 3 == 0 { (&mut origin, &mut client) } else { (&mut client, &mut origin) };
            from.write_all(b"x").await.expect("the tunnel is open");
            assert_eq!(to.read_u8().await.expect("the byte"), b'x', "round {round}");
        }
        let since = Instant::now();
        assert_eq!(client.read(&mut [0]).await.expect("an end"), 0);
        assert!(since.elapsed() >= LIMIT && since.elapsed() < LIMIT * 2, "{:?}", since.elapsed());
        assert_eq!(origin.read(&mut [0]).await.expect("an end"), 0);
        tunnel.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_with_a_side_that_does_not_read_is_idle() {
        let ((mut client, inner), (outer, _origin)) = (duplex(ROOM), duplex(ROOM));
        let tunnel = tokio::spawn(copy(inner, outer, Some(LIMIT)));
        let flood = tokio::spawn(async move { while client.write_all(b"more").await.is_ok() {} });
        tunnel.await.expect("it ends");
        flood.await.expect("and so does the sender");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_a_tunnel_may_be_idle() {
        let ((mut client, inner), (outer, mut origin)) = (duplex(ROOM), duplex(ROOM));
        tokio::spawn(copy(inner, outer, None));
        advance(LIMIT * 100_000).await;
        client.write_all(b"x").await.expect("it is open");
        assert_eq!(origin.read_u8().await.expect("the byte"), b'x');
    }
}
