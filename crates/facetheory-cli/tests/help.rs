//! What the program says of itself, through the real binary.

use std::process::Command;

#[test]
fn the_program_names_its_commands_and_has_examples() {
    let said = help(&[]);
    assert_has_examples(&said, "");
    let commands = commands(&said);
    assert!(commands.iter().any(|command| command == "serve"), "{said}");
    for line in section(&said, "Commands:") {
        assert!(
            line.split_once("  ").is_some_and(|(_, what)| !what.trim().is_empty()),
            "{line} is not explained"
        );
    }
}

#[test]
fn every_command_has_examples_that_name_it() {
    for command in commands(&help(&[])) {
        assert_has_examples(&help(&[&command]), &command);
    }
}

#[test]
fn every_option_of_every_command_is_explained() {
    for command in commands(&help(&[])) {
        let said = help(&[&command]);
        let options = section(&said, "Options:");
        assert!(options.iter().any(|line| line.starts_with("-h")), "{command} has options:\n{said}");
        // Values of an option are listed below it, each after a dash and a space.
        let is_option = |line: &str| line.starts_with('-') && !line.starts_with("- ");
        for (at, option) in options.iter().enumerate().filter(|(_, line)| is_option(line)) {
            let beside = option.split_once("  ").is_some_and(|(_, what)| !what.trim().is_empty());
            let below = options.get(at + 1).is_some_and(|next| !is_option(next));
            assert!(beside || below, "{option} of {command} is not explained");
        }
    }
}

/// What is said of these words when they are followed by `--help`.
fn help(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_facetheory"));
    // A CI may want colours also where nobody sees them.
    let output = command.args(words).arg("--help").env_remove("CLICOLOR_FORCE").output();
    let output = output.expect("the binary runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a text")
}

/// The commands that a help lists, without the one that prints it.
fn commands(said: &str) -> Vec<String> {
    let first = |line: &&str| line.split_whitespace().next().map(str::to_owned);
    let commands = section(said, "Commands:");
    assert!(!commands.is_empty(), "the program has no commands:\n{said}");
    commands.iter().filter_map(first).filter(|command| command != "help").collect()
}

/// The lines below a title without their indentation, up to the next title; empty ones are left out.
fn section<'s>(said: &'s str, title: &str) -> Vec<&'s str> {
    let below = said.lines().skip_while(|line| *line != title).skip(1);
    let within = below.take_while(|line| line.is_empty() || line.starts_with(' '));
    within.map(str::trim).filter(|line| !line.is_empty()).collect()
}

fn assert_has_examples(said: &str, command: &str) {
    let beginning = format!("facetheory {command}");
    let examples = section(said, "Examples:");
    let is_example = |line: &&&str| line.starts_with(beginning.trim());
    assert!(examples.iter().filter(is_example).count() > 0, "`{command}` has no examples:\n{said}");
}
