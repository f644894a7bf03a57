//! Lists pages, a part of the table at a time.

use std::time::Duration;

use tabletheory::{Cursor, Item, Scan, Table as _, Value};

use super::PageStore;
use crate::error::Result;
use crate::protocol::key::KeyScheme;
use crate::protocol::path_of_key::path_of_key;
use crate::protocol::{Meta, StoredMeta, Tenant, attribute as name};

/// The most rows that one call reads. If few of them match, it returns those and a cursor.
const MAX_ROWS: usize = 2000;
/// The rows that are read at once.
const PAGE_ROWS: usize = 250;

/// Selects the pages to list.
///
/// ```
/// use facetheory::Listing;
///
/// let mut docs = Listing::new(20);
/// docs.below = Some("/docs".into());
/// docs.tag = Some("news".into());
/// assert_ne!(docs, Listing::new(20));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "it does nothing until it is passed to PageStore::list"]
#[non_exhaustive]
pub struct Listing {
    /// How many pages are listed at a time, at least one.
    pub most: usize,
    /// Only pages of this tenant.
    pub tenant: Option<Tenant>,
    /// Only pages at this path or below it, if their rows record the path.
    pub below: Option<String>,
    /// Only pages with this tag in their rows.
    pub tag: Option<String>,
    /// Continues after an earlier call: its [`Listed::next`].
    pub after: Option<Cursor>,
}

/// Some of the pages, in no particular order, and where to continue.
///
/// ```
/// assert!(facetheory::Listed::default().next.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The pages. There may be more even if this is empty: see `next`.
    pub entries: Vec<Entry>,
    /// Where the next call continues; `None` at the end.
    pub next: Option<Cursor>,
    /// How many rows of the table this call has read.
    pub rows: usize,
}

/// A page in a listing, as its `META` describes it.
///
/// ```no_run
/// # fn f(entry: facetheory::Entry) {
/// println!("{}: {}", entry.pk, entry.cache_key.as_deref().unwrap_or("(written by another language)"));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The partition of its rows.
    pub pk: String,
    /// The tenant.
    pub tenant: Option<String>,
    /// The cache key, if its writer recorded it or the partition key contains it.
    pub cache_key: Option<String>,
    /// The path, if its writer recorded it, or if the cache key contains it as those of TypeScript services do.
    pub path: Option<String>,
    /// The row; `None` if it cannot be read.
    pub meta: Option<Meta>,
}

impl Listing {
    /// All pages, at most this many at a time.
    ///
    /// ```
    /// assert_eq!(facetheory::Listing::new(20), facetheory::Listing::new(20));
    /// ```
    pub fn new(most: usize) -> Self {
        Listing { most, ..Listing::default() }
    }

    fn matches(&self, entry: &Entry) -> bool {
        let tenant =
            self.tenant.as_ref().is_none_or(|tenant| entry.tenant.as_deref() == Some(tenant.as_str()));
        let below = self
            .below
            .as_deref()
            .is_none_or(|path| entry.path.as_deref().is_some_and(|own| is_below(own, path)));
        let tags =
            entry.meta.as_ref().map(|meta| meta.generation.content.tags.as_slice()).unwrap_or_default();
        tenant && below && self.tag.as_ref().is_none_or(|tag| tags.contains(tag))
    }
}

impl Entry {
    /// The page of a `META` row, with the copy in it; `None` for other rows, and for one that is damaged.
    fn of(item: &Item, scheme: &KeyScheme, skew: Duration) -> Option<Self> {
        let key = item.key().ok().filter(|key| key.sk == "META" && !item.is_damaged())?;
        let text = |name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
        let in_pk = || scheme.cache_key_of(&key.pk).map(str::to_owned);
        let cache_key = text(name::CACHE_KEY.name()).or_else(in_pk);
        Some(Entry {
            tenant: scheme.tenant_of(&key.pk).map(str::to_owned),
            path: text(name::PATH.name()).or_else(|| path_of_key(cache_key.as_deref()?)),
            cache_key,
            meta: StoredMeta::read(item)
                .ok()
                .filter(StoredMeta::has_copy)
                .map(|stored| stored.into_copy(skew)),
            pk: key.pk,
        })
    }
}

/// `/docs` covers `/docs`, `/docs/` and `/docs/a`, but not `/docsets`, as for tags.
fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl PageStore {
    /// Lists some of the pages. It reads a bounded part of the table, so it may return few or none and a cursor. A page that is
    /// published or deleted meanwhile may be missing, or listed twice.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::{Listed, Listing};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert_eq!(store.list(&Listing::new(20)).await?, Listed::default());
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, listing: &Listing) -> Result<Listed> {
        let mut listed = Listed { next: listing.after.clone(), ..Listed::default() };
        let mut rows_read = 0;
        while rows_read < MAX_ROWS {
            let mut scan = Scan::new().limit(PAGE_ROWS);
            if let Some(after) = listed.next.take() {
                scan = scan.after(after);
            }
            let page = self.table.scan(&scan).await?;
            rows_read += PAGE_ROWS;
            for item in &page.items {
                listed.rows += 1;
                let Some(mut entry) = Entry::of(item, &self.key_scheme, self.epoch_terms.skew) else {
                    continue;
                };
                if entry.meta.is_none() {
                    // Another service wrote nothing but a pointer.
                    entry.meta = self.resolve(item, None).await?;
                }
                if !listing.matches(&entry) {
                    continue;
                }
                listed.entries.push(entry);
                if listed.entries.len() >= listing.most {
                    listed.next = Some(Cursor::after(item.key()?));
                    return Ok(listed);
                }
            }
            listed.next = page.next;
            if listed.next.is_none() {
                break;
            }
        }
        Ok(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Generation, InvalidationMode};
    use std::sync::Arc;
    use tabletheory::{Key, MemoryTable, Txn, Write};

    #[tokio::test]
    async fn pages_of_typescript_services_are_listed_and_invalidated_by_their_path() {
        let table = Arc::new(MemoryTable::new());
        for path in ["news/{slug}?slug=a", "news/{slug}?slug=b", "about?"] {
            let key = Key::new(format!("CACHE#default::/{path}"), "META");
            let row = Meta::of(Generation::new("isr/a.html", 1_700_000_000, 60)).to_item();
            assert!(table.commit(&Txn::from(Write::put(key, row))).await.expect("a row").is_done());
        }
        let raw = KeyScheme::raw("CACHE#").expect("a prefix");
        let store = PageStore::new(table).with_key_scheme(raw);
        let mut news = Listing::new(10);
        news.below = Some("/news".into());
        let listed = store.list(&news).await.expect("pages");
        assert_eq!((listed.entries.len(), listed.rows), (2, 3));
        for entry in &listed.entries {
            store.invalidate_listed(entry, InvalidationMode::Soft).await.expect("a page");
        }
        let all = store.list(&Listing::new(10)).await.expect("pages").entries;
        let mut stale: Vec<String> = all
            .into_iter()
            .filter(|entry| entry.meta.as_ref().is_some_and(|meta| meta.generation.revalidate_seconds == 0))
            .filter_map(|entry| entry.path)
            .collect();
        stale.sort();
        assert_eq!(stale, ["/news/a", "/news/b"]);
    }
}
