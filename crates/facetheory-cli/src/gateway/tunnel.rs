//! Connections that have switched to another protocol, such as WebSocket: bytes in both directions, until either end closes or both are silent for
//! too long.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::Client;
use super::idle_tracker::{IdleTracker, TrackedIo};

/// All of them, to be ended with the gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tunnels {
    open: TaskTracker,
    stop: CancellationToken,
}

impl Tunnels {
    /// Joins a visitor and the origin, once both have switched, until nothing has come from either for so long. The visitor's
    /// connection keeps its place.
    pub(crate) fn join(
        &self,
        (visitor, client): (OnUpgrade, Arc<Client>),
        origin: OnUpgrade,
        idle: Option<Duration>,
    ) {
        let (stop, place) = (self.stop.clone(), client.place.upgrade());
        self.open.spawn(async move {
            let _place = place;
            tokio::select! {
                () = joined(visitor, origin, idle) => {}
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

async fn joined(visitor: OnUpgrade, origin: OnUpgrade, idle: Option<Duration>) {
    match tokio::try_join!(visitor, origin) {
        Ok((visitor, origin)) => between(TokioIo::new(visitor), TokioIo::new(origin), idle).await,
        Err(error) => tracing::debug!(%error, "a connection did not switch"),
    }
}

/// Passes on what comes, in both directions. What counts is what the other end takes: one that takes nothing holds up both.
async fn between<V, O>(visitor: V, origin: O, idle: Option<Duration>)
where
    V: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let activity = IdleTracker::new();
    let mut visitor = TrackedIo::new(visitor, activity.clone());
    let mut origin = TrackedIo::new(origin, activity.clone());
    let rests = async {
        match idle {
            Some(limit) => activity.rests(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = tokio::io::copy_bidirectional(&mut visitor, &mut origin) => if let Err(error) = ended {
            tracing::debug!(%error, "a tunnel broke off");
        },
        () = rests => tracing::debug!("a tunnel was idle for too long"),
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
    async fn a_tunnel_ends_when_nothing_has_come_through_it_in_either_direction_for_too_long() {
        let ((mut visitor, inner), (outer, mut origin)) = (duplex(ROOM), duplex(ROOM));
        let tunnel = tokio::spawn(between(inner, outer, Some(LIMIT)));
        for round in 0..6 {
            advance(LIMIT * 2 / 3).await;
            let (from, to) =
                if round % 3 == 0 { (&mut origin, &mut visitor) } else { (&mut visitor, &mut origin) };
            from.write_all(b"x").await.expect("the tunnel is open");
            assert_eq!(to.read_u8().await.expect("what was sent"), b'x', "round {round}");
        }
        let since = Instant::now();
        assert_eq!(visitor.read(&mut [0]).await.expect("an end"), 0);
        assert!(since.elapsed() >= LIMIT && since.elapsed() < LIMIT * 2, "{:?}", since.elapsed());
        assert_eq!(origin.read(&mut [0]).await.expect("an end"), 0);
        tunnel.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_whose_end_takes_nothing_rests() {
        let ((mut visitor, inner), (outer, _origin)) = (duplex(ROOM), duplex(ROOM));
        let tunnel = tokio::spawn(between(inner, outer, Some(LIMIT)));
        let flood = tokio::spawn(async move { while visitor.write_all(b"more").await.is_ok() {} });
        tunnel.await.expect("it ends");
        flood.await.expect("and so does whoever sends");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_a_tunnel_may_rest() {
        let ((mut visitor, inner), (outer, mut origin)) = (duplex(ROOM), duplex(ROOM));
        tokio::spawn(between(inner, outer, None));
        advance(LIMIT * 100_000).await;
        visitor.write_all(b"x").await.expect("it is open");
        assert_eq!(origin.read_u8().await.expect("what was sent"), b'x');
    }
}
