//! Checks that `docs/internals/attacks.md` has one line for each row and names its tests.

use std::collections::BTreeSet;
use std::path::Path;

/// The number of rows.
const ROWS: usize = 89;

/// The source files of the tests.
const SOURCES: [&str; 16] = [
    include_str!("framing.rs"),
    include_str!("stream.rs"),
    include_str!("host.rs"),
    include_str!("http2.rs"),
    include_str!("key.rs"),
    include_str!("flood.rs"),
    include_str!("collision.rs"),
    include_str!("size.rs"),
    include_str!("cacheability.rs"),
    include_str!("slow_client.rs"),
    include_str!("slow_store.rs"),
    include_str!("broken_origin.rs"),
    include_str!("forced_regeneration.rs"),
    include_str!("file.rs"),
    include_str!("memory.rs"),
    include_str!("sharing.rs"),
];

/// The names of all tests that belong to a row.
fn tests() -> BTreeSet<String> {
    let lines = SOURCES.iter().flat_map(|source| source.lines());
    let functions = lines.filter_map(|line| line.strip_prefix("fn row_"));
    functions.map(|rest| format!("row_{}", rest.split('(').next().unwrap_or_default())).collect()
}

#[test]
fn the_document_lists_every_row_and_test() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/attacks.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| row |"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let tests = tests();
    let mut named = BTreeSet::new();
    for (index, cells) in rows.iter().enumerate() {
        let [number, input, outcome, shown_by] = cells.as_slice() else {
            panic!("expected four cells: {cells:?}")
        };
        assert_eq!(number.parse(), Ok(index + 1), "rows are numbered without a gap");
        assert!(!input.is_empty() && !outcome.is_empty(), "row {number} has an empty cell");
        for test in shown_by.split(", ").map(|name| name.trim_matches('`')) {
            assert!(tests.contains(test), "row {number} names `{test}`, which does not exist");
            assert!(test.starts_with(&format!("row_{:02}_", index + 1)), "`{test}` belongs to another row");
            named.insert(test.to_owned());
        }
    }
    assert_eq!(rows.len(), ROWS);
    let unnamed: Vec<&String> = tests.difference(&named).collect();
    assert!(unnamed.is_empty(), "the document does not name {unnamed:?}");
}
