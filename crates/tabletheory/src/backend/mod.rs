//! The backends. Each is a module; the ones with dependencies of their own are features.

#[cfg(feature = "dynamodb")]
pub(crate) mod dynamodb;
pub(crate) mod memory;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::time::Duration;

use crate::error::{Error, Kind};
use crate::item::Item;
use crate::query::{Cursor, Page};
use crate::{Result, limit, size};

/// How long a client token is remembered, as in DynamoDB.
pub(crate) const TOKEN_WINDOW: Duration = Duration::from_secs(600);

/// A `ttl` further back than this is taken for a mistake and never collected, as in DynamoDB.
pub(crate) const TTL_OLDEST: Duration = Duration::from_secs(5 * 365 * 24 * 3600);

/// The answer to a client token that comes back with other writes.
pub(crate) fn token_reused() -> Error {
    Error::new(
        Kind::Unknown,
        "the client token was used for a transaction with other writes; read the rows back to see what is there, \
         and take a new token for new writes",
    )
}

/// Gathers the rows of one page of an embedded backend until it is full.
pub(crate) struct PageBuilder {
    page: Page,
    bytes: usize,
    limit: usize,
}

impl PageBuilder {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        PageBuilder { page: Page::default(), bytes: 0, limit: limit.unwrap_or(usize::MAX) }
    }

    /// Adds a row, and says whether there is room for another.
    pub(crate) fn push(&mut self, item: Item) -> Result<bool> {
        let key = item.key()?;
        self.bytes += size::of_item(&key, &item);
        self.page.items.push(item);
        let full = self.page.items.len() >= self.limit || self.bytes >= limit::PAGE_BYTES;
        if full {
            self.page.next = Some(Cursor::after(key));
        }
        Ok(!full)
    }

    pub(crate) fn finish(self) -> Page {
        self.page
    }
}
