//! `facetheory`: incremental static regeneration from the command line.

mod admin;
mod check_config;
mod config;
mod demo;
mod gateway;
mod log;
mod open_files;
mod serve;
mod signals;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Pages rendered once, served to everyone, and renewed by exactly one worker.
#[derive(Debug, Parser)]
#[command(
    name = "facetheory",
    version,
    about,
    after_help = "Examples:
  facetheory demo                                                      see it work, with nothing to configure
  facetheory serve --origin http://127.0.0.1:3000                      put it in front of a site
  facetheory check-config --url /blog/hello                            what facetheory.toml says of a page
  facetheory serve --help                                              all options of a command"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    CheckConfig(check_config::Arguments),
    Demo(demo::Arguments),
    Serve(Box<serve::Arguments>),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let outcome = match command {
        Command::CheckConfig(arguments) => check_config::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Serve(arguments) => serve::run(&arguments).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has had enough, as `head` has.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Says what went wrong, and under it what caused it.
#[expect(clippy::print_stderr, reason = "this is where a command reports its error")]
fn complain(error: &anyhow::Error) {
    eprintln!("facetheory: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
}
