//! Open files, connections and tasks of a gateway.

use std::fmt;
use std::time::Duration;

use crate::support::gateway::Gateway;
use crate::support::proxy::Proxy;
use crate::support::wait_for;

/// The allowed growth: pooled connections and threads of the runtime.
const SLACK_FILES: usize = 16;
/// The pause between two samples: longer than idle connections to the origin stay open.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The number of samples until a gateway must be idle.
const TIMEOUT: usize = 10;

/// The open resources of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    descriptors: usize,
    tasks: usize,
}

impl Resources {
    /// Samples the gateways once no client is connected, the connections to stores are closed, and two samples agree.
    pub(crate) fn when_idle(gateways: &[Gateway], lines: &[Proxy]) -> Vec<Resources> {
        for gateway in gateways {
            wait_for("all clients have disconnected", || {
                (gateway.metric("facetheory_gateway_connections")? == 0.0).then_some(())
            });
        }
        let mut last = Vec::new();
        for _ in 0..TIMEOUT {
            lines.iter().for_each(Proxy::close_all);
            std::thread::sleep(POLL_INTERVAL);
            let now: Vec<_> = gateways.iter().map(Resources::of).collect();
            if now == last {
                break;
            }
            last = now;
        }
        last
    }

    /// Samples the gateways until they are down to the earlier values, or for a long time.
    pub(crate) fn when_settled(
        gateways: &[Gateway],
        lines: &[Proxy],
        before: &[Resources],
    ) -> Vec<Resources> {
        let mut now = Resources::when_idle(gateways, lines);
        for _ in 0..TIMEOUT {
            if !now.iter().zip(before).any(|(now, before)| now.exceeds(before)) {
                break;
            }
            now = Resources::when_idle(gateways, lines);
        }
        now
    }

    fn of(gateway: &Gateway) -> Resources {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the number of tasks is small"
        )]
        let tasks = gateway.metric("facetheory_process_tasks").expect("a metric") as usize;
        Resources { descriptors: gateway.open_files(), tasks }
    }

    fn exceeds(&self, before: &Resources) -> bool {
        self.descriptors > before.descriptors + SLACK_FILES || self.tasks > before.tasks + SLACK_FILES
    }
}

/// Fails if a gateway has more open resources than before.
pub(crate) fn assert_no_leaks(names: &[&str], before: &[Resources], after: &[Resources]) {
    for ((name, before), after) in names.iter().zip(before).zip(after) {
        assert!(!after.exceeds(before), "{name} has {after} after it had {before}");
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files and connections, {} tasks", self.descriptors, self.tasks)
    }
}
