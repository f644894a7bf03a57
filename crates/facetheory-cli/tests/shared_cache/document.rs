//! `docs/internals/rfc9111.md` says for each section what the gateway does, and names the stories that show it.

use std::collections::BTreeSet;
use std::path::Path;

/// The sources of the stories, which the names are looked up in.
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

/// Where the table is.
const HEADING: &str = "## The origin's own headers\n";

/// The names of all stories that are about a section of an RFC.
fn stories() -> BTreeSet<&'static str> {
    let lines = SOURCES.iter().flat_map(|source| source.lines());
    let functions = lines.filter_map(|line| line.strip_prefix("fn rfc").map(|_| &line["fn ".len()..]));
    functions.map(|rest| rest.split('(').next().unwrap_or_default()).collect()
}

/// `9111 §4.2.1` as the names of stories begin: `rfc9111_4_2_1_`.
fn beginning(section: &str) -> String {
    let (rfc, number) = section.split_once(" §").unwrap_or_else(|| panic!("`{section}` is no section"));
    format!("rfc{rfc}_{}_", number.replace('.', "_"))
}

#[test]
fn the_document_lists_every_test_with_its_section() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/rfc9111.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let (_, rest) = document.split_once(HEADING).expect("the heading");
    let section = rest.split_once("\n## ").map_or(rest, |(section, _)| section);
    let rows = section.lines().filter(|line| line.starts_with("| 9") || line.starts_with("| 5"));
    let stories = stories();
    let mut named = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [section, what, shown_by] = cells.as_slice() else { panic!("not three cells: {row}") };
        assert!(!what.is_empty(), "§{section} says nothing");
        for story in shown_by.split(", ").map(|name| name.trim_matches('`')) {
            assert!(stories.contains(story), "§{section} names `{story}`, which is no story");
            assert!(story.starts_with(&beginning(section)), "`{story}` is of another section than {section}");
            named.insert(story);
        }
    }
    let unnamed: Vec<_> = stories.difference(&named).collect();
    assert!(unnamed.is_empty(), "the document does not name {unnamed:?}");
}
