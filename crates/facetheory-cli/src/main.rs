//! `facetheory`: incremental static regeneration from the command line.

mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Pages rendered once, served to everyone, and renewed by exactly one worker.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let outcome = match command {
        Command::Demo(arguments) => demo::run(&arguments).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Says what went wrong, and under it what caused it.
#[expect(clippy::print_stderr, reason = "this is where a command reports its error")]
fn complain(error: &anyhow::Error) {
    eprintln!("facetheory: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
}
