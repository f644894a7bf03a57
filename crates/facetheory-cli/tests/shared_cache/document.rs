//! Checks that `docs/internals/rfc9111.md` names every test, under its section.

use std::collections::BTreeSet;
use std::path::Path;

/// The source files of the tests.
const SOURCES: [&str; 20] = [
    include_str!("age.rs"),
    include_str!("authorization.rs"),
    include_str!("collapse.rs"),
    include_str!("condition.rs"),
    include_str!("directive.rs"),
    include_str!("freshness.rs"),
    include_str!("head.rs"),
    include_str!("header.rs"),
    include_str!("invalidation.rs"),
    include_str!("pair.rs"),
    include_str!("parsing.rs"),
    include_str!("range.rs"),
    include_str!("request.rs"),
    include_str!("rule.rs"),
    include_str!("stale.rs"),
    include_str!("status.rs"),
    include_str!("targeted.rs"),
    include_str!("cache_status.rs"),
    include_str!("validation.rs"),
    include_str!("vary.rs"),
];

/// The heading above the table.
const HEADING: &str = "## The origin's own headers\n";

/// The names of all tests that belong to a section of an RFC.
fn tests() -> BTreeSet<&'static str> {
    let lines = SOURCES.iter().flat_map(|source| source.lines());
    let functions = lines.filter_map(|line| line.strip_prefix("fn rfc").map(|_| &line["fn ".len()..]));
    functions.map(|rest| rest.split('(').next().unwrap_or_default()).collect()
}

/// The prefix of test names for a section: `rfc9111_4_2_1_` for `9111 §4.2.1`.
fn prefix(section: &str) -> String {
    let (rfc, number) = section.split_once(" §").unwrap_or_else(|| panic!("invalid section `{section}`"));
    format!("rfc{rfc}_{}_", number.replace('.', "_"))
}

#[test]
fn the_document_lists_every_test_with_its_section() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/rfc9111.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let (_, rest) = document.split_once(HEADING).expect("the heading");
    let section = rest.split_once("\n## ").map_or(rest, |(section, _)| section);
    let rows = section.lines().filter(|line| line.starts_with("| 9") || line.starts_with("| 5"));
    let tests = tests();
    let mut named = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [section, what, shown_by] = cells.as_slice() else { panic!("expected three cells: {row}") };
        assert!(!what.is_empty(), "§{section} has an empty cell");
        for test in shown_by.split(", ").map(|name| name.trim_matches('`')) {
            assert!(tests.contains(test), "§{section} names `{test}`, which does not exist");
            assert!(test.starts_with(&prefix(section)), "`{test}` belongs to another section than {section}");
            named.insert(test);
        }
    }
    let unnamed: Vec<_> = tests.difference(&named).collect();
    assert!(unnamed.is_empty(), "the document does not name {unnamed:?}");
}
