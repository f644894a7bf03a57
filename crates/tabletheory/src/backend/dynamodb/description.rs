//! What a table is, and what is wrong with it.

use std::fmt;

use aws_sdk_dynamodb::types::{KeyType, ScalarAttributeType, TableDescription, TableStatus};

use crate::item::{PK, SK, TTL};

/// What a table is.
///
/// ```no_run
/// # async fn example(table: tabletheory::DynamoTable) -> tabletheory::Result<()> {
/// let table = table.describe().await?;
/// println!("{}: about {} rows, {} bytes", table.status, table.rows, table.bytes);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// DynamoDB's word for its state; `ACTIVE` when it can be used.
    pub status: String,
    /// About how many rows it has, counted every six hours or so.
    pub rows: u64,
    /// About how many bytes it has, counted every six hours or so.
    pub bytes: u64,
    /// The attribute after which rows are collected; none when that is off.
    pub ttl: Option<String>,
    /// Its keys, the partition key first.
    pub keys: Vec<KeyPart>,
}

impl Description {
    pub(super) fn new(table: &TableDescription, ttl: Option<String>) -> Self {
        let type_of = |name: &str| {
            let attribute =
                table.attribute_definitions().iter().find(|attribute| attribute.attribute_name() == name);
            attribute.map_or_else(String::new, |attribute| attribute.attribute_type().to_string())
        };
        let count = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        let mut keys: Vec<KeyPart> = table
            .key_schema()
            .iter()
            .map(|key| KeyPart {
                role: if *key.key_type() == KeyType::Hash { Role::Partition } else { Role::Sort },
                name: key.attribute_name().to_owned(),
                type_name: type_of(key.attribute_name()),
            })
            .collect();
        keys.sort_by_key(|key| key.role);
        Description {
            status: table.table_status().map_or_else(String::new, |status| status.as_str().to_owned()),
            rows: count(table.item_count()),
            bytes: count(table.table_size_bytes()),
            ttl,
            keys,
        }
    }
}

/// One attribute of a table's key.
///
/// ```
/// use tabletheory::dynamodb::{KeyPart, Role};
///
/// let sk = KeyPart { role: Role::Sort, name: "sk".into(), type_name: "S".into() };
/// assert_eq!(sk.to_string(), "`sk` of type S");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Which part of the key it is.
    pub role: Role,
    /// The attribute's name.
    pub name: String,
    /// The attribute's type: `S`, `N` or `B`.
    pub type_name: String,
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of type {}", self.name, self.type_name)
    }
}

/// Which part of a key an attribute is.
///
/// ```
/// use tabletheory::dynamodb::Role;
///
/// assert!(Role::Partition < Role::Sort);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The partition key.
    Partition,
    /// The sort key.
    Sort,
}

/// One thing that is wrong with a table, and as text also what to do about it.
///
/// ```
/// use tabletheory::dynamodb::Problem;
///
/// assert_eq!(
///     Problem::TtlOff.to_string(),
///     "expired rows are never deleted; switch time to live on, for the attribute `ttl`"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It cannot be used now.
    NotActive {
        /// DynamoDB's word for its state.
        status: String,
    },
    /// Its partition key is another attribute, or of another type.
    WrongPartitionKey(KeyPart),
    /// It has no sort key.
    NoSortKey,
    /// Its sort key is another attribute, or of another type.
    WrongSortKey(KeyPart),
    /// Expired rows stay for ever.
    TtlOff,
    /// Rows expire by another attribute.
    TtlElsewhere {
        /// That attribute.
        attribute: String,
    },
}

impl Problem {
    pub(super) fn is_about_keys(&self) -> bool {
        matches!(self, Problem::WrongPartitionKey(_) | Problem::NoSortKey | Problem::WrongSortKey(_))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ANOTHER: &str = "a table's key cannot be changed, so make another table";
        match self {
            Problem::NotActive { status } => {
                write!(f, "the table is {status}; wait until it is ACTIVE, or see in AWS why it is not")
            }
            Problem::WrongPartitionKey(key) => {
                write!(f, "the partition key is {key}, not `{PK}` of type S; {ANOTHER}")
            }
            Problem::NoSortKey => write!(f, "there is no sort key; it must be `{SK}` of type S; {ANOTHER}"),
            Problem::WrongSortKey(key) => write!(f, "the sort key is {key}, not `{SK}` of type S; {ANOTHER}"),
            Problem::TtlOff => {
                write!(f, "expired rows are never deleted; switch time to live on, for the attribute `{TTL}`")
            }
            Problem::TtlElsewhere { attribute } => write!(
                f,
                "rows expire by the attribute `{attribute}`; switch time to live to the attribute `{TTL}`"
            ),
        }
    }
}

/// Everything that is wrong with a table, in the order in which it is looked at.
pub(super) fn problems(table: &Description) -> Vec<Problem> {
    let mut problems = Vec::new();
    if table.status != TableStatus::Active.as_str() {
        problems.push(Problem::NotActive { status: table.status.clone() });
    }
    let part = |role| table.keys.iter().find(|key| key.role == role).cloned();
    let fits =
        |key: &KeyPart, name: &str| key.name == name && key.type_name == ScalarAttributeType::S.as_str();
    problems.extend(part(Role::Partition).filter(|key| !fits(key, PK)).map(Problem::WrongPartitionKey));
    match part(Role::Sort) {
        None => problems.push(Problem::NoSortKey),
        Some(key) if !fits(&key, SK) => problems.push(Problem::WrongSortKey(key)),
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

    fn key(role: Role, name: &str, type_name: &str) -> KeyPart {
        KeyPart { role, name: name.into(), type_name: type_name.into() }
    }

    fn good() -> Description {
        Description {
            status: "ACTIVE".into(),
            rows: 0,
            bytes: 0,
            ttl: Some("ttl".into()),
            keys: vec![key(Role::Partition, "pk", "S"), key(Role::Sort, "sk", "S")],
        }
    }

    #[test]
    fn a_good_table_has_no_problems() {
        assert_eq!(problems(&good()), []);
    }

    #[test]
    fn a_bad_table_has_all_of_its_problems_named() {
        let bad = Description {
            status: "CREATING".into(),
            ttl: Some("expires".into()),
            keys: vec![key(Role::Partition, "id", "N")],
            ..good()
        };
        assert_eq!(
            problems(&bad),
            [
                Problem::NotActive { status: "CREATING".into() },
                Problem::WrongPartitionKey(key(Role::Partition, "id", "N")),
                Problem::NoSortKey,
                Problem::TtlElsewhere { attribute: "expires".into() },
            ]
        );
        let numeric = Description {
            ttl: None,
            keys: vec![key(Role::Partition, "pk", "S"), key(Role::Sort, "sk", "N")],
            ..good()
        };
        let wrong = Problem::WrongSortKey(key(Role::Sort, "sk", "N"));
        assert_eq!(
            wrong.to_string(),
            "the sort key is `sk` of type N, not `sk` of type S; \
             a table's key cannot be changed, so make another table"
        );
        assert_eq!(problems(&numeric), [wrong, Problem::TtlOff]);
    }
}
