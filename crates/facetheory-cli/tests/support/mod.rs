//! The gateway binary between a scripted origin and clients that send arbitrary bytes.
#![allow(dead_code, reason = "each test program uses a part of this module")]

pub(crate) mod client;
pub(crate) mod gateway;
pub(crate) mod http2;
pub(crate) mod memory_limit;
pub(crate) mod origin;
pub(crate) mod proxy;
pub(crate) mod site;
pub(crate) mod store;
pub(crate) mod table;

use std::path::Path;
use std::time::Duration;

/// A test fails if it waits longer than this for anything. No passing test waits that long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// How often a test polls a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls until there is a value.
///
/// # Panics
/// If there is none within the timeout.
pub(crate) fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let polls = TIMEOUT.as_millis() / POLL_INTERVAL.as_millis();
    for _ in 0..polls {
        if let Some(value) = poll() {
            return value;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    panic!("timed out waiting: {what}");
}

/// Prints counts and measurements, shown with `--nocapture`.
#[expect(clippy::print_stdout, reason = "the counts show what a run covered")]
pub(crate) fn print(what: &str) {
    println!("{what}");
}

/// The bytes of all files in a directory.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
        Ok(found) => found.len(),
        // It was deleted meanwhile.
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// All values of a header.
pub(crate) fn values<'h>(headers: &'h [(String, String)], name: &str) -> Vec<&'h str> {
    headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
}
