//! The gateway in front of third-party applications: `facetheory serve` as a process between them and their clients.
//! `scripts/test-e2e` installs, builds and starts the applications, sets their addresses, and runs these tests; elsewhere they
//! count as ignored.

mod client;
mod form;
mod gateway;
mod next;
mod recorder;
mod vite;
mod wagtail;

use std::future::Future;
use std::time::Duration;

/// A test fails if it waits longer than this for anything.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The address of an application that `scripts/test-e2e` has started.
///
/// # Panics
/// If it is not set: a test that cannot run must not pass.
fn application(name: &str) -> String {
    let variable = format!("FACETHEORY_E2E_{name}");
    std::env::var(&variable).unwrap_or_else(|_| {
        panic!("{variable} is not set; run scripts/test-e2e, which starts the application")
    })
}

/// Waits for a future with the timeout.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: timed out after {TIMEOUT:?}"),
    }
}

/// Polls until there is a value.
async fn wait_for<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    in_time(what, async {
        loop {
            if let Some(value) = poll().await {
                return value;
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await
}
