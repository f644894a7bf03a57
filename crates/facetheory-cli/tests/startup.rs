//! How a gateway starts: at once, however much it keeps.

#[path = "support/mod.rs"]
mod support;

use support::gateway::{Gateway, data};
use support::origin::Origin;
use support::print;
use support::site::{get, with_long_timeouts};
use support::table::fill;

/// Pages of a store that a gateway could well read whole without anybody noticing.
const FEW: u64 = 100;
/// Pages of one that it could not.
const MANY: u64 = 20_000;
/// What one start may read more than another by chance, in bytes: a few pages of a deeper tree, and of the system's files.
const CHANCE: u64 = 64 * 1024;

#[test]
fn a_gateway_does_not_read_its_store_to_start() {
    let origin = Origin::start();
    let (few, few_bytes) = read_until_the_first_answer(&origin, FEW);
    let (many, many_bytes) = read_until_the_first_answer(&origin, MANY);
    print(&format!(
        "read until the first answer: {few} bytes with a table of {few_bytes}, {many} with one of {many_bytes}"
    ));
    assert!(many_bytes > few_bytes + 20 * CHANCE, "the table has grown: {few_bytes} to {many_bytes}");
    assert!(many < few + CHANCE, "{many} bytes were read with {MANY} pages, {few} with {FEW}");
}

/// How many bytes a gateway reads until it has answered a visitor from its store of so many pages, and how large its table
/// is.
fn read_until_the_first_answer(origin: &Origin, pages: u64) -> (u64, u64) {
    const RULES: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n";
    let directory = tempfile::tempdir().expect("a directory");
    let start = || Gateway::start(directory.path(), origin.address, &with_long_timeouts(RULES), &[]);
    let before = start();
    assert_eq!(before.exchange(get("/kept", "")).state(), "miss");
    before.shut_down();
    let table = data(directory.path()).join("table.db");
    fill(&table, pages, |_| {});
    let gateway = start();
    assert_eq!(gateway.exchange(get("/kept", "")).state(), "hit");
    (gateway.bytes_read(), std::fs::metadata(table).expect("a table").len())
}
