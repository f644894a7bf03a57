//! Tells the service manager about the state of the process (systemd, `Type=notify` and `Type=notify-reload`).

use sd_notify::NotifyState;

/// The process accepts connections, or has reloaded its configuration.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// The process reloads its configuration. [`ready`] follows.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot read the monotonic clock for the service manager"),
    }
}

/// The process shuts down.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Does nothing without a service manager.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
