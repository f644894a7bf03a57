//! Every test that `docs/internals/rules.md` names exists.

use std::path::Path;

/// The mark of a rule that is not implemented yet.
const TO_COME: &str = "to come";

#[test]
fn every_rule_names_tests_that_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = std::fs::read_to_string(crates.join("../docs/internals/rules.md")).expect("the document");
    let lines = document.lines().filter(|line| line.starts_with("| "));
    let rules: Vec<&str> = lines.filter(|line| *line != "| rule | shown by |").collect();
    assert!(rules.len() > 50, "too few rules: {}", rules.len());
    for line in rules {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_rule, tests] = cells.as_slice() else { panic!("not two cells: {line}") };
        if *tests == TO_COME {
            continue;
        }
        for test in tests.split(", ") {
            let (file, name) = test.trim_matches('`').split_once("::").expect(line);
            let source =
                std::fs::read_to_string(crates.join(file)).unwrap_or_else(|_| panic!("{file} is missing"));
            assert!(source.contains(&format!("fn {name}(")), "{file} has no test {name}");
        }
    }
}
