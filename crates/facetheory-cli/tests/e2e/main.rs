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

use client::{Client, Response};
use gateway::Gateway;

/// A test fails if it waits longer than this for anything.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// An application that `scripts/test-e2e` has started.
#[derive(Clone, Copy, Debug)]
struct Application {
    /// The variable with its address.
    variable: &'static str,
}

impl Application {
    /// # Panics
    /// If the address is not set: a test that cannot run must not pass.
    fn address(self) -> String {
        std::env::var(self.variable).unwrap_or_else(|_| {
            panic!("{} is not set; run scripts/test-e2e, which starts the application", self.variable)
        })
    }

    /// A gateway in front of it with these `[routes]`.
    async fn gateway(self, routes: &str) -> Gateway {
        Gateway::in_front_of(&self.address(), routes).await
    }

    /// A gateway in front of it with these `[routes]`, and a client of the gateway.
    async fn gateway_and_client(self, routes: &str) -> (Gateway, Client) {
        let gateway = self.gateway(routes).await;
        let client = gateway.client();
        (gateway, client)
    }

    /// The page without a gateway.
    async fn get_directly(self, target: &str) -> Response {
        Client::of(&self.address()).get(target).await
    }
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
