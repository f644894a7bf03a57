//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is open besides the connections of visitors: those to the origin, the store, the admin listener, the logs.
const OTHERS: u64 = 1024;

/// Sees to it that so many connections can be open. Most systems allow a process 1,024 files until it asks for more.
pub(crate) fn allow_for(connections: u64) {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return };
    // A visitor who is passed on needs a connection to the origin, too.
    let wanted = connections.saturating_mul(2).saturating_add(OTHERS);
    if current >= wanted {
        return;
    }
    let most = limit.maximum.map_or(wanted, |most| most.min(wanted)).max(current);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit }) {
        tracing::warn!(%error, "no more than {current} files and connections can be open");
    } else if most < wanted {
        tracing::warn!(
            "no more than {most} files and connections can be open, and {connections} visitors may need {wanted}; \
             raise the limit (ulimit -Hn, LimitNOFILE=), or lower `connections` in [limits]"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_needs_more_asks_for_it_and_never_gives_any_back() {
        let before = getrlimit(Resource::Nofile).current;
        allow_for(0);
        assert!(getrlimit(Resource::Nofile).current >= before.min(Some(OTHERS)));
        allow_for(1);
        assert!(getrlimit(Resource::Nofile).current >= before, "nothing is given back");
    }
}
