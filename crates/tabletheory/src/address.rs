//! Addresses of tables, as used on command lines, in configurations and in the environment.

use std::env::VarError;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::backend::memory::MemoryTable;
use crate::error::{Error, Result};
use crate::table::Table;

/// Opens the table at an address: `memory:`, `sqlite:PATH` or `dynamodb:TABLE`.
///
/// Creates a SQLite file and its directory if they are missing, but never a DynamoDB table.
///
/// ```
/// use tabletheory::{Consistency, Key, Table};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// let table = tabletheory::open("memory:").await?;
/// assert_eq!(table.get(&Key::new("CACHE#1", "META"), Consistency::Strong).await?, None);
/// # Ok(()) }
/// ```
pub async fn open(address: &str) -> Result<Arc<dyn Table>> {
    address.parse::<Address>()?.open().await
}

/// The address of a table.
///
/// ```
/// use tabletheory::Address;
///
/// assert_eq!("sqlite:data/table.db".parse::<Address>()?, Address::Sqlite("data/table.db".into()));
/// assert_eq!("dynamodb:pages".parse::<Address>()?.to_string(), "dynamodb:pages");
/// assert_eq!(
///     "redis:pages".parse::<Address>().unwrap_err().to_string(),
///     "`redis:pages` is not the address of a table; it must be memory:, sqlite:PATH or dynamodb:TABLE"
/// );
/// # Ok::<(), tabletheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// In this process: `memory:`.
    Memory,
    /// In a file: `sqlite:PATH`.
    Sqlite(PathBuf),
    /// In a DynamoDB table: `dynamodb:TABLE`.
    Dynamodb(String),
}

impl Address {
    /// Returns the address in the first of these environment variables that is set and not blank.
    ///
    /// A value without a scheme is the name of a DynamoDB table, as services in other languages write it.
    ///
    /// ```
    /// let error = tabletheory::Address::from_env(&["NO_SUCH_VARIABLE"]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "no table is configured; set one of these environment variables: NO_SUCH_VARIABLE"
    /// );
    /// ```
    pub fn from_env(names: &[&str]) -> Result<Address> {
        Address::from_lookup(names, |name| std::env::var(name))
    }

    /// Like [`from_env`](Address::from_env), with variables from a function instead of the environment.
    ///
    /// ```
    /// let address = tabletheory::Address::from_lookup(&["TABLE"], |_| Ok("pages".into()))?;
    /// assert_eq!(address.to_string(), "dynamodb:pages");
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn from_lookup(names: &[&str], lookup: impl Fn(&str) -> Result<String, VarError>) -> Result<Address> {
        for name in names {
            match lookup(name).map(|value| value.trim().to_owned()) {
                Ok(value) if value.is_empty() => {}
                Ok(value) => {
                    let address = if value.contains(':') { value } else { format!("dynamodb:{value}") };
                    return address.parse().map_err(|error: Error| error.within(name));
                }
                Err(VarError::NotPresent) => {}
                Err(cause @ VarError::NotUnicode(_)) => {
                    let context = format!("the environment variable {name} is not UTF-8");
                    return Err(Error::invalid(context).caused_by(cause));
                }
            }
        }
        Err(Error::invalid(format!(
            "no table is configured; set one of these environment variables: {}",
            names.join(", ")
        )))
    }

    /// Opens the table at this address.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// let table = tabletheory::Address::Memory.open().await?;
    /// # Ok(()) }
    /// ```
    pub async fn open(&self) -> Result<Arc<dyn Table>> {
        match self {
            Address::Memory => Ok(Arc::new(MemoryTable::new())),
            #[cfg(feature = "sqlite")]
            Address::Sqlite(path) => open_sqlite(path.clone(), crate::SqliteSettings::default()).await,
            #[cfg(feature = "dynamodb")]
            Address::Dynamodb(name) => {
                let settings = crate::DynamoSettings::default();
                Ok(Arc::new(crate::DynamoTable::connect(name.clone(), settings).await?))
            }
            #[cfg(not(all(feature = "sqlite", feature = "dynamodb")))]
            _ => {
                let scheme = if matches!(self, Address::Sqlite(_)) { "sqlite" } else { "dynamodb" };
                Err(Error::invalid(format!(
                    "`{self}` cannot be opened: this program was built without the feature `{scheme}` of tabletheory"
                )))
            }
        }
    }
}

impl Address {
    /// Opens the table at this address, with these settings if it is a SQLite file.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// use tabletheory::{Address, OnCorruption, SqliteSettings};
    ///
    /// let cache = SqliteSettings::default().on_corruption(OnCorruption::Replace);
    /// let table = Address::Memory.open_with(cache).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "sqlite")]
    pub async fn open_with(&self, settings: crate::SqliteSettings) -> Result<Arc<dyn Table>> {
        match self {
            Address::Sqlite(path) => open_sqlite(path.clone(), settings).await,
            Address::Memory | Address::Dynamodb(_) => self.open().await,
        }
    }
}

/// Runs on the blocking pool, because opening may have to recover a log of many megabytes.
#[cfg(feature = "sqlite")]
async fn open_sqlite(path: PathBuf, settings: crate::SqliteSettings) -> Result<Arc<dyn Table>> {
    let open = move || -> Result<Arc<dyn Table>> {
        if let Some(directory) = path.parent() {
            crate::create_private_directory(directory).map_err(|cause| {
                let context = format!("the directory {} cannot be created", directory.display());
                Error::invalid(context).caused_by(cause)
            })?;
        }
        Ok(Arc::new(crate::SqliteTable::open_with(path, &settings, Arc::new(crate::SystemClock))?))
    };
    tokio::task::spawn_blocking(open)
        .await
        .map_err(|cause| Error::unavailable("opening the table was aborted").caused_by(cause))?
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Address::Memory),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Address::Sqlite(path.into())),
            Some(("dynamodb", name)) if !name.is_empty() => Ok(Address::Dynamodb(name.to_owned())),
            _ => Err(Error::invalid(format!(
                "`{text}` is not the address of a table; it must be memory:, sqlite:PATH or dynamodb:TABLE"
            ))),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Memory => f.write_str("memory:"),
            Address::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Address::Dynamodb(name) => write!(f, "dynamodb:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_wins() {
        let look_up = |name: &str| match name {
            "EMPTY" => Ok(String::new()),
            "NAME" => Ok("pages".into()),
            "FILE" => Ok("sqlite:a.db".into()),
            "WRONG" => Ok("redis:x".into()),
            "BYTES" => Err(VarError::NotUnicode("x".into())),
            _ => Err(VarError::NotPresent),
        };
        let from = |names: &[&str]| Address::from_lookup(names, look_up);
        assert_eq!(
            from(&["UNSET", "EMPTY", "NAME", "FILE"]).expect("a name"),
            Address::Dynamodb("pages".into())
        );
        assert_eq!(from(&["FILE", "NAME"]).expect("a file"), Address::Sqlite("a.db".into()));
        assert!(from(&["WRONG"]).expect_err("an unknown scheme").to_string().starts_with("WRONG: `redis:x`"));
        assert!(from(&["UNSET"]).is_err());
        // A variable that is set but unreadable is an error; later variables are not used instead.
        let error = from(&["BYTES", "NAME"]).expect_err("not UTF-8");
        assert_eq!(error.to_string(), "the environment variable BYTES is not UTF-8");
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for text in ["", "memory", "memory:x", "sqlite:", "dynamodb:", "pages", ":", "SQLITE:a"] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_is_created_with_its_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data/deep/table.db");
        open(&format!("sqlite:{}", path.display())).await.expect("it opens");
        assert!(path.exists());
        let under_a_file = format!("sqlite:{}/x/table.db", path.display());
        let error = open(&under_a_file).await.expect_err("the parent is a file");
        assert!(error.to_string().ends_with("cannot be created"), "{error}");
    }
}
