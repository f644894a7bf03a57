//! The command line, tested through the binary.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_facetheory-simulation"));
    command.arg("simulate").args(arguments).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_prints_a_summary() {
    let output = simulate(&["--seeds", "5", "--from", "100"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.starts_with("5 seeds from 100 in "), "{printed}");
    assert!(printed.contains("leases granted"), "{printed}");
    assert!(printed.ends_with("every invariant held\n"), "{printed}");
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
}

#[test]
fn a_violation_prints_its_seed_and_the_command_that_repeats_it() {
    let output = simulate(&["--mutant", "forgotten-body"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("`META` never refers to a missing body"), "{printed}");
    assert!(printed.contains("published under grant"), "{printed}");

    let replay = printed.lines().last().expect("a last line").trim();
    let (_, arguments) = replay.split_once("-- simulate ").expect("a command");
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let (once, twice) = (simulate(&arguments), simulate(&arguments));
    assert_eq!(once.status.code(), Some(1));
    // The first line contains the elapsed time.
    let history = |output: &Output| -> Vec<String> {
        text(&output.stdout)
            .lines()
            .filter(|line| !line.contains(" seeds from "))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(history(&once), history(&twice));
    let violation =
        |printed: &str| printed.lines().find(|line| line.starts_with("VIOLATION")).map(str::to_owned);
    assert_eq!(violation(&text(&once.stdout)), violation(&printed));
}

#[test]
fn json_output_is_one_document() {
    let output = simulate(&["--seed", "42", "--trace", "--json"]);
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!((&printed["from"], &printed["seeds"]), (&42.into(), &1.into()));
    assert!(printed["stats"]["leases_granted"].as_u64() > Some(0));
    assert_eq!(printed["violation"], serde_json::Value::Null);
    assert!(printed["trace"].as_array().is_some_and(|events| events.len() > 30));
}

#[test]
fn a_usage_error_exits_with_2_and_explains_itself() {
    for (arguments, reason) in [
        (vec!["--mutant", "unknown"], "known mutants: any-lock, "),
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
