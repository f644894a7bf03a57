//! The addresses of table and bodies in environment variables, as programs in every language read them.

use std::env::VarError;
use std::sync::Arc;

use tabletheory::Address;

use crate::bodies::Bodies;
use crate::error::{Error, Result};
use crate::pages::Pages;
use crate::store::PageStore;

/// The variables of the table; the first that is set wins.
const TABLE: [&str; 4] =
    ["FACETHEORY_CACHE_TABLE_NAME", "APPTHEORY_CACHE_TABLE_NAME", "CACHE_TABLE_NAME", "CACHE_TABLE"];
const BUCKET: &str = "FACETHEORY_ISR_BUCKET";
const PREFIX: &str = "FACETHEORY_ISR_PREFIX";

/// The addresses of table and bodies in environment variables.
///
/// | variable | meaning |
/// |---|---|
/// | `FACETHEORY_CACHE_TABLE_NAME`, `APPTHEORY_CACHE_TABLE_NAME`, `CACHE_TABLE_NAME`, `CACHE_TABLE` | the table: a name on DynamoDB, or an address such as `sqlite:data/table.db`; the first that is set wins |
/// | `FACETHEORY_ISR_BUCKET` | the bodies: an S3 bucket, or an address such as `file:data/bodies` |
/// | `FACETHEORY_ISR_PREFIX` | the prefix of S3 keys in a bucket; `isr` by default, none if it is `/` |
///
/// A variable that is empty or blank counts as not set.
///
/// ```
/// use facetheory::Environment;
///
/// let environment = Environment::from_lookup(|name| match name {
///     "CACHE_TABLE_NAME" => Ok("pages".into()),
///     "FACETHEORY_ISR_BUCKET" => Ok("my-bucket".into()),
///     _ => Err(std::env::VarError::NotPresent),
/// })?;
/// assert_eq!(environment.table.to_string(), "dynamodb:pages");
/// assert_eq!(environment.bodies, "s3://my-bucket/isr");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// The address of the table.
    pub table: Address,
    /// The address of the bodies.
    pub bodies: String,
}

impl Environment {
    /// The variables with an address. If none of them is set, the environment has no configuration.
    ///
    /// ```
    /// assert!(facetheory::Environment::VARIABLES.contains(&"FACETHEORY_ISR_BUCKET"));
    /// ```
    pub const VARIABLES: [&'static str; 5] = [TABLE[0], TABLE[1], TABLE[2], TABLE[3], BUCKET];

    /// Reads the environment of this process.
    ///
    /// ```no_run
    /// let environment = facetheory::Environment::of_process()?;
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn of_process() -> Result<Self> {
        Environment::from_lookup(|name| std::env::var(name))
    }

    /// Reads the address of the table alone.
    ///
    /// ```no_run
    /// let table = facetheory::Environment::table_of_process()?;
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn table_of_process() -> Result<Address> {
        Ok(Address::from_env(&TABLE)?)
    }

    /// Reads the variables with this function.
    ///
    /// ```
    /// let nothing = facetheory::Environment::from_lookup(|_| Err(std::env::VarError::NotPresent));
    /// assert!(nothing.is_err());
    /// ```
    pub fn from_lookup(look_up: impl Fn(&str) -> Result<String, VarError>) -> Result<Self> {
        let bodies = bodies(&look_up)?;
        Ok(Environment { table: Address::from_lookup(&TABLE, look_up)?, bodies })
    }

    /// Opens table and bodies.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let environment = facetheory::Environment::from_lookup(|_| Ok("memory:".into()))?;
    /// let pages = environment.open().await?;
    /// # Ok(()) }
    /// ```
    pub async fn open(&self) -> Result<Pages> {
        let table: Arc<dyn tabletheory::Table> = self.table.open().await?;
        Ok(Pages::new(PageStore::new(table), Bodies::open(&self.bodies).await?))
    }
}

impl Bodies {
    /// Opens the bodies at the address in the environment of this process; see [`Environment`].
    ///
    /// ```no_run
    /// # async fn f() -> facetheory::Result<()> {
    /// let bodies = facetheory::Bodies::from_environment().await?;
    /// # Ok(()) }
    /// ```
    pub async fn from_environment() -> Result<Self> {
        Bodies::open(&bodies(&|name: &str| std::env::var(name))?).await
    }
}

fn bodies(look_up: &impl Fn(&str) -> Result<String, VarError>) -> Result<String> {
    let set = |name: &str| match look_up(name) {
        Ok(value) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(cause @ VarError::NotUnicode(_)) => {
            Err(Error::invalid(format!("the environment variable {name} is not valid UTF-8"))
                .caused_by(cause))
        }
    };
    let Some(bucket) = set(BUCKET)? else {
        return Err(Error::invalid(format!(
            "the environment variable {BUCKET} is not set; set it to an S3 bucket or file:DIRECTORY"
        )));
    };
    // The name of a bucket contains no colon, so this is an address.
    if bucket.contains(':') {
        return Ok(bucket);
    }
    let prefix = set(PREFIX)?.unwrap_or_else(|| "isr".to_owned());
    Ok(format!("s3://{bucket}/{prefix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Environment> {
        Environment::from_lookup(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned()).ok_or(VarError::NotPresent)
        })
    }

    #[test]
    fn the_first_table_variable_wins_and_a_bare_name_is_on_dynamodb() {
        let all: Vec<(&str, &str)> = TABLE.iter().map(|name| (*name, *name)).chain([(BUCKET, "b")]).collect();
        for first in 0..TABLE.len() {
            let environment = with(&all[first..]).expect("a table and a bucket");
            assert_eq!(environment.table, Address::Dynamodb(TABLE[first].into()));
        }
        let file = with(&[(TABLE[0], "  "), (TABLE[3], " sqlite:a.db "), (BUCKET, "file:bodies")]);
        let file = file.expect("a blank variable counts as not set");
        assert_eq!(file.table, Address::Sqlite("a.db".into()));
        assert_eq!(file.bodies, "file:bodies");
    }

    #[test]
    fn a_bucket_has_the_prefix_isr_unless_another_is_set() {
        for (prefix, expected) in
            [("", "s3://b/isr"), (" ", "s3://b/isr"), ("a/b/", "s3://b/a/b/"), ("/", "s3://b//")]
        {
            let environment = with(&[(TABLE[0], "t"), (BUCKET, " b "), (PREFIX, prefix)]);
            assert_eq!(environment.expect("an environment").bodies, expected);
        }
        assert_eq!(with(&[(TABLE[0], "t"), (BUCKET, "b")]).expect("an environment").bodies, "s3://b/isr");
    }

    #[test]
    fn an_error_names_the_variable_that_is_missing_or_invalid() {
        for (variables, reason) in [
            (
                vec![(TABLE[0], "t")],
                "the environment variable FACETHEORY_ISR_BUCKET is not set; set it to an S3 bucket or file:DIRECTORY",
            ),
            (
                vec![(BUCKET, "b")],
                "no table is configured; set one of these environment variables: FACETHEORY_CACHE_TABLE_NAME, \
                 APPTHEORY_CACHE_TABLE_NAME, CACHE_TABLE_NAME, CACHE_TABLE",
            ),
            (
                vec![(TABLE[2], "redis:x"), (BUCKET, "b")],
                "CACHE_TABLE_NAME: `redis:x` is not the address of a table; it must be memory:, sqlite:PATH or dynamodb:TABLE",
            ),
        ] {
            assert_eq!(with(&variables).expect_err(reason).to_string(), reason);
        }
        let bytes = Environment::from_lookup(|_| Err(VarError::NotUnicode("x".into())));
        let reason = "the environment variable FACETHEORY_ISR_BUCKET is not valid UTF-8";
        assert_eq!(bytes.expect_err(reason).to_string(), reason);
    }
}
