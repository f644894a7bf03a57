//! `facetheory table check`.

use std::time::Duration;

use anyhow::{Result, bail};
use facetheory::Bodies;
use serde::Serialize;
use tabletheory::{DynamoTable, SystemRandom};

use super::report::{Check, Status, StoreReport};
use super::verify::of_table;
use super::{StoreArguments, create_command};
use crate::config::Store;
use crate::print;
use crate::serve::Stores;

/// The time limit of all requests to one store.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Check the table on DynamoDB, the permissions on it, and the bucket.
///
/// Nothing changes: permissions are tested with reads of a row that does not exist and with writes whose condition is
/// false; the bucket with an object below PREFIX/probe that is deleted again. Every line says what to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory table check                                           the stores of facetheory.toml or of the environment
  facetheory table check --table dynamodb:pages --bodies s3://bucket/isr
  facetheory table check --table dynamodb:pages --strict --json    for scripts

The exit status is 0 if pages can be served and stored, and 1 if a check failed; with --strict also after a warning.")]
pub(super) struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Bodies: s3://BUCKET/PREFIX [default: those of the configuration or of the environment]
    #[arg(long, value_name = "URL")]
    bodies: Option<String>,
    /// Fail also after a warning
    #[arg(long)]
    strict: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report<'r> {
    /// Whether no check failed; with `--strict`, also no warnings.
    ok: bool,
    table: &'r str,
    checks: &'r StoreReport,
}

pub(super) async fn run(arguments: &Arguments) -> Result<()> {
    let store = arguments.store.read()?;
    let name = arguments.store.table_name(&store)?;
    let table = super::connect(&name).await?;
    let mut checks = limited("table", of_table_and_protection(&table)).await;
    match arguments.bodies.clone().or_else(|| configured_bodies(&store)) {
        Some(bodies) => checks.extend(limited("bodies", of_bodies(&bodies)).await),
        None => checks.push(Check::new(
            "bodies",
            Status::Skipped,
            "no bodies are named; add --bodies s3://BUCKET/PREFIX",
        )),
    }
    let report = StoreReport { checks };
    let ok = report.passes(arguments.strict);
    print(&if arguments.json {
        serde_json::to_string_pretty(&Report { ok, table: &name, checks: &report })? + "\n"
    } else {
        report.to_string()
    })?;
    if !ok {
        bail!("the table `{name}` or its bucket is not ready for production; the lines above say what to do");
    }
    Ok(())
}

/// The bodies of the configuration or of the environment, if any.
fn configured_bodies(store: &Store) -> Option<String> {
    store.bodies.clone().or_else(|| {
        let from_environment = Stores::of(&Store::default()).ok()?;
        from_environment.bodies.starts_with("s3://").then_some(from_environment.bodies)
    })
}

async fn limited(name: &'static str, checks: impl Future<Output = Vec<Check>>) -> Vec<Check> {
    tokio::time::timeout(TIMEOUT, checks).await.unwrap_or_else(|_| {
        let detail =
            format!("no response within {TIMEOUT:?}; check the network, the region and the endpoint");
        vec![Check { temporary: true, ..Check::new(name, Status::Failed, detail) }]
    })
}

async fn of_table_and_protection(table: &DynamoTable) -> Vec<Check> {
    let mut checks = of_table(table).await;
    // Without a table there is nothing more to check.
    if checks.iter().all(|check| check.name == "table" && check.status == Status::Failed) {
        return checks;
    }
    if let Ok(description) = table.describe().await {
        checks.push(if description.on_demand {
            Check::new("billing", Status::Ok, "on demand")
        } else {
            let detail = "capacity is provisioned, so traffic above it is throttled; switch to on-demand billing \
                          (`aws dynamodb update-table --billing-mode PAY_PER_REQUEST`), or watch the throttles";
            Check::new("billing", Status::Warning, detail)
        });
        checks.push(if description.deletion_protection {
            Check::new("deletion protection", Status::Ok, "enabled")
        } else {
            let detail = format!("off, so a mistake can delete the table; run `{}`", create_command(table));
            Check::new("deletion protection", Status::Warning, detail)
        });
    }
    let name = "point-in-time recovery";
    checks.push(match table.has_point_in_time_recovery().await {
        Ok(Some(true)) => Check::new(name, Status::Ok, "enabled"),
        Ok(Some(false)) => {
            let detail = format!("off, so deleted rows cannot be restored; run `{}`", create_command(table));
            Check::new(name, Status::Warning, detail)
        }
        Ok(None) => Check::new(name, Status::Skipped, "this server does not support it"),
        Err(error) => Check::new(
            name,
            Status::Warning,
            format!("it cannot be read: {error}; grant dynamodb:DescribeContinuousBackups to check it"),
        ),
    });
    checks
}

async fn of_bodies(address: &str) -> Vec<Check> {
    let probed = match Bodies::open(address).await {
        Ok(bodies) => bodies.probe(&SystemRandom).await,
        Err(error) => Err(error),
    };
    let probe = match probed {
        Ok(probe) => probe,
        Err(error) => {
            let cause =
                std::error::Error::source(&error).map(|cause| format!(" ({cause})")).unwrap_or_default();
            let detail = format!(
                "{address}: {error}{cause}; check the name and the region of the bucket, and attach the policy of \
                 `facetheory table template`"
            );
            return vec![Check::new("bodies", Status::Failed, detail)];
        }
    };
    let mut checks = Vec::new();
    for failure in &probe.failures {
        let status = if failure.is_fatal() { Status::Failed } else { Status::Warning };
        checks.push(Check::new("bodies", status, format!("{address}: {failure}")));
    }
    if checks.is_empty() {
        let detail = format!("{address} can be read, written, listed and deleted, and refuses to overwrite");
        checks.push(Check::new("bodies", Status::Ok, detail));
    }
    if address.starts_with("s3://") {
        checks.extend(of_lifecycle(address).await);
    }
    checks
}

async fn of_lifecycle(address: &str) -> Vec<Check> {
    let name = "lifecycle";
    match Bodies::unsafe_lifecycle_rules(address).await {
        Ok(rules) if rules.is_empty() => {
            vec![Check::new(name, Status::Ok, "no rule of the bucket deletes or archives bodies")]
        }
        Ok(rules) => rules.iter().map(|rule| Check::new(name, Status::Failed, rule.to_string())).collect(),
        Err(error) => vec![Check::new(name, Status::Warning, error.to_string())],
    }
}
