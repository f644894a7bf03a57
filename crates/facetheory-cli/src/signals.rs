//! Signals that control the process.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{self, SignalKind};

/// A signal that the process handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT (Ctrl-C) or SIGTERM: shut down.
    Shutdown,
    /// SIGHUP: reload the configuration.
    Reload,
}

/// The signals of this process.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
}

impl Signals {
    /// Installs handlers, so that signals no longer end the process.
    pub(crate) fn install() -> Result<Self> {
        let handle = |kind| unix::signal(kind).context("cannot install a signal handler");
        Ok(Signals {
            interrupt: handle(SignalKind::interrupt())?,
            terminate: handle(SignalKind::terminate())?,
            hangup: handle(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Shutdown,
            _ = self.terminate.recv() => Signal::Shutdown,
            _ = self.hangup.recv() => Signal::Reload,
        }
    }
}
