//! `facetheory table`: creates, checks and describes the table on DynamoDB and its bucket.

mod check;
mod create;
mod policy;
mod report;
mod template;
mod verify;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use facetheory::Environment;
use tabletheory::{Address, DynamoSettings, DynamoTable};

use crate::config::{Config, Store};
use crate::serve::DEFAULT_FILE;

pub(crate) use report::StoreReport;
pub(crate) use verify::{of_stores, verify_at_start};

/// Create, check and describe the DynamoDB table and the bucket of the pages.
///
/// The embedded store needs none of these commands.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory table create --table dynamodb:pages                           create the table
  facetheory table check --table dynamodb:pages --bodies s3://bucket/isr   check table, permissions and bucket
  facetheory table template --format cloudformation --output stack.yaml    infrastructure as code")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(create::Arguments),
    Check(check::Arguments),
    Template(template::Arguments),
}

/// Runs the subcommand.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Command::Create(arguments) => create::run(arguments).await,
        Command::Check(arguments) => check::run(arguments).await,
        Command::Template(arguments) => template::run(arguments),
    }
}

/// The stores that a command works on.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct StoreArguments {
    /// Table on DynamoDB: dynamodb:TABLE [default: that of the configuration or of the environment]
    #[arg(long, value_name = "URL")]
    table: Option<String>,
    /// Configuration file [default: facetheory.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl StoreArguments {
    /// Reads `[store]` of the configuration.
    fn read(&self) -> Result<Store> {
        read_store(self.config.as_deref())
    }

    /// Returns the name of the table: of the command line, of the configuration, or of the environment.
    fn table_name(&self, store: &Store) -> Result<String> {
        let address = match self.table.as_ref().or(store.table.as_ref()) {
            // A bare name is a table on DynamoDB, as in the environment.
            Some(name) if !name.contains(':') => Address::Dynamodb(name.clone()),
            Some(url) => url.parse()?,
            None if store.data.is_some() => Address::Sqlite(PathBuf::new()),
            None => Environment::table_of_process().context(
                "no table is named; use --table dynamodb:NAME, `table` of [store] in facetheory.toml, or the environment \
                 variable FACETHEORY_CACHE_TABLE_NAME",
            )?,
        };
        match address {
            Address::Dynamodb(name) => Ok(name),
            _ => bail!(
                "the table is not on DynamoDB; the embedded store creates its own table and needs no check; \
                 for DynamoDB name a table with --table dynamodb:NAME"
            ),
        }
    }
}

/// Reads `[store]` of this file, or of the default file if it exists.
pub(crate) fn read_store(file: Option<&Path>) -> Result<Store> {
    let default = Path::new(DEFAULT_FILE);
    Ok(match file {
        Some(file) => Config::read(file)?.store,
        None if default.exists() => Config::read(default)?.store,
        None => Store::default(),
    })
}

/// Connects to a table. Sends nothing.
async fn connect(name: &str) -> Result<DynamoTable> {
    Ok(DynamoTable::connect(name, DynamoSettings::default()).await?)
}

/// The command that creates a table, for remedies.
fn create_command(table: &DynamoTable) -> String {
    format!("facetheory table create --table dynamodb:{}", table.name())
}
