//! How the process comes to its end.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Asked to end, the process waits for what is under way, all in all for so long. Whoever asks twice does not want to wait.
#[derive(Debug)]
pub(super) struct Ending {
    patience: Duration,
    /// Nothing new is begun.
    pub(super) stop: CancellationToken,
    /// What is under way is waited for no longer.
    pub(super) over: CancellationToken,
}

impl Ending {
    /// One that takes so long at most.
    pub(super) fn within(patience: Duration) -> Self {
        Ending { patience, stop: CancellationToken::new(), over: CancellationToken::new() }
    }

    /// Asks for it.
    pub(super) fn ask(&self) {
        if self.stop.is_cancelled() {
            self.over.cancel();
            return;
        }
        self.stop.cancel();
        let (patience, over) = (self.patience, self.over.clone());
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            over.cancel();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn however_many_things_are_waited_for_the_time_is_that_of_all_together() {
        let ending = Ending::within(PATIENCE);
        tokio::time::sleep(PATIENCE * 2).await;
        assert!(!ending.over.is_cancelled(), "nobody has asked");
        let asked = Instant::now();
        ending.ask();
        assert!(ending.stop.is_cancelled());
        tokio::time::sleep(PATIENCE / 2).await;
        assert!(!ending.over.is_cancelled());
        ending.over.cancelled().await;
        let waited = asked.elapsed();
        assert!(waited >= PATIENCE && waited < PATIENCE + Duration::from_secs(1), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_twice_does_not_wait() {
        let ending = Ending::within(PATIENCE);
        ending.ask();
        assert!(!ending.over.is_cancelled());
        ending.ask();
        assert!(ending.over.is_cancelled());
    }
}
