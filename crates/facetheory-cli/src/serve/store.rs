//! Opens the stores of the gateway.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use facetheory::{Bodies, DynamoMetrics, Environment, Isr, IsrBuilder, PageStore, Pages};
use tabletheory::{Address, DynamoSettings, DynamoTable, SqliteSettings, Table};

use super::settings::DEFAULT_DATA;
use crate::config::{FeedChoice, Store, Timeouts};
use crate::table;

/// The options of the command line that name the store.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct StoreLocation {
    /// Directory of the embedded store
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["table", "bodies"])]
    data: Option<PathBuf>,
    /// Table for metadata: memory:, sqlite:PATH or dynamodb:TABLE
    #[arg(long, value_name = "URL", requires = "bodies")]
    table: Option<String>,
    /// Object store for bodies: memory:, file:PATH or s3://BUCKET/PREFIX
    #[arg(long, value_name = "URL", requires = "table")]
    bodies: Option<String>,
}

impl StoreLocation {
    /// Replaces the store of the configuration, if the command line names one.
    pub(crate) fn override_in(&self, store: &mut Store) {
        if self.data.is_some() || self.table.is_some() {
            store.data.clone_from(&self.data);
            store.table.clone_from(&self.table);
            store.bodies.clone_from(&self.bodies);
        }
    }
}

/// Opens the configured store, or the one that the environment names, or the default directory. Verifies a table on
/// DynamoDB.
pub(crate) async fn open(store: &Store, timeouts: &Timeouts) -> Result<IsrBuilder> {
    let stores = Stores::of(store)?;
    let sqlite = SqliteSettings::default().on_corruption(store.on_corruption.into());
    let opened = stores.open_table_with(sqlite).await?;
    if let Some(dynamo) = &opened.dynamo {
        table::verify_at_start(dynamo, timeouts.table).await?;
    }
    let pages = stores.pages(opened, store).await?;
    let (for_pages, in_flight) = store.memory_parts();
    let mut builder = Isr::builder(pages.with_body_timeout(timeouts.bodies))
        .table_timeout(timeouts.table)
        .publish_wait(timeouts.publish)
        .memory(for_pages)
        .memory_in_flight(in_flight)
        .metadata_max_age(store.metadata_max_age)
        .feed(store.feed.unwrap_or_else(|| FeedChoice::default_of(&stores.table)).into());
    if let Some(deployment) = &store.deployment {
        builder = builder.deployment(deployment);
    }
    if let Some(version) = &store.policy_version {
        builder = builder.policy_version(version);
    }
    Ok(builder)
}

/// Whether [`open`] opens the embedded store, whose bodies no other table references.
pub(crate) fn is_embedded(store: &Store) -> Result<bool> {
    Ok(match (&store.data, &store.table, &store.bodies) {
        (Some(_), _, _) => true,
        (None, None, None) => environment(|name| std::env::var(name))?.is_none(),
        (None, _, _) => false,
    })
}

/// The addresses of the table and of the bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stores {
    pub(crate) table: Address,
    pub(crate) bodies: String,
}

/// A table, and the same table as one on DynamoDB if it is there.
pub(crate) struct OpenedTable {
    pub(crate) table: Arc<dyn Table>,
    pub(crate) dynamo: Option<DynamoTable>,
}

impl Stores {
    /// The stores of a configuration: those that it names, or those that the environment names, or the default directory.
    pub(crate) fn of(store: &Store) -> Result<Self> {
        match (&store.data, &store.table, &store.bodies) {
            (Some(data), _, _) => Ok(Stores::embedded(data)),
            (None, None, None) => Ok(match environment(|name| std::env::var(name))? {
                Some(Environment { table, bodies, .. }) => Stores { table, bodies },
                None => Stores::embedded(Path::new(DEFAULT_DATA)),
            }),
            (None, table, bodies) => {
                let table =
                    table.as_deref().context("`bodies` needs a `table`: name both, or only `data`")?;
                let bodies =
                    bodies.as_deref().context("`table` needs `bodies`: name both, or only `data`")?;
                Ok(Stores { table: table.parse()?, bodies: bodies.to_owned() })
            }
        }
    }

    fn embedded(data: &Path) -> Self {
        Stores {
            table: Address::Sqlite(data.join("table.db")),
            bodies: format!("file:{}", data.join("bodies").display()),
        }
    }

    /// A directory of the file system that has the bodies, if they are in files.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        self.bodies.strip_prefix("file:").map(PathBuf::from)
    }

    /// Opens the table for a command. A file that is damaged is left to the gateway.
    pub(crate) async fn open_table(&self) -> Result<OpenedTable> {
        self.open_table_with(SqliteSettings::default()).await
    }

    /// Opens the table, with these settings if it is a SQLite file. The requests to DynamoDB are counted in the metrics.
    async fn open_table_with(&self, sqlite: SqliteSettings) -> Result<OpenedTable> {
        let Address::Dynamodb(name) = &self.table else {
            return Ok(OpenedTable { table: self.table.open_with(sqlite).await?, dynamo: None });
        };
        let dynamo = DynamoTable::connect(name.as_str(), DynamoSettings::default()).await?;
        let dynamo = dynamo.with_observer(Arc::new(DynamoMetrics));
        Ok(OpenedTable { table: Arc::new(dynamo.clone()), dynamo: Some(dynamo) })
    }

    /// The pages in this table, with their bodies, in the form that the configuration says.
    pub(crate) async fn pages(&self, opened: OpenedTable, store: &Store) -> Result<Pages> {
        let pages = Pages::new(PageStore::new(opened.table), Bodies::open(&self.bodies).await?);
        Ok(pages.with_key_scheme(store.key_scheme()?).with_pointers(store.pointers.into()))
    }
}

/// Returns the store that the environment names, or `None`. A table without bodies, or the reverse, is an error.
fn environment(look_up: impl Fn(&str) -> Result<String, VarError>) -> Result<Option<Environment>> {
    let names = Environment::VARIABLES.iter();
    let set = |name: &&&str| {
        look_up(name).map_or_else(|error| error != VarError::NotPresent, |value| !value.trim().is_empty())
    };
    if names.filter(set).count() == 0 {
        return Ok(None);
    }
    Ok(Some(Environment::from_lookup(look_up)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &'static [(&str, &str)]) -> Result<Option<Environment>> {
        environment(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned()).ok_or(VarError::NotPresent)
        })
    }

    #[test]
    fn a_table_without_bodies_in_the_environment_is_an_error() {
        assert!(with(&[]).expect("an empty environment").is_none());
        assert!(with(&[("CACHE_TABLE", " ")]).expect("an empty value").is_none());
        let whole = with(&[("CACHE_TABLE", "pages"), ("FACETHEORY_ISR_BUCKET", "bucket")]);
        assert_eq!(whole.expect("a store").expect("a store").bodies, "s3://bucket/isr");
        let half = with(&[("CACHE_TABLE", "pages")]).expect_err("no bodies");
        assert!(half.to_string().contains("FACETHEORY_ISR_BUCKET"), "{half}");
    }

    #[test]
    fn by_default_the_gateway_relies_on_the_feed_of_a_table_that_only_facetheory_writes() {
        let default_of = |table: &str| FeedChoice::default_of(&table.parse().expect("an address"));
        assert_eq!(default_of("sqlite:table.db"), FeedChoice::Exclusive);
        assert_eq!(default_of("memory:"), FeedChoice::Exclusive);
        assert_eq!(default_of("dynamodb:pages"), FeedChoice::Mixed);
    }
}
