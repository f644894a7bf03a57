//! The results of checks: a line of text or a JSON object each.

use std::fmt;

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    /// The name of the check.
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// The finding, and what to do about it.
    pub(super) detail: String,
    /// Whether the same check may succeed later without a change: the store did not respond.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) temporary: bool,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Status {
    Ok,
    /// Not needed, or not supported by the server.
    Skipped,
    /// Pages are served, but something is missing that production needs.
    Warning,
    /// Pages cannot be served or stored.
    Failed,
}

impl Check {
    pub(super) fn new(name: &'static str, status: Status, detail: impl Into<String>) -> Self {
        Check { name, status, detail: detail.into(), temporary: false }
    }
}

/// The results of the checks of the stores.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct StoreReport {
    pub(super) checks: Vec<Check>,
}

impl StoreReport {
    /// Whether no check failed.
    pub(crate) fn passed(&self) -> bool {
        self.passes(false)
    }

    /// Whether no check failed; with `strict`, also no warnings.
    pub(super) fn passes(&self, strict: bool) -> bool {
        let is_bad = |check: &Check| match check.status {
            Status::Ok | Status::Skipped => false,
            Status::Warning => strict,
            Status::Failed => true,
        };
        !self.checks.iter().any(is_bad)
    }
}

/// One line per check: its status, its name and the finding.
impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
        for Check { name, status, detail, .. } in &self.checks {
            let status = match status {
                Status::Ok => "ok",
                Status::Skipped => "skipped",
                Status::Warning => "warning",
                Status::Failed => "failed",
            };
            writeln!(f, "{status:<8} {name:<width$}  {detail}")?;
        }
        Ok(())
    }
}
