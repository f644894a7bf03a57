//! What the system, or whoever runs the process, asks of it.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{self, SignalKind};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// To end, in an orderly way: Ctrl-C or SIGTERM.
    Stop,
    /// To read its configuration again: SIGHUP.
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
    /// From now on signals are told, instead of ending the process.
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind| unix::signal(kind).context("signals cannot be listened to");
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.hangup.recv() => Signal::Reload,
        }
    }
}
