//! The layers of this crate: each module refers only to the modules below it.
//!
//! `http → engine → pages, gc → store, bodies → protocol`. A reference in the other direction compiles, so this test
//! reads the source files and looks for it.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// A module at the root of the crate, and the modules that it may refer to besides itself.
const LAYERS: [(&str, &[&str]); 7] = [
    ("protocol", &["error"]),
    ("store", &["error", "protocol"]),
    ("bodies", &["error", "protocol"]),
    ("pages", &["error", "protocol", "store", "bodies"]),
    ("gc", &["error", "protocol", "store", "bodies", "pages"]),
    ("engine", &["error", "protocol", "store", "bodies", "pages"]),
    ("http", &["error", "protocol", "store", "bodies", "pages", "engine"]),
];

fn source_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The source files of a module of this crate, with their code. Comments are left out: they may refer to anything.
fn module(name: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    source_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name), &mut files);
    assert!(!files.is_empty(), "there is no module {name}");
    let code = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a source file");
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    };
    files.into_iter().map(|path| (path.clone(), code(&path))).collect()
}

/// The first path segments that follow `crate::` in some code: `crate::a::b` and `crate::{a::b, c}`.
fn references(code: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (at, prefix) in code.match_indices("crate::") {
        let rest = &code[at + prefix.len()..];
        let group = rest.strip_prefix('{').map(|rest| rest.split("};").next().unwrap_or(rest));
        let paths = group.map_or_else(|| vec![rest], |group| group.split(',').collect());
        found.extend(paths.into_iter().map(|path| {
            let path = path.trim_start();
            let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
            &path[..end]
        }));
    }
    found.remove("");
    found
}

/// The module that a name at the root of the crate comes from: `pub use engine::{Isr, State};` maps both to `engine`.
fn reexports(root: &str) -> HashMap<&str, &str> {
    let mut modules = HashMap::new();
    for (at, keyword) in root.match_indices("pub use ") {
        let statement = root[at + keyword.len()..].split(';').next().unwrap_or_default();
        let statement = statement.strip_prefix("self::").unwrap_or(statement);
        let mut words =
            statement.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        if let Some(module) = words.next() {
            modules.extend(words.map(|name| (name, module)));
        }
    }
    modules
}

#[test]
fn every_module_refers_only_to_the_layers_below_it() {
    let root =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).expect("the crate root");
    let reexports = reexports(&root);
    let mut wrong = Vec::new();
    for (name, below) in LAYERS {
        for (path, code) in module(name) {
            let allowed = |reference: &&str| {
                let module = reexports.get(reference).unwrap_or(reference);
                *module == name || below.contains(module)
            };
            for reference in references(&code).into_iter().filter(|reference| !allowed(reference)) {
                wrong.push(format!("{}: crate::{reference}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these references break the layers:\n{}", wrong.join("\n"));
}

#[test]
fn the_engine_does_not_depend_on_the_http_feature() {
    for (path, code) in module("engine") {
        assert!(!code.contains("feature = \"http\""), "{} depends on the feature http", path.display());
    }
}

#[test]
fn a_name_at_the_root_counts_as_its_module() {
    let root = "pub use engine::{Isr, State};\npub use self::http::Route;";
    let expected = HashMap::from([("Isr", "engine"), ("State", "engine"), ("Route", "http")]);
    assert_eq!(reexports(root), expected);
}

#[test]
fn references_are_found_in_paths_and_in_groups() {
    let code = "use crate::a::B; use crate::{c::D, e}; fn f() { crate::g::h(); }";
    assert_eq!(references(code), BTreeSet::from(["a", "c", "e", "g"]));
}
