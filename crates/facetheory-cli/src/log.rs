//! The log on standard error: events, and one line per request.

mod access;
mod buffer;
mod line;
mod sample;
mod timestamp;

use std::io::IsTerminal as _;

use anyhow::{Result, anyhow};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use self::buffer::{Output, Style};
use crate::config::{LogFormat, LogSample};

pub(crate) use access::{AccessLog, RequestInfo, ResponseReason};

/// Log options of the command line.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// Log format on standard error [default: human on a terminal, json otherwise]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) log: Option<LogFormat>,
    /// Log level: error, warn, info, debug or trace, optionally by module, such as warn,facetheory=debug [default: $FACETHEORY_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Do not log requests
    #[arg(long)]
    pub(crate) no_access_log: bool,
}

/// The environment variable with the log level, which `--log-level` overrides.
const VARIABLE: &str = "FACETHEORY_LOG";
const DEFAULT_LEVEL: &str = "info";

/// The running log. Dropping it writes all lines that are not written yet.
#[derive(Debug)]
#[must_use = "the log stops when it is dropped"]
pub(crate) struct Log {
    output: Option<Output>,
    access: bool,
}

/// Starts the log.
pub(crate) fn start(arguments: &Arguments, configured: Option<LogFormat>) -> Result<Log> {
    let level = arguments.log_level.clone().or_else(|| std::env::var(VARIABLE).ok());
    let level = level.filter(|level| !level.is_empty()).unwrap_or_else(|| DEFAULT_LEVEL.to_owned());
    let filter: Targets = level.parse().map_err(|error| {
        anyhow!("`{level}` is not a log level: {error}; write error, warn, info, debug or trace, optionally by module, such as warn,facetheory=debug")
    })?;
    let is_terminal = std::io::stderr().is_terminal();
    let default = if is_terminal { LogFormat::Human } else { LogFormat::Json };
    let format = arguments.log.or(configured).unwrap_or(default);
    let colours = is_terminal && std::env::var_os("NO_COLOR").is_none();
    let style = match format {
        LogFormat::Off => return Ok(Log { output: None, access: false }),
        LogFormat::Human => Style::Human { colours },
        LogFormat::Json => Style::Json,
    };
    let output = Output::start(std::io::stderr(), style)?;
    let lines = output.lines();
    // Without it, events of levels that no module logs would reach the filter.
    let max_level = Layer::<Registry>::max_level_hint(&filter).unwrap_or(LevelFilter::TRACE);
    let builder = tracing_subscriber::fmt().with_max_level(max_level).with_writer(move || lines.clone());
    let set = match format {
        LogFormat::Json => builder.json().flatten_event(true).finish().with(filter).try_init(),
        LogFormat::Human | LogFormat::Off => builder.with_ansi(colours).finish().with(filter).try_init(),
    };
    set.map_err(|error| anyhow!("cannot start the log: {error}"))?;
    Ok(Log { output: Some(output), access: !arguments.no_access_log })
}

impl Log {
    /// Waits until all lines so far are written, for a limited time.
    pub(crate) fn flush(&self) {
        self.output.iter().for_each(Output::flush);
    }

    /// Returns the access log of this share of requests, or `None` if requests are not logged.
    pub(crate) fn access(&self, sample: LogSample) -> Option<AccessLog> {
        self.output.as_ref().filter(|_| self.access).map(|output| AccessLog::new(output.lines(), sample))
    }
}
