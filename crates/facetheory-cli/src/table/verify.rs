//! The checks of a table: all of them for `facetheory table check`, and those that a gateway needs when it starts.

use std::time::Duration;

use anyhow::{Result, bail};
use tabletheory::dynamodb::{Description, Permission, Problem, error_code, is_denied};
use tabletheory::{DynamoTable, Error, Kind};

use super::report::{Check, Status, StoreReport};
use super::{create_command, policy};
use crate::config::{Store, Timeouts};
use crate::serve::Stores;

/// Verifies the table of a gateway that starts. The error is one message that says what to do.
///
/// A table that does not respond does not stop the gateway, which serves from its origin meanwhile, and neither does a
/// missing permission to describe the table.
pub(crate) async fn verify_at_start(table: &DynamoTable, limit: Duration) -> Result<()> {
    let checks = bounded(table, limit).await;
    let is_fatal = |check: &&Check| check.status == Status::Failed && !check.temporary;
    let fatal: Vec<&str> = checks.iter().filter(is_fatal).map(|check| check.detail.as_str()).collect();
    if !fatal.is_empty() {
        bail!("the gateway cannot use its table: {}", fatal.join("; "));
    }
    let is_notable = |check: &&Check| !matches!(check.status, Status::Ok | Status::Skipped);
    for check in checks.iter().filter(is_notable) {
        tracing::warn!(check = check.name, table = table.name(), "{}", check.detail);
    }
    Ok(())
}

/// Verifies the stores of a configuration as [`verify_at_start`] does, and that the bodies respond.
pub(crate) async fn of_stores(store: &Store, timeouts: &Timeouts) -> Result<StoreReport> {
    let stores = Stores::of(store)?;
    let opened = stores.open_table().await?;
    let mut checks = match &opened.dynamo {
        Some(dynamo) => bounded(dynamo, timeouts.table).await,
        None => vec![Check::new("table", Status::Ok, format!("{} can be opened", stores.table))],
    };
    let pages = stores.pages(opened, store).await?;
    let bodies = facetheory::Isr::new(pages);
    checks.push(match tokio::time::timeout(timeouts.bodies, bodies.check_bodies()).await {
        Ok(Ok(())) => Check::new("bodies", Status::Ok, format!("{} responds", stores.bodies)),
        Ok(Err(error)) => Check::new("bodies", Status::Failed, format!("{}: {error}", stores.bodies)),
        Err(_) => Check::new(
            "bodies",
            Status::Failed,
            format!(
                "{} did not respond within {:?}; check the endpoint and the network",
                stores.bodies, timeouts.bodies
            ),
        ),
    });
    Ok(StoreReport { checks })
}

/// Runs the checks of a table within a time limit.
async fn bounded(table: &DynamoTable, limit: Duration) -> Vec<Check> {
    match tokio::time::timeout(limit, of_table(table)).await {
        Ok(checks) => checks,
        Err(_) => vec![unreachable(format!(
            "the table `{}` did not respond within {limit:?}; check the network, the region and the endpoint",
            table.name()
        ))],
    }
}

fn unreachable(detail: String) -> Check {
    Check { temporary: true, ..Check::new("table", Status::Failed, detail) }
}

/// Checks existence, keys, TTL and permissions, with concurrent requests.
pub(super) async fn of_table(table: &DynamoTable) -> Vec<Check> {
    let (described, permissions) = tokio::join!(table.describe(), table.probe_permissions());
    checks(table, described, permissions)
}

fn checks(
    table: &DynamoTable,
    described: Result<Description, Error>,
    permissions: Vec<Permission>,
) -> Vec<Check> {
    let name = table.name();
    let code_is = |error: &Error, code: &str| error_code(error).is_some_and(|found| found == code);
    let denied = |error: &Error| code_is(error, "AccessDeniedException") || code_is(error, "AccessDenied");
    let failed: Vec<(&str, &Error)> = permissions
        .iter()
        .filter_map(|Permission { action, result, .. }| Some((*action, result.as_ref().err()?)))
        .collect();
    let mut checks = Vec::new();

    // The first error that concerns every request, and not the permission for one of them.
    let missing = failed.iter().any(|(_, error)| code_is(error, "ResourceNotFoundException"));
    if missing {
        let detail = format!(
            "the table `{name}` does not exist; create it with `{}`, or correct its name, AWS_REGION or \
             AWS_ENDPOINT_URL_DYNAMODB",
            create_command(table)
        );
        return vec![Check::new("table", Status::Failed, detail)];
    }
    let other = failed.iter().find(|(_, error)| !denied(error) && !code_is(error, "ValidationException"));
    if let Some((_, error)) = other {
        if error.kind() == Kind::Invalid || is_denied(*error) {
            return vec![Check::new("table", Status::Failed, error.to_string())];
        }
        return vec![unreachable(error.to_string())];
    }
    match &described {
        Ok(description) => {
            checks.push(Check::new(
                "table",
                Status::Ok,
                format!(
                    "`{name}` is {}, with about {} rows",
                    description.status.to_lowercase(),
                    description.rows
                ),
            ));
            checks.extend(of_description(table, description));
        }
        Err(error) => {
            let detail = format!(
                "keys and TTL of the table `{name}` cannot be verified: {error}; grant dynamodb:DescribeTable and \
                 dynamodb:DescribeTimeToLive"
            );
            checks.push(Check::new("table", Status::Warning, detail));
            // Without a description, the requests themselves show that the keys are wrong.
            if failed.iter().any(|(_, error)| code_is(error, "ValidationException")) {
                checks.push(Check::new("keys", Status::Failed, wrong_keys(table, "DynamoDB rejects them")));
            }
        }
    }
    if checks.iter().all(|check| check.name != "keys" || check.status == Status::Ok) {
        checks.push(of_permissions(table, &failed.iter().map(|(action, _)| *action).collect::<Vec<_>>()));
    }
    checks
}

fn of_description(table: &DynamoTable, description: &Description) -> Vec<Check> {
    let problems = description.problems();
    let mut checks = Vec::new();
    let keys: Vec<String> =
        problems.iter().filter(|problem| problem.is_about_keys()).map(ToString::to_string).collect();
    checks.push(if keys.is_empty() {
        Check::new("keys", Status::Ok, "`pk` and `sk` of type S")
    } else {
        Check::new("keys", Status::Failed, wrong_keys(table, &keys.join("; ")))
    });
    let ttl =
        problems.iter().find(|problem| matches!(problem, Problem::TtlOff | Problem::TtlElsewhere { .. }));
    checks.push(match ttl {
        None => Check::new("ttl", Status::Ok, "enabled on the attribute `ttl`"),
        Some(Problem::TtlOff) => {
            let detail =
                format!("TTL is off, so expired rows are never deleted; run `{}`", create_command(table));
            Check::new("ttl", Status::Warning, detail)
        }
        Some(problem) => Check::new("ttl", Status::Warning, problem.to_string()),
    });
    checks
}

fn wrong_keys(table: &DynamoTable, problem: &str) -> String {
    format!(
        "the table `{}` has other keys: {problem}; use another table, created with `facetheory table create --table \
         dynamodb:NAME`",
        table.name()
    )
}

fn of_permissions(table: &DynamoTable, denied: &[&str]) -> Check {
    let (optional, needed): (Vec<&str>, Vec<&str>) =
        denied.iter().partition(|action| policy::OPTIONAL.contains(*action));
    if !needed.is_empty() {
        return Check::new(
            "permissions",
            Status::Failed,
            format!(
                "this identity may not perform {} on the table `{}`; attach the policy of `facetheory table template`",
                denied.join(", "),
                table.name()
            ),
        );
    }
    if !optional.is_empty() {
        let detail = format!(
            "this identity may not perform {}, which gc and lists of pages need; attach the policy of \
             `facetheory table template`",
            optional.join(", ")
        );
        return Check::new("permissions", Status::Warning, detail);
    }
    Check::new("permissions", Status::Ok, "all actions on rows are allowed")
}
