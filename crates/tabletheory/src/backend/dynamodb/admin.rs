//! Making a table, looking at it, and deleting it.

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
use super::retry::Repeat;
use crate::error::{Error, Result};
use crate::item::{PK, SK, TTL};

/// How long between two looks at a table that is being made.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many looks, which is two minutes; a table on demand is there after some seconds.
const MAX_LOOKS: u32 = 240;

impl DynamoTable {
    /// Makes the table unless it is there: string keys `pk` and `sk`, paid per request, `ttl` switched on;
    /// returns when it can be used.
    ///
    /// Several processes may do so at once. Of a table that is there with the right keys only `ttl` is
    /// switched on, where it is off; any other is left alone, and [`verify`](DynamoTable::verify) says what
    /// is wrong with it.
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
        let creation = self.create().await?;
        let mut looks = 0;
        let description = loop {
            match self.look().await? {
                Some(table) if table.status == TableStatus::Active.as_str() => break table,
                // It may not be seen for a moment after it was made.
                _ => looks += 1,
            }
            if looks >= MAX_LOOKS {
                return Err(Error::unavailable(format!(
                    "{} is still not active after {:?}; look at it in the console of AWS",
                    self.place,
                    LOOK_EVERY * MAX_LOOKS
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        let is_ours = !problems(&description).iter().any(Problem::is_about_keys);
        if is_ours && description.ttl.is_none() {
            self.switch_ttl_on().await?;
        }
        Ok(creation)
    }

    /// What the table is: its state, about how much it holds, its keys and its `ttl`.
    ///
    /// ```no_run
    /// # async fn example(table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
    /// let table = table.describe().await?;
    /// assert_eq!(table.ttl.as_deref(), Some("ttl"));
    /// # Ok(()) }
    /// ```
    pub async fn describe(&self) -> Result<Description> {
        self.look().await?.ok_or_else(|| {
            Error::invalid(format!(
                "{} does not exist; check its name, the region and the endpoint, \
                 or make it with `create_table_if_missing`",
                self.place
            ))
        })
    }

    /// Everything that is wrong with the table; of a good one, nothing.
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

    /// Deletes the table with everything in it, for good; that there is none is no error.
    ///
    /// ```no_run
    /// # async fn example(test_table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
    /// test_table.delete_table_and_all_rows().await?;
    /// # Ok(()) }
    /// ```
    pub async fn delete_table_and_all_rows(&self) -> Result<()> {
        let request = self.client.delete_table().table_name(&self.place.table);
        let attempt = || async {
            match request.clone().send().await {
                Ok(_) => Ok(()),
                Err(error) => match error.as_service_error() {
                    Some(DeleteTableError::ResourceNotFoundException(_)) => Ok(()),
                    _ => Err(Failure::of(error, &self.place)),
                },
            }
        };
        self.persist(Repeat::Read, attempt).await
    }

    async fn create(&self) -> Result<Creation> {
        let built = |cause| Error::invalid("the table's keys have no form on DynamoDB").caused_by(cause);
        let mut request =
            self.client.create_table().table_name(&self.place.table).billing_mode(BillingMode::PayPerRequest);
        for (name, role) in [(PK, KeyType::Hash), (SK, KeyType::Range)] {
            let key = KeySchemaElement::builder().attribute_name(name).key_type(role).build();
            let attribute = AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::S)
                .build();
            request =
                request.key_schema(key.map_err(built)?).attribute_definitions(attribute.map_err(built)?);
        }
        // Making it twice is no harm: the second is told that it is there.
        let attempt = || async {
            match request.clone().send().await {
                Ok(_) => Ok(Creation::Created),
                Err(error) => match error.as_service_error() {
                    Some(CreateTableError::ResourceInUseException(_)) => Ok(Creation::AlreadyThere),
                    _ => Err(Failure::of(error, &self.place)),
                },
            }
        };
        self.persist(Repeat::Read, attempt).await
    }

    async fn look(&self) -> Result<Option<Description>> {
        let request = self.client.describe_table().table_name(&self.place.table);
        let attempt = || async {
            match request.clone().send().await {
                Ok(answer) => Ok(answer.table),
                Err(error) => match error.as_service_error() {
                    Some(DescribeTableError::ResourceNotFoundException(_)) => Ok(None),
                    _ => Err(Failure::of(error, &self.place)),
                },
            }
        };
        let Some(table) = self.persist(Repeat::Read, attempt).await? else { return Ok(None) };
        Ok(Some(Description::new(&table, self.ttl_attribute().await?)))
    }

    async fn ttl_attribute(&self) -> Result<Option<String>> {
        let request = self.client.describe_time_to_live().table_name(&self.place.table);
        let attempt =
            || async { request.clone().send().await.map_err(|error| Failure::of(error, &self.place)) };
        let ttl = self.persist(Repeat::Read, attempt).await?.time_to_live_description;
        Ok(ttl.and_then(|ttl| match ttl.time_to_live_status {
            Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => ttl.attribute_name,
            _ => None,
        }))
    }

    async fn switch_ttl_on(&self) -> Result<()> {
        let specification = TimeToLiveSpecification::builder().enabled(true).attribute_name(TTL).build();
        let specification = specification
            .map_err(|cause| Error::invalid("`ttl` has no form on DynamoDB").caused_by(cause))?;
        let request = self
            .client
            .update_time_to_live()
            .table_name(&self.place.table)
            .time_to_live_specification(specification);
        let attempt = || async {
            request.clone().send().await.map(|_| ()).map_err(|error| Failure::of(error, &self.place))
        };
        match self.persist(Repeat::Read, attempt).await {
            Ok(()) => Ok(()),
            // Another may have switched it on since we looked, and DynamoDB refuses to do so twice.
            Err(error) => match self.ttl_attribute().await? {
                Some(_) => Ok(()),
                None => Err(error),
            },
        }
    }
}

/// Whether a table was made now.
///
/// ```
/// use tabletheory::dynamodb::Creation;
///
/// assert_ne!(Creation::Created, Creation::AlreadyThere);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// This call made it.
    Created,
    /// It was there, or another made it at the same time.
    AlreadyThere,
}
