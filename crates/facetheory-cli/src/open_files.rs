//! The limit on open files and connections of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files and connections besides those of clients: the origin, the stores, the admin listener, the log.
const OTHERS: u64 = 1024;

/// Raises the limit so that this many clients can be connected. Most systems allow a process 1,024 open files until it
/// raises the limit.
pub(crate) fn raise_limit(connections: u64) {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return };
    // A request that is forwarded needs a connection to the origin, too.
    let wanted = connections.saturating_mul(2).saturating_add(OTHERS);
    if current >= wanted {
        return;
    }
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(current);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
        tracing::warn!(%error, limit = current, "cannot raise the limit on open files");
    } else if raised < wanted {
        tracing::warn!(
            limit = raised,
            "the limit on open files is below the {wanted} that {connections} connections may need; \
             raise it (ulimit -Hn, LimitNOFILE=), or lower `connections` in [limits]"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_if_needed_and_never_lowered() {
        let before = getrlimit(Resource::Nofile).current;
        raise_limit(0);
        assert!(getrlimit(Resource::Nofile).current >= before.min(Some(OTHERS)));
        raise_limit(1);
        assert!(getrlimit(Resource::Nofile).current >= before, "the limit is never lowered");
    }
}
