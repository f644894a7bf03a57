//! Creating, describing and deleting tables. `setup` adds the protection of a table in production.

use std::time::Duration;

use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::delete_table::DeleteTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableStatus,
    TimeToLiveSpecification, TimeToLiveStatus,
};

use super::DynamoTable;
use super::description::{Description, Problem, problems};
use super::failure::Failure;
use super::retry::Idempotency;
use crate::error::{Error, Result};
use crate::item::{PK, SK, TTL};

/// Time between polls of a table that is being created.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Two minutes; an on-demand table is ready after some seconds.
pub(super) const MAX_POLLS: u32 = 240;

impl DynamoTable {
    /// Creates the table if it does not exist, with string keys `pk` and `sk`, on-demand billing and TTL on `ttl`. Returns
    /// when the table is ready.
    ///
    /// Several processes may call this concurrently. If a table with the right keys exists, TTL is enabled if it is off. A
    /// table with other keys is not changed; [`verify`](DynamoTable::verify) reports its problems.
    ///
    /// ```no_run
    /// use tabletheory::{DynamoSettings, DynamoTable};
    ///
    /// # async fn example() -> tabletheory::Result<()> {
    /// let table = DynamoTable::connect("pages", DynamoSettings::default()).await?;
    /// table.create_table_if_missing().await?;
    /// # Ok(()) }
    /// ```
    pub async fn create_table_if_missing(&self) -> Result<Creation> {
        let creation = self.create(false).await?;
        let description = self.wait_until_active(&mut |_| {}).await?;
        if description.ttl.is_none() && !problems(&description).iter().any(Problem::is_about_keys) {
            self.enable_ttl().await?;
        }
        Ok(creation)
    }

    /// Waits until the table is ready, and reports every state that it has meanwhile.
    pub(super) async fn wait_until_active(
        &self,
        waiting: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Description> {
        for _ in 0..MAX_POLLS {
            // A new table may not be visible immediately.
            let found = self.find().await?;
            let status = found.as_ref().map_or("CREATING", |table| table.status.as_str());
            if status == TableStatus::Active.as_str()
                && let Some(table) = found
            {
                return Ok(table);
            }
            waiting(status);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err(Error::unavailable(format!(
            "{} is still not active after {:?}; check its state in the AWS console",
            self.label,
            POLL_INTERVAL * MAX_POLLS
        )))
    }

    /// Describes the table: status, approximate size, keys and TTL attribute.
    ///
    /// ```no_run
    /// # async fn example(table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
    /// let table = table.describe().await?;
    /// assert_eq!(table.ttl.as_deref(), Some("ttl"));
    /// # Ok(()) }
    /// ```
    pub async fn describe(&self) -> Result<Description> {
        self.find().await?.ok_or_else(|| {
            Error::unavailable(format!(
                "{} does not exist; check its name, the region and the endpoint, \
                 or create it with `create_table_if_missing`",
                self.label
            ))
        })
    }

    /// Returns all problems of the table; empty if there are none.
    ///
    /// ```no_run
    /// # async fn example(table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
    /// for problem in table.verify().await? {
    ///     eprintln!("{problem}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn verify(&self) -> Result<Vec<Problem>> {
        Ok(problems(&self.describe().await?))
    }

    /// Deletes the table with all rows, permanently. Succeeds if there is no such table.
    ///
    /// ```no_run
    /// # async fn example(test_table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
    /// test_table.delete_table_and_all_rows().await?;
    /// # Ok(()) }
    /// ```
    pub async fn delete_table_and_all_rows(&self) -> Result<()> {
        let request = self.client.delete_table().table_name(&self.label.table);
        let deleted = send!(
            self,
            Idempotency::Read,
            request,
            _ => (),
            DeleteTableError::ResourceNotFoundException(_) => Ok(()),
        );
        deleted.map(|retried| retried.result)
    }

    pub(super) async fn create(&self, deletion_protection: bool) -> Result<Creation> {
        let invalid = |cause| Error::invalid("the keys of the table cannot be sent").caused_by(cause);
        let mut request =
            self.client.create_table().table_name(&self.label.table).billing_mode(BillingMode::PayPerRequest);
        if deletion_protection {
            request = request.deletion_protection_enabled(true);
        }
        for (name, role) in [(PK, KeyType::Hash), (SK, KeyType::Range)] {
            let key = KeySchemaElement::builder().attribute_name(name).key_type(role).build();
            let attribute = AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::S)
                .build();
            request =
                request.key_schema(key.map_err(invalid)?).attribute_definitions(attribute.map_err(invalid)?);
        }
        // May be retried: a second creation returns that the table exists.
        let creation = send!(
            self,
            Idempotency::Read,
            request,
            _ => Creation::Created,
            CreateTableError::ResourceInUseException(_) => Ok(Creation::AlreadyThere),
        );
        creation.map(|retried| retried.result)
    }

    pub(super) async fn find(&self) -> Result<Option<Description>> {
        let request = self.client.describe_table().table_name(&self.label.table);
        let found = send!(
            self,
            Idempotency::Read,
            request,
            output => output.table,
            DescribeTableError::ResourceNotFoundException(_) => Ok(None),
        );
        let Some(table) = found?.result else { return Ok(None) };
        Ok(Some(Description::new(&table, self.ttl_attribute().await?)))
    }

    async fn ttl_attribute(&self) -> Result<Option<String>> {
        let request = self.client.describe_time_to_live().table_name(&self.label.table);
        let output = send!(self, Idempotency::Read, request, output => output)?.result;
        Ok(output.time_to_live_description.and_then(|ttl| match ttl.time_to_live_status {
            Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => ttl.attribute_name,
            _ => None,
        }))
    }

    pub(super) async fn enable_ttl(&self) -> Result<()> {
        let specification = TimeToLiveSpecification::builder().enabled(true).attribute_name(TTL).build();
        let specification = specification
            .map_err(|cause| Error::invalid("the TTL setting cannot be sent").caused_by(cause))?;
        let request = self
            .client
            .update_time_to_live()
            .table_name(&self.label.table)
            .time_to_live_specification(specification);
        match send!(self, Idempotency::Read, request, _ => ()) {
            Ok(_) => Ok(()),
            // Another process may have enabled it meanwhile, and DynamoDB rejects enabling it twice.
            Err(error) => match self.ttl_attribute().await? {
                Some(_) => Ok(()),
                None => Err(error),
            },
        }
    }
}

/// Whether a table was created.
///
/// ```
/// use tabletheory::dynamodb::Creation;
///
/// assert_ne!(Creation::Created, Creation::AlreadyThere);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Creation {
    /// This call created the table.
    Created,
    /// The table existed, or another process created it at the same time.
    AlreadyThere,
}
