//! Descriptions of tables, and their problems.

use std::fmt;

use aws_sdk_dynamodb::types::{BillingMode, KeyType, ScalarAttributeType, TableDescription, TableStatus};

use crate::item::{PK, SK, TTL};

/// Description of a table.
///
/// ```no_run
/// # async fn example(table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
/// let table = table.describe().await?;
/// println!("{}: about {} rows, {} bytes", table.status, table.rows, table.bytes);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// DynamoDB's status of the table; `ACTIVE` if it is ready.
    pub status: String,
    /// The TTL attribute, `None` if TTL is off.
    pub ttl: Option<String>,
    /// Approximate number of rows, updated about every six hours.
    pub rows: u64,
    /// Approximate size in bytes, updated about every six hours.
    pub bytes: u64,
    /// The partition key.
    pub partition_key: Option<KeyPart>,
    /// The sort key, if the table has one.
    pub sort_key: Option<KeyPart>,
    /// Whether requests are billed one by one; otherwise capacity is provisioned.
    pub on_demand: bool,
    /// Whether the table cannot be deleted.
    pub deletion_protection: bool,
}

impl Description {
    pub(super) fn new(table: &TableDescription, ttl: Option<String>) -> Self {
        let key = |key_type: &KeyType| {
            let name = table.key_schema().iter().find(|key| key.key_type() == key_type)?.attribute_name();
            let attribute =
                table.attribute_definitions().iter().find(|attribute| attribute.attribute_name() == name);
            let type_name =
                attribute.map_or_else(String::new, |attribute| attribute.attribute_type().to_string());
            Some(KeyPart { name: name.to_owned(), type_name })
        };
        let count = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        Description {
            status: table.table_status().map_or_else(String::new, |status| status.as_str().to_owned()),
            rows: count(table.item_count()),
            bytes: count(table.table_size_bytes()),
            ttl,
            partition_key: key(&KeyType::Hash),
            sort_key: key(&KeyType::Range),
            on_demand: table
                .billing_mode_summary()
                .is_some_and(|billing| billing.billing_mode() == Some(&BillingMode::PayPerRequest)),
            deletion_protection: table.deletion_protection_enabled().unwrap_or(false),
        }
    }
}

impl Description {
    /// Returns all problems of the table; empty if there are none.
    ///
    /// ```no_run
    /// # async fn example(table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
    /// assert_eq!(table.describe().await?.problems(), []);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        problems(self)
    }
}

/// A key attribute of a table.
///
/// ```
/// use tabletheory::dynamodb::KeyPart;
///
/// let sk = KeyPart { name: "sk".into(), type_name: "S".into() };
/// assert_eq!(sk.to_string(), "`sk` of type S");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Name of the attribute.
    pub name: String,
    /// Type of the attribute: `S`, `N` or `B`.
    pub type_name: String,
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of type {}", self.name, self.type_name)
    }
}

/// A problem of a table. Its text also says what to do.
///
/// ```
/// use tabletheory::dynamodb::Problem;
///
/// assert_eq!(
///     Problem::TtlOff.to_string(),
///     "expired rows are never deleted; enable TTL on the attribute `ttl`"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The table is not ready.
    NotActive {
        /// DynamoDB's status of the table.
        status: String,
    },
    /// The partition key is not `pk` of type S.
    WrongPartitionKey(KeyPart),
    /// There is no sort key.
    NoSortKey,
    /// The sort key is not `sk` of type S.
    WrongSortKey(KeyPart),
    /// TTL is off, so expired rows are never deleted.
    TtlOff,
    /// TTL is enabled on another attribute.
    TtlElsewhere {
        /// The other attribute.
        attribute: String,
    },
}

impl Problem {
    /// Whether the keys of the table are wrong, so that it cannot be used at all.
    ///
    /// ```
    /// use tabletheory::dynamodb::Problem;
    ///
    /// assert!(Problem::NoSortKey.is_about_keys());
    /// assert!(!Problem::TtlOff.is_about_keys());
    /// ```
    #[must_use]
    pub fn is_about_keys(&self) -> bool {
        matches!(self, Problem::WrongPartitionKey(_) | Problem::NoSortKey | Problem::WrongSortKey(_))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REMEDY: &str = "the key of a table cannot be changed, so create another table";
        match self {
            Problem::NotActive { status } => {
                write!(
                    f,
                    "the table is {status}; wait until it is ACTIVE, or check its state in the AWS console"
                )
            }
            Problem::WrongPartitionKey(key) => {
                write!(f, "the partition key is {key}, not `{PK}` of type S; {REMEDY}")
            }
            Problem::NoSortKey => write!(f, "there is no sort key; it must be `{SK}` of type S; {REMEDY}"),
            Problem::WrongSortKey(key) => write!(f, "the sort key is {key}, not `{SK}` of type S; {REMEDY}"),
            Problem::TtlOff => {
                write!(f, "expired rows are never deleted; enable TTL on the attribute `{TTL}`")
            }
            Problem::TtlElsewhere { attribute } => write!(
                f,
                "TTL is enabled on the attribute `{attribute}`; enable it on the attribute `{TTL}` instead"
            ),
        }
    }
}

/// Returns all problems of a table.
pub(super) fn problems(table: &Description) -> Vec<Problem> {
    let mut problems = Vec::new();
    if table.status != TableStatus::Active.as_str() {
        problems.push(Problem::NotActive { status: table.status.clone() });
    }
    let fits =
        |key: &KeyPart, name: &str| key.name == name && key.type_name == ScalarAttributeType::S.as_str();
    problems.extend(table.partition_key.clone().filter(|key| !fits(key, PK)).map(Problem::WrongPartitionKey));
    match &table.sort_key {
        None => problems.push(Problem::NoSortKey),
        Some(key) if !fits(key, SK) => problems.push(Problem::WrongSortKey(key.clone())),
        Some(_) => {}
    }
    match table.ttl.as_deref() {
        None => problems.push(Problem::TtlOff),
        Some(TTL) => {}
        Some(other) => problems.push(Problem::TtlElsewhere { attribute: other.to_owned() }),
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, type_name: &str) -> KeyPart {
        KeyPart { name: name.into(), type_name: type_name.into() }
    }

    fn good() -> Description {
        Description {
            status: "ACTIVE".into(),
            rows: 0,
            bytes: 0,
            ttl: Some("ttl".into()),
            partition_key: Some(key("pk", "S")),
            sort_key: Some(key("sk", "S")),
            on_demand: true,
            deletion_protection: true,
        }
    }

    #[test]
    fn a_correct_table_has_no_problems() {
        assert_eq!(problems(&good()), []);
    }

    #[test]
    fn all_problems_of_a_table_are_reported() {
        let bad = Description {
            status: "CREATING".into(),
            ttl: Some("expires".into()),
            partition_key: Some(key("id", "N")),
            sort_key: None,
            ..good()
        };
        assert_eq!(
            problems(&bad),
            [
                Problem::NotActive { status: "CREATING".into() },
                Problem::WrongPartitionKey(key("id", "N")),
                Problem::NoSortKey,
                Problem::TtlElsewhere { attribute: "expires".into() },
            ]
        );
        let numeric = Description { ttl: None, sort_key: Some(key("sk", "N")), ..good() };
        let wrong = Problem::WrongSortKey(key("sk", "N"));
        assert_eq!(
            wrong.to_string(),
            "the sort key is `sk` of type N, not `sk` of type S; \
             the key of a table cannot be changed, so create another table"
        );
        assert_eq!(problems(&numeric), [wrong, Problem::TtlOff]);
    }
}
