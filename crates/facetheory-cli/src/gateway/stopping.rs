//! The end of a listener: how long it accepts connections, and how long idle connections may still send requests.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How long an idle connection may still send a request after the listener was closed. Requests that were sent before the
/// client knew of the shutdown arrive within this time.
const IDLE_GRACE: Duration = Duration::from_secs(1);
/// How long an idle connection stays open after a hand-over. Nobody waits for the end of the old process, and most clients
/// send their next request within this time: its response tells them to open another connection.
const IDLE_GRACE_AFTER_HAND_OVER: Duration = Duration::from_secs(10);

/// When a listener stops.
///
/// 1. A shutdown is requested: connections are accepted for `lame_duck`, so that load balancers can notice it.
/// 2. The listener closes, which it also does when another process has taken its socket over. The next response on each
///    connection is its last one.
/// 3. Connections without a request are closed after a second, or ten after a hand-over.
/// 4. Connections with a request are aborted when the shutdown is forced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopping {
    /// Cancelled when the process is to stop.
    pub(crate) requested: CancellationToken,
    /// Cancelled when another process accepts the connections.
    pub(crate) handed_over: CancellationToken,
    /// Cancelled when everything in progress is to be aborted.
    pub(crate) forced: CancellationToken,
    /// How long connections are accepted after the shutdown was requested.
    pub(crate) lame_duck: Duration,
}

impl Stopping {
    /// Waits until the listener is to be closed.
    pub(super) async fn accepts_no_more(&self) {
        let lame_duck_ends = async {
            self.requested.cancelled().await;
            tokio::time::sleep(self.lame_duck).await;
        };
        tokio::select! {
            () = lame_duck_ends => {}
            () = self.handed_over.cancelled() => {}
            () = self.forced.cancelled() => {}
        }
    }

    /// Waits until idle connections are to be closed. The time begins with the call.
    pub(super) async fn closes_idle(&self) {
        let is_handed_over = self.handed_over.is_cancelled();
        let grace = if is_handed_over { IDLE_GRACE_AFTER_HAND_OVER } else { IDLE_GRACE };
        self.forced.run_until_cancelled(tokio::time::sleep(grace)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, timeout};

    const LAME_DUCK: Duration = Duration::from_secs(5);
    const LONG: Duration = Duration::from_secs(3600);

    fn stopping() -> Stopping {
        Stopping { lame_duck: LAME_DUCK, ..Stopping::default() }
    }

    /// How long a listener accepts connections.
    async fn accepting(stopping: &Stopping) -> Option<Duration> {
        let begun = Instant::now();
        timeout(LONG, stopping.accepts_no_more()).await.ok().map(|()| begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_accepted_for_the_lame_duck_period_after_the_request_and_no_longer() {
        let stopping = stopping();
        assert_eq!(accepting(&stopping).await, None, "no shutdown was requested");
        stopping.requested.cancel();
        let accepted = accepting(&stopping).await.expect("the end");
        assert!(accepted >= LAME_DUCK && accepted < LAME_DUCK * 2, "{accepted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hand_over_or_a_forced_shutdown_ends_the_lame_duck_period() {
        for end in [
            |stopping: &Stopping| stopping.handed_over.cancel(),
            |stopping: &Stopping| stopping.forced.cancel(),
        ] {
            let stopping = stopping();
            stopping.requested.cancel();
            end(&stopping);
            assert!(accepting(&stopping).await.expect("the end") < LAME_DUCK);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_have_longer_after_a_hand_over_and_no_time_when_forced() {
        let grace = async |stopping: &Stopping| {
            let begun = Instant::now();
            stopping.closes_idle().await;
            begun.elapsed().as_secs()
        };
        let stopping = stopping();
        assert_eq!(grace(&stopping).await, 1);
        stopping.handed_over.cancel();
        assert_eq!(grace(&stopping).await, 10);
        stopping.forced.cancel();
        assert_eq!(grace(&stopping).await, 0);
    }
}
