//! The command line, through the real binary.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_facetheory-simulation"));
    command.arg("simulate").args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_ends_with_a_summary() {
    let output = simulate(&["--seeds", "5", "--from", "100"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.starts_with("5 seeds from 100 in "), "{said}");
    assert!(said.contains("leases granted"), "{said}");
    assert!(said.ends_with("every invariant held\n"), "{said}");
    assert_eq!(text(&output.stderr), "", "no progress bar where nobody sees it");
}

#[test]
fn a_violation_names_its_seed_and_the_command_that_repeats_it() {
    let output = simulate(&["--mutant", "forgotten-body"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("`META` never names a missing body"), "{said}");
    assert!(said.contains("published under grant"), "{said}");

    let replay = said.lines().last().expect("a last line").trim();
    let (_, arguments) = replay.split_once("-- simulate ").expect("a command");
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let (once, twice) = (simulate(&arguments), simulate(&arguments));
    assert_eq!(once.status.code(), Some(1));
    // Only the first line tells how long it took.
    let history = |output: &Output| -> Vec<String> {
        text(&output.stdout)
            .lines()
            .filter(|line| !line.contains(" seeds from "))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(history(&once), history(&twice));
    let broken = |said: &str| said.lines().find(|line| line.starts_with("BROKEN")).map(str::to_owned);
    assert_eq!(broken(&text(&once.stdout)), broken(&said));
}

#[test]
fn json_is_for_programs() {
    let output = simulate(&["--seed", "42", "--trace", "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!((&said["from"], &said["seeds"]), (&42.into(), &1.into()));
    assert!(said["tally"]["leases_granted"].as_u64() > Some(0));
    assert_eq!(said["violation"], serde_json::Value::Null);
    assert!(said["trace"].as_array().is_some_and(|events| events.len() > 30));
}

#[test]
fn a_wrong_call_is_told_what_is_right() {
    for (arguments, reason) in [
        (vec!["--mutant", "none-such"], "there are: any-lock, "),
        (vec!["--seeds", "0"], "0 is not in 1.."),
        (vec!["--seed", "1", "--from", "2"], "cannot be used with"),
        (vec!["--trace"], "--seed"),
    ] {
        let output = simulate(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
    let output = simulate(&["--from", "18446744073709551615"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("choose a smaller --from"), "{}", text(&output.stderr));
}
