//! A fuzzer of the listener: raw bytes, right and wrong, at the real gateway over HTTP/1 and over HTTP/2.
//!
//! A number decides what a connection sends. Before it is sent, a strict reader of the fuzzer's own says what it asks for;
//! the origin reads as strictly what reaches it, and the ledger compares: nothing may reach the origin that nobody asked
//! for, that differs from what was asked for, or that was asked for less often. Meanwhile the gateway has to live, to
//! answer everybody who makes no mistakes, to close what is over, and not to grow.
//!
//! `FACETHEORY_FUZZ_SECONDS` says for how long (60), `FACETHEORY_FUZZ_SEED` by which chance (1), and
//! `FACETHEORY_FUZZ_CASE` that only one case is tried. `scripts/fuzz` sets them.

mod campaign;
mod case;
mod exchange;
mod frame;
mod grammar;
mod minimize;
mod mutation;
mod origin;
mod random;
mod reference;
mod request_log;
mod response;
mod seed;
mod stream;
mod strict_parser;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use campaign::Campaign;
use case::Case;

/// For how long visitors come where nobody says.
const DEFAULT_SECONDS: u64 = 60;
/// The chance where nobody says: the same at every run, so that a failure can be had again.
const DEFAULT_SEED: u64 = 1;

#[test]
fn the_gateway_survives_any_input_and_forwards_only_valid_requests() {
    let seed = number("FACETHEORY_FUZZ_SEED").unwrap_or(DEFAULT_SEED);
    if let Some(case) = number("FACETHEORY_FUZZ_CASE") {
        let report = minimize::report(seed, case);
        assert!(report.is_none(), "{}", report.unwrap_or_default());
        return;
    }
    let seconds = number("FACETHEORY_FUZZ_SECONDS").unwrap_or(DEFAULT_SECONDS);
    let mut campaign = Campaign::start(seed);
    let Err(failed) = campaign.run(Duration::from_secs(seconds)) else { return };
    drop(campaign);
    eprintln!("seed {seed}, cases {:?}:\n{}", failed.cases, failed.violations.join("\n"));
    // All were under way when it happened, and one of them will do.
    let alone = failed.cases.iter().find_map(|case| minimize::report(seed, *case));
    panic!("{}", alone.unwrap_or_else(|| "none of these cases does it alone".to_owned()));
}

/// The number in this variable.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is `{text}` and has to be a whole number")))
}
