//! Opens the stores of the gateway.

use std::env::VarError;
use std::path::Path;

use anyhow::{Context as _, Result};
use facetheory::{Bodies, Environment, Isr, IsrBuilder, PageStore, Pages};

use super::settings::DEFAULT_DATA;
use crate::config::{Store, Timeouts};

/// Opens the configured store, or the one that the environment names, or the default directory.
pub(crate) async fn open(store: &Store, timeouts: &Timeouts) -> Result<IsrBuilder> {
    let pages = match (&store.data, &store.table, &store.bodies) {
        (Some(data), _, _) => embedded(data).await?,
        (None, None, None) => match environment(|name| std::env::var(name))? {
            Some(environment) => environment.open().await?,
            None => embedded(Path::new(DEFAULT_DATA)).await?,
        },
        (None, table, bodies) => {
            let table = table.as_deref().context("`bodies` needs a `table`: name both, or only `data`")?;
            let bodies = bodies.as_deref().context("`table` needs `bodies`: name both, or only `data`")?;
            pages(table, bodies).await?
        }
    };
    let pages = pages.with_key_scheme(store.key_scheme()?);
    let mut builder = Isr::builder(pages.with_body_timeout(timeouts.bodies))
        .table_timeout(timeouts.table)
        .memory(store.memory)
        .metadata_max_age(store.metadata_max_age);
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

/// Opens the embedded store in a directory.
pub(crate) async fn embedded(data: &Path) -> Result<Pages> {
    std::fs::create_dir_all(data)
        .with_context(|| format!("cannot create the directory {}", data.display()))?;
    let table = format!("sqlite:{}", data.join("table.db").display());
    let bodies = format!("file:{}", data.join("bodies").display());
    Ok(pages(&table, &bodies).await?)
}

async fn pages(table: &str, bodies: &str) -> facetheory::Result<Pages> {
    let store = PageStore::new(tabletheory::open(table).await?);
    Ok(Pages::new(store, Bodies::open(bodies).await?))
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
}
