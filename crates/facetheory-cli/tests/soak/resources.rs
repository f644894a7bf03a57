//! What a gateway has open: files, connections and tasks.

use std::fmt;
use std::time::Duration;

use crate::proxy::Proxy;
use crate::support::gateway::Gateway;
use crate::support::wait_for;

/// What a gateway may have more of than before: connections of a pool that stays, threads of the runtime.
const SLACK_FILES: usize = 16;
/// How long is waited between two looks: longer than connections to the origin are kept open for nothing.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How often one looks whether a gateway has come to rest.
const TIMEOUT: usize = 10;

/// What a gateway has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    descriptors: usize,
    tasks: usize,
}

impl Resources {
    /// What they have once no visitor is connected, their stores have hung up, and it is the same twice.
    pub(crate) fn at_rest(gateways: &[Gateway], lines: &[Proxy]) -> Vec<Resources> {
        for gateway in gateways {
            wait_for("visitors are gone", || {
                (gateway.metric("facetheory_gateway_connections")? == 0.0).then_some(())
            });
        }
        let mut last = Vec::new();
        for _ in 0..TIMEOUT {
            lines.iter().for_each(Proxy::hang_up);
            std::thread::sleep(POLL_INTERVAL);
            let now: Vec<_> = gateways.iter().map(Resources::of).collect();
            if now == last {
                break;
            }
            last = now;
        }
        last
    }

    /// The same, once it has come down to what it was before; else what they have after a long while.
    pub(crate) fn come_down(gateways: &[Gateway], lines: &[Proxy], before: &[Resources]) -> Vec<Resources> {
        let mut now = Resources::at_rest(gateways, lines);
        for _ in 0..TIMEOUT {
            if !now.iter().zip(before).any(|(now, before)| now.exceeds(before)) {
                break;
            }
            now = Resources::at_rest(gateways, lines);
        }
        now
    }

    fn of(gateway: &Gateway) -> Resources {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "nobody has so many tasks"
        )]
        let tasks = gateway.metric("facetheory_process_tasks").expect("a metric") as usize;
        Resources { descriptors: gateway.open_files(), tasks }
    }

    fn exceeds(&self, before: &Resources) -> bool {
        self.descriptors > before.descriptors + SLACK_FILES || self.tasks > before.tasks + SLACK_FILES
    }
}

/// Fails if a gateway has more than before.
pub(crate) fn nothing_is_left(names: &[&str], before: &[Resources], after: &[Resources]) {
    for ((name, before), after) in names.iter().zip(before).zip(after) {
        assert!(!after.exceeds(before), "{name} has {after} after it had {before}");
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files and connections, {} tasks", self.descriptors, self.tasks)
    }
}
