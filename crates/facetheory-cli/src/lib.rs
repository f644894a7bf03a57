//! The `facetheory` command: gateway, Lambda function, demo, configuration check and operation of the stores. Only its
//! `main` is public.

mod admin;
mod check_config;
mod config;
mod demo;
mod gateway;
mod invalidate;
mod lambda;
mod log;
mod open_files;
mod purge;
mod serve;
mod service_manager;
mod signals;
mod sockets;
mod table;
mod token;
mod wire;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Incremental static regeneration: cache the pages of a slow site and regenerate them in the background.
#[derive(Debug, Parser)]
#[command(
    name = "facetheory",
    version,
    after_help = "Examples:
  facetheory demo                                          try it without an origin of your own
  facetheory serve --origin http://127.0.0.1:3000          cache the site at this origin
  facetheory check-config --url /blog/hello                show how facetheory.toml caches a page
  facetheory invalidate --tag news                         make all pages with a tag stale
  facetheory table create --table dynamodb:pages           create the table of several gateways
  facetheory serve --help                                  all options of a command"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    CheckConfig(check_config::Arguments),
    Demo(demo::Arguments),
    Invalidate(invalidate::Arguments),
    Lambda(lambda::Arguments),
    Serve(Box<serve::Arguments>),
    Table(table::Arguments),
}

/// How long threads that read files may still run when a command has ended. One that waits for a disk that does not respond
/// would keep the process from exiting.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the command that the arguments of the process name.
pub fn main() -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new().context("cannot start the threads of the process") {
        Ok(runtime) => runtime,
        Err(error) => {
            print_error(&error);
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run());
    runtime.shutdown_timeout(BLOCKING_TIMEOUT);
    code
}

async fn run() -> ExitCode {
    let Arguments { command } = if lambda::is_bootstrap(std::env::args_os()) {
        Arguments::parse_from(["facetheory", "lambda"])
    } else {
        Arguments::parse()
    };
    let outcome = match command {
        Command::CheckConfig(arguments) => check_config::run(&arguments).await,
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Invalidate(arguments) => invalidate::run(&arguments).await,
        Command::Lambda(arguments) => lambda::run(&arguments).await,
        Command::Serve(arguments) => serve::run(&arguments).await,
        Command::Table(arguments) => table::run(&arguments).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has exited, as `head` does.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints an error and its causes.
#[expect(clippy::print_stderr, reason = "this is where a command reports its error")]
fn print_error(error: &anyhow::Error) {
    eprintln!("facetheory: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
}

/// Writes a text to standard output, even if that is buffered.
fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).context("cannot write to standard output")
}
