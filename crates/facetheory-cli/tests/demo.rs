//! The demo, through the real binary.

use std::process::{Command, Output};

fn facetheory(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_facetheory")).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_demo_needs_no_configuration() {
    let output = facetheory(&["demo"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("8 workers race for it."), "{said}");
    assert!(said.contains("The slow worker wakes up and publishes: refused"), "{said}");
    assert!(said.contains("rendered by the quick worker"), "{said}");
    assert!(!said.contains("rendered by the slow worker"), "{said}");
    assert!(said.contains("1280 renewals"), "{said}");
}

#[test]
fn the_demo_keeps_a_file_that_it_was_given() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("new/table.db");
    let address = format!("sqlite:{}", file.display());
    assert!(facetheory(&["demo", "--table", &address]).status.success());
    assert!(file.exists());
    assert!(facetheory(&["demo", "--table", &address]).status.success(), "it can be told twice");
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_facetheory"))
        .arg("demo")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_wrong_address_is_explained() {
    let output = facetheory(&["demo", "--table", "redis:x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it must be memory:, sqlite:PATH or dynamodb:TABLE"));
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "not a table, but long enough to be taken for one ".repeat(50))
        .expect("a text");
    let output = facetheory(&["demo", "--table", &format!("sqlite:{}", file.path().display())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is damaged"), "{}", text(&output.stderr));
}
