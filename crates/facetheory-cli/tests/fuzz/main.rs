//! A fuzzer for the listener: valid and invalid bytes, sent to the gateway binary over HTTP/1 and HTTP/2.
//!
//! A case number determines the bytes of a connection. Before they are sent, a strict parser of the fuzzer derives the
//! expected requests; the origin parses as strictly what reaches it, and the request log compares: nothing may reach
//! the origin that was not expected, that differs, or that comes more often than sent. Meanwhile the gateway must stay
//! alive, respond to valid requests, close finished connections, and not grow.
//!
//! `FACETHEORY_FUZZ_SECONDS` sets the duration (default 60), `FACETHEORY_FUZZ_SEED` the seed (default 1), and
//! `FACETHEORY_FUZZ_CASE` runs only one case. `scripts/fuzz` sets them.

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

/// The default duration.
const DEFAULT_SECONDS: u64 = 60;
/// The default seed: the same in every run, so that a failure can be reproduced.
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
    // All of these were running; one of them may reproduce the failure alone.
    let alone = failed.cases.iter().find_map(|case| minimize::report(seed, *case));
    panic!("{}", alone.unwrap_or_else(|| "none of these cases fails alone".to_owned()));
}

/// The number in this environment variable.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is `{text}`, expected a whole number")))
}
