//! The gateway in front of real applications that others have written: `facetheory serve` as a process, between them
//! and their visitors. `scripts/test-e2e` installs, builds and starts the applications and says where they are; where
//! it has not, the tests say so and have nothing to show.

mod client;
mod form;
mod gateway;
mod next;
mod recorder;
mod vite;
mod wagtail;

use std::future::Future;
use std::time::Duration;

/// How long anything may take that a test waits for. It bounds a test that would fail, and decides nothing else.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(50);

/// The address of an application, if `scripts/test-e2e` has started it.
#[expect(clippy::print_stderr, reason = "a test that shows nothing says so")]
fn application(name: &str) -> Option<String> {
    let variable = format!("FACETHEORY_E2E_{name}");
    let address = std::env::var(&variable).ok();
    if address.is_none() {
        eprintln!("skipped: {variable} is not set; run scripts/test-e2e, which starts the application");
    }
    address
}

/// What comes in time.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {TIMEOUT:?}"),
    }
}

/// Asks again until the answer is the one that is waited for.
async fn wait_for<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    in_time(what, async {
        loop {
            if let Some(value) = ask().await {
                return value;
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await
}
