//! The backends. Those with additional dependencies are crate features.

/// Defines a builder method for each of these fields of a settings struct.
#[cfg(any(feature = "dynamodb", feature = "sqlite"))]
macro_rules! setters {
    ($settings:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        impl $settings {
            $($(#[$doc])*
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            })*
        }
    };
}

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

/// How long client tokens are remembered, as in DynamoDB.
pub(crate) const TOKEN_WINDOW: Duration = Duration::from_secs(600);

/// Rows whose `ttl` is further in the past are never deleted, because it is probably a mistake; as in DynamoDB.
pub(crate) const TTL_OLDEST: Duration = Duration::from_secs(5 * 365 * 24 * 3600);

/// The error for a client token that is reused with other writes.
pub(crate) fn token_reused() -> Error {
    Error::new(
        Kind::Unknown,
        "the client token was used for a transaction with other writes; read the rows back, \
         and use a new token for new writes",
    )
}

/// Collects the rows of a page until it is full, for the embedded backends.
pub(crate) struct PageBuilder {
    page: Page,
    bytes: usize,
    limit: usize,
}

impl PageBuilder {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        PageBuilder { page: Page::default(), bytes: 0, limit: limit.unwrap_or(usize::MAX) }
    }

    /// Adds a row; returns whether the page has room for another one.
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
