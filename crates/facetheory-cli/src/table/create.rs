//! `facetheory table create`.

use anyhow::Result;
use serde::Serialize;
use tabletheory::dynamodb::{SetupStep, TableSetup};

use super::StoreArguments;
use crate::print;

/// Create the table on DynamoDB, or complete an existing one.
///
/// The table has the string keys pk and sk, on-demand billing, TTL on the attribute ttl, point-in-time recovery and
/// deletion protection. The command waits until the table is active. It may be repeated: it enables the features that
/// an existing table lacks, switches nothing off, and fails without a change if the table has other keys.
///
/// Region, credentials and AWS_ENDPOINT_URL_DYNAMODB come from the environment, as usual for AWS.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory table create --table dynamodb:pages
  facetheory table create                               the table of facetheory.toml or of the environment
  facetheory table create --table dynamodb:test --no-deletion-protection --no-point-in-time-recovery")]
pub(super) struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Do not enable deletion protection
    #[arg(long)]
    no_deletion_protection: bool,
    /// Do not enable point-in-time recovery, which is billed by the size of the table
    #[arg(long)]
    no_point_in_time_recovery: bool,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report<'r> {
    table: &'r str,
    created: bool,
    steps: Vec<String>,
}

pub(super) async fn run(arguments: &Arguments) -> Result<()> {
    let name = arguments.store.table_name(&arguments.store.read()?)?;
    let table = super::connect(&name).await?;
    let mut setup = TableSetup::default();
    setup.deletion_protection = !arguments.no_deletion_protection;
    setup.point_in_time_recovery = !arguments.no_point_in_time_recovery;
    let (mut steps, mut printed) = (Vec::new(), Ok(()));
    let report = &mut |step: &SetupStep| {
        // A table is polled many times in the same state.
        if steps.last() != Some(step) {
            steps.push(step.clone());
            if !arguments.json && printed.is_ok() {
                printed = print(&format!("{step}\n"));
            }
        }
    };
    table.set_up(&setup, report).await?;
    printed?;
    if arguments.json {
        let created = steps.contains(&SetupStep::Created);
        let is_result = |step: &&SetupStep| !matches!(step, SetupStep::Waiting(_));
        let steps = steps.iter().filter(is_result).map(ToString::to_string).collect();
        return print(&(serde_json::to_string_pretty(&Report { table: &name, created, steps })? + "\n"));
    }
    print(&format!(
        "the table `{name}` is ready; verify it with `facetheory table check --table dynamodb:{name}`\n"
    ))
}
