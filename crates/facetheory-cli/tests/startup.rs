//! The start of a gateway does not depend on the size of its store.

#[path = "support/mod.rs"]
mod support;

use support::gateway::{Gateway, data};
use support::origin::Origin;
use support::print;
use support::site::{get, with_long_timeouts};
use support::table::fill;

/// Pages of a small store.
const FEW: u64 = 100;
/// Pages of a large store.
const MANY: u64 = 20_000;
/// The tolerated difference between two starts, in bytes: a deeper tree, and files of the system.
const TOLERANCE: u64 = 64 * 1024;

#[test]
fn a_start_does_not_read_the_whole_store() {
    let origin = Origin::start();
    let (few, few_bytes) = bytes_until_first_response(&origin, FEW);
    let (many, many_bytes) = bytes_until_first_response(&origin, MANY);
    print(&format!(
        "bytes read until the first response: {few} with a table of {few_bytes} bytes, {many} with one of {many_bytes}"
    ));
    assert!(
        many_bytes > few_bytes + 20 * TOLERANCE,
        "the large table is larger: {few_bytes} and {many_bytes}"
    );
    assert!(many < few + TOLERANCE, "{many} bytes were read with {MANY} pages, {few} with {FEW}");
}

/// Returns how many bytes a gateway with a store of this size reads until its first hit, and the size of its table.
fn bytes_until_first_response(origin: &Origin, pages: u64) -> (u64, u64) {
    const RULES: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n";
    let directory = tempfile::tempdir().expect("a directory");
    let start = || Gateway::start(directory.path(), origin.address, &with_long_timeouts(RULES), &[]);
    let before = start();
    assert_eq!(before.exchange(get("/kept", "")).state(), "miss");
    before.shut_down();
    let table = data(directory.path()).join("table.db");
    fill(directory.path(), pages, |_| {});
    let gateway = start();
    assert_eq!(gateway.exchange(get("/kept", "")).state(), "hit");
    (gateway.bytes_read(), std::fs::metadata(table).expect("a table").len())
}
