//! ARCHITECTURE.md lists every source file, and links between documents resolve.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files with this extension below a directory, except build output.
fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if entry.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
            files(&entry, extension, found);
        } else if entry.extension().is_some_and(|other| other == extension) {
            found.push(entry);
        }
    }
}

/// The texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The paths in the tables of the code map: below a heading "### `crates/…/src/`", the first cell of each row.
fn mapped() -> BTreeSet<PathBuf> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut directory = None;
    let mut paths = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with('#') {
            directory = quoted(line).next().filter(|path| path.starts_with("crates/"));
        } else if let (Some(directory), Some(row)) = (directory, line.strip_prefix("| `")) {
            let cell = format!("`{}", row.split(" | ").next().unwrap_or_default());
            paths.extend(quoted(&cell).map(|path| Path::new(directory).join(path)));
        }
    }
    paths
}

#[test]
fn the_code_map_lists_every_source_file() {
    let (root, mapped) = (root(), mapped());
    assert!(mapped.len() > 100, "the tables are read: {}", mapped.len());
    let missing: Vec<&PathBuf> = mapped.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md lists files that do not exist: {missing:?}");
    let mut sources = Vec::new();
    files(&root.join("crates"), "rs", &mut sources);
    let sources = sources.iter().map(|source| source.strip_prefix(&root).expect("below the root"));
    let sources =
        sources.filter(|source| source.components().nth(2).is_some_and(|part| part.as_os_str() == "src"));
    let unlisted: Vec<&Path> =
        sources.filter(|source| !source.ancestors().any(|path| mapped.contains(path))).collect();
    assert!(unlisted.is_empty(), "ARCHITECTURE.md does not list {unlisted:?}");
}

#[test]
fn links_between_documents_resolve() {
    let mut documents = Vec::new();
    files(&root(), "md", &mut documents);
    assert!(documents.len() > 20, "the documents are found: {}", documents.len());
    for document in documents {
        let text = fs::read_to_string(&document).expect("a document");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains(':') || path.contains(' ') {
                continue;
            }
            let target = document.parent().expect("a directory").join(path);
            assert!(target.exists(), "{}: the link {link} leads nowhere", document.display());
        }
    }
}
