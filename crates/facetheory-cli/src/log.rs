//! What the process tells of itself, on the standard error: what happens, and one line for each request.

mod access;
mod queue;

use std::io::IsTerminal as _;

use anyhow::{Result, anyhow};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::queue::{Queue, Writer};
use crate::config;

pub(crate) use access::{AccessLog, Arrival, Verdict};

/// How the log is asked for on the command line.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// How the log is written, to the standard error. By default for people on a terminal, and as JSON elsewhere.
    #[arg(long, value_name = "FORM", value_enum)]
    pub(crate) log: Option<Form>,
    /// What is told of: error, warn, info, debug or trace, also by module as in warn,facetheory=debug; else FACETHEORY_LOG,
    /// else info.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Write no line for each request.
    #[arg(long)]
    pub(crate) no_access_log: bool,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
    /// Not at all.
    Off,
}

/// The variable that says what is told of, where the command line does not.
const VARIABLE: &str = "FACETHEORY_LOG";
/// What is told of, where nobody says.
const USUAL: &str = "info";

/// The log. When it is dropped, what was told by then is written.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub(crate) struct Log {
    queue: Option<Queue>,
    access: bool,
}

/// Tells from now on what happens.
pub(crate) fn start(arguments: &Arguments, configured: Option<config::Log>) -> Result<Log> {
    let told = arguments.log_level.clone().or_else(|| std::env::var(VARIABLE).ok());
    let told = told.filter(|told| !told.is_empty()).unwrap_or_else(|| USUAL.to_owned());
    let filter = EnvFilter::builder().parse(&told).map_err(|error| {
        anyhow!("`{told}` is no level of the log: {error}; write error, warn, info, debug or trace, or one by module as in warn,facetheory=debug")
    })?;
    let is_terminal = std::io::stderr().is_terminal();
    let configured = configured.map(|log| match log {
        config::Log::Human => Form::Human,
        config::Log::Json => Form::Json,
        config::Log::Off => Form::Off,
    });
    let usual = if is_terminal { Form::Human } else { Form::Json };
    let form = arguments.log.or(configured).unwrap_or(usual);
    let colours = is_terminal && std::env::var_os("NO_COLOR").is_none();
    let queue = match form {
        Form::Off => return Ok(Log { queue: None, access: false }),
        Form::Human => Queue::start(Writer::human(std::io::stderr(), colours))?,
        Form::Json => Queue::start(Writer::json(std::io::stderr()))?,
    };
    let lines = queue.lines();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || lines.clone());
    let set = match form {
        Form::Json => builder.json().flatten_event(true).finish().try_init(),
        Form::Human | Form::Off => builder.with_ansi(colours).finish().try_init(),
    };
    set.map_err(|error| anyhow!("somebody else logs already: {error}"))?;
    Ok(Log { queue: Some(queue), access: !arguments.no_access_log })
}

impl Log {
    /// Where requests are told of; nowhere if nobody wants to know.
    pub(crate) fn access(&self) -> Option<AccessLog> {
        self.queue.as_ref().filter(|_| self.access).map(|queue| AccessLog::new(queue.lines()))
    }
}
