//! Sets a table up for production: keys, TTL, and protection against loss.

use std::fmt;

use aws_sdk_dynamodb::operation::describe_continuous_backups::DescribeContinuousBackupsError;
use aws_sdk_dynamodb::operation::update_continuous_backups::UpdateContinuousBackupsError;
use aws_sdk_dynamodb::types::{PointInTimeRecoverySpecification, PointInTimeRecoveryStatus};

use super::DynamoTable;
use super::admin::{Creation, MAX_POLLS, POLL_INTERVAL};
use super::description::{Problem, problems};
use super::failure::{Failure, error_code};
use super::retry::Idempotency;
use crate::error::{Error, Result};

/// The features of a table beyond its keys.
///
/// ```
/// let mut setup = tabletheory::dynamodb::TableSetup::default();
/// setup.deletion_protection = false;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSetup {
    /// Whether the table can be restored to any second of the last 35 days.
    pub point_in_time_recovery: bool,
    /// Whether the table cannot be deleted until this is switched off.
    pub deletion_protection: bool,
}

impl Default for TableSetup {
    /// All features.
    fn default() -> Self {
        TableSetup { point_in_time_recovery: true, deletion_protection: true }
    }
}

/// A feature of a table.
///
/// ```
/// assert_eq!(tabletheory::dynamodb::Feature::Ttl.to_string(), "TTL on the attribute `ttl`");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// Deletion of expired rows.
    Ttl,
    /// Restoring the table to an earlier time.
    PointInTimeRecovery,
    /// Protection against deletion of the table.
    DeletionProtection,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::Ttl => "TTL on the attribute `ttl`",
            Feature::PointInTimeRecovery => "point-in-time recovery",
            Feature::DeletionProtection => "deletion protection",
        })
    }
}

/// A step of [`DynamoTable::set_up`].
///
/// ```
/// use tabletheory::dynamodb::{Feature, SetupStep};
///
/// assert_eq!(SetupStep::Enabled(Feature::DeletionProtection).to_string(), "enabled deletion protection");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupStep {
    /// The table was created.
    Created,
    /// The table existed.
    AlreadyThere,
    /// The table is not ready yet, and has this state.
    Waiting(String),
    /// A feature was enabled.
    Enabled(Feature),
    /// A feature was enabled before.
    AlreadyEnabled(Feature),
    /// The server does not have this feature, as DynamoDB Local.
    Unsupported(Feature),
}

impl fmt::Display for SetupStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupStep::Created => {
                f.write_str("created the table with the keys `pk` and `sk` and on-demand billing")
            }
            SetupStep::AlreadyThere => f.write_str("the table exists, with the right keys"),
            SetupStep::Waiting(status) => write!(f, "waiting until the table is active; it is {status}"),
            SetupStep::Enabled(feature) => write!(f, "enabled {feature}"),
            SetupStep::AlreadyEnabled(feature) => write!(f, "{feature} was enabled before"),
            SetupStep::Unsupported(feature) => {
                write!(f, "skipped {feature}: this server does not support it")
            }
        }
    }
}

impl DynamoTable {
    /// Creates the table if it does not exist, waits until it is ready, and enables TTL and the features of `setup` that are
    /// off. It reports every step, and may be repeated.
    ///
    /// A table with other keys, or with TTL on another attribute, is not changed: that is an error. A feature that `setup`
    /// does not name is never switched off.
    ///
    /// ```no_run
    /// use tabletheory::dynamodb::TableSetup;
    ///
    /// # async fn example(table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
    /// table.set_up(&TableSetup::default(), &mut |step| println!("{step}")).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_up(
        &self,
        setup: &TableSetup,
        report: &mut (dyn FnMut(&SetupStep) + Send),
    ) -> Result<()> {
        // An existing table needs no permission to create one.
        let created = self.find().await?.is_none()
            && self.create(setup.deletion_protection).await? == Creation::Created;
        if created {
            report(&SetupStep::Created);
        }
        let mut wait = |status: &str| report(&SetupStep::Waiting(status.to_owned()));
        let table = self.wait_until_active(&mut wait).await?;
        let is_serious = |problem: &Problem| *problem != Problem::TtlOff;
        if let Some(problem) = problems(&table).into_iter().find(is_serious) {
            return Err(Error::invalid(format!("{} exists, but {problem}", self.label)));
        }
        if !created {
            report(&SetupStep::AlreadyThere);
        }
        if table.ttl.is_some() {
            report(&SetupStep::AlreadyEnabled(Feature::Ttl));
        } else {
            self.enable_ttl().await?;
            report(&SetupStep::Enabled(Feature::Ttl));
        }
        if setup.point_in_time_recovery {
            report(&self.enable_point_in_time_recovery().await?);
        }
        if setup.deletion_protection {
            // Last, because the table is not active for a moment.
            if table.deletion_protection && !created {
                report(&SetupStep::AlreadyEnabled(Feature::DeletionProtection));
            } else {
                report(&self.enable_deletion_protection(table.deletion_protection).await?);
            }
        }
        Ok(())
    }

    /// Returns whether the table can be restored to an earlier time; `None` if the server does not support that.
    ///
    /// ```no_run
    /// # async fn example(table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
    /// assert_eq!(table.has_point_in_time_recovery().await?, Some(true));
    /// # Ok(()) }
    /// ```
    pub async fn has_point_in_time_recovery(&self) -> Result<Option<bool>> {
        let request = self.client.describe_continuous_backups().table_name(&self.label.table);
        let described = send!(
            self,
            Idempotency::Read,
            request,
            output => Some(output.continuous_backups_description),
            // Just after its creation.
            DescribeContinuousBackupsError::TableNotFoundException(_) => Ok(Some(None)),
        );
        let backups = match unsupported(described.map(|retried| retried.result))? {
            Some(backups) => backups.flatten(),
            None => return Ok(None),
        };
        let recovery = backups.and_then(|backups| backups.point_in_time_recovery_description);
        let status = recovery.and_then(|recovery| recovery.point_in_time_recovery_status);
        Ok(Some(status == Some(PointInTimeRecoveryStatus::Enabled)))
    }

    async fn enable_point_in_time_recovery(&self) -> Result<SetupStep> {
        let feature = Feature::PointInTimeRecovery;
        match self.has_point_in_time_recovery().await? {
            None => return Ok(SetupStep::Unsupported(feature)),
            Some(true) => return Ok(SetupStep::AlreadyEnabled(feature)),
            Some(false) => {}
        }
        let specification =
            PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true).build();
        let specification = specification.map_err(|cause| {
            Error::invalid("the setting of point-in-time recovery cannot be sent").caused_by(cause)
        })?;
        for _ in 0..MAX_POLLS {
            let request = self
                .client
                .update_continuous_backups()
                .table_name(&self.label.table)
                .point_in_time_recovery_specification(specification.clone());
            let enabled = send!(
                self,
                Idempotency::Read,
                request,
                _ => true,
                // Backups of a new table are prepared in the background.
                UpdateContinuousBackupsError::ContinuousBackupsUnavailableException(_) => Ok(false),
            );
            match unsupported(enabled.map(|retried| retried.result))? {
                None => return Ok(SetupStep::Unsupported(feature)),
                Some(true) => return Ok(SetupStep::Enabled(feature)),
                Some(false) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
        Err(Error::unavailable(format!(
            "point-in-time recovery of {} is not available after {:?}; try again later",
            self.label,
            POLL_INTERVAL * MAX_POLLS
        )))
    }

    async fn enable_deletion_protection(&self, is_enabled: bool) -> Result<SetupStep> {
        let feature = Feature::DeletionProtection;
        if !is_enabled {
            let request =
                self.client.update_table().table_name(&self.label.table).deletion_protection_enabled(true);
            let enabled = send!(self, Idempotency::Read, request, _ => ());
            if unsupported(enabled.map(|retried| retried.result))?.is_none() {
                return Ok(SetupStep::Unsupported(feature));
            }
            let table = self.wait_until_active(&mut |_| {}).await?;
            if !table.deletion_protection {
                return Ok(SetupStep::Unsupported(feature));
            }
        }
        Ok(SetupStep::Enabled(feature))
    }
}

/// Returns `None` instead of the error of a server that does not know the operation.
fn unsupported<T>(result: Result<T>) -> Result<Option<T>> {
    const UNKNOWN_OPERATION: &str = "UnknownOperationException";
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error_code(&error) == Some(UNKNOWN_OPERATION) => Ok(None),
        Err(error) => Err(error),
    }
}
