//! The real gateway between an origin that a test scripts and visitors who send whatever bytes they like.
#![allow(dead_code, reason = "each test program uses what it needs of this")]

pub(crate) mod client;
pub(crate) mod gateway;
pub(crate) mod http2;
pub(crate) mod origin;
pub(crate) mod site;
pub(crate) mod store;
pub(crate) mod table;

use std::time::Duration;

/// How long anything may take before a test says that it hangs. No test waits so long to be right.
pub(crate) const HANG: Duration = Duration::from_secs(120);
/// How long a test rests between two looks at a process.
const REST: Duration = Duration::from_millis(10);

/// Looks again and again until there is something to see.
///
/// # Panics
/// When there is nothing for too long.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looks = HANG.as_millis() / REST.as_millis();
    for _ in 0..looks {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::sleep(REST);
    }
    panic!("this did not happen: {what}");
}

/// Says what was counted or measured, to whoever asks for the output of tests.
#[expect(clippy::print_stdout, reason = "what was seen is the point of some runs")]
pub(crate) fn tell(what: &str) {
    println!("{what}");
}
