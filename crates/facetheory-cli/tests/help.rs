//! `--help`, through the real binary.

use std::process::Command;

#[test]
fn the_help_lists_the_commands_and_has_examples() {
    let help_text = help(&[]);
    assert_has_examples(&help_text, "");
    let commands = commands(&help_text);
    assert!(commands.iter().any(|command| command == "serve"), "{help_text}");
    for line in section(&help_text, "Commands:") {
        assert!(
            line.split_once("  ").is_some_and(|(_, what)| !what.trim().is_empty()),
            "{line} is not described"
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
fn every_option_of_every_command_is_described() {
    for command in commands(&help(&[])) {
        let help_text = help(&[&command]);
        let options = section(&help_text, "Options:");
        assert!(options.iter().any(|line| line.starts_with("-h")), "{command} has options:\n{help_text}");
        // The values of an option are listed below it, each after a dash and a space.
        let is_option = |line: &str| line.starts_with('-') && !line.starts_with("- ");
        for (at, option) in options.iter().enumerate().filter(|(_, line)| is_option(line)) {
            let beside = option.split_once("  ").is_some_and(|(_, what)| !what.trim().is_empty());
            let below = options.get(at + 1).is_some_and(|next| !is_option(next));
            assert!(beside || below, "{option} of {command} is not described");
        }
    }
}

/// Returns the help of a command.
fn help(command: &[&str]) -> String {
    let mut binary = Command::new(env!("CARGO_BIN_EXE_facetheory"));
    // CI may force colours.
    let output = binary.args(command).arg("--help").env_remove("CLICOLOR_FORCE").output();
    let output = output.expect("the binary runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a text")
}

/// Returns the commands that a help lists, without `help`.
fn commands(help_text: &str) -> Vec<String> {
    let first = |line: &&str| line.split_whitespace().next().map(str::to_owned);
    let commands = section(help_text, "Commands:");
    assert!(!commands.is_empty(), "the program has no commands:\n{help_text}");
    commands.iter().filter_map(first).filter(|command| command != "help").collect()
}

/// Returns the lines below a title up to the next title, without indentation and empty lines.
fn section<'s>(help_text: &'s str, title: &str) -> Vec<&'s str> {
    let below = help_text.lines().skip_while(|line| *line != title).skip(1);
    let within = below.take_while(|line| line.is_empty() || line.starts_with(' '));
    within.map(str::trim).filter(|line| !line.is_empty()).collect()
}

fn assert_has_examples(help_text: &str, command: &str) {
    let beginning = format!("facetheory {command}");
    let examples = section(help_text, "Examples:");
    let is_example = |line: &&&str| line.starts_with(beginning.trim());
    assert!(examples.iter().filter(is_example).count() > 0, "`{command}` has no examples:\n{help_text}");
}
