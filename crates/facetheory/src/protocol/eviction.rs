//! Eviction: which rows and bodies of a page are deleted, and the guard that it is not in use.
//!
//! The row of a page is deleted only if it is as it was read and nobody holds its lease. A worker that could still name a body
//! of the page has its lease since before it read `META`, so after that transaction nobody can, and the bodies that the deleted
//! rows name may be deleted at once. A reader that read `META` before finds no body, and renders the page again.

use std::collections::BTreeSet;

use tabletheory::{Attr, Cond, Item, Key, Timestamp, Txn, Update, Value, Write};

use crate::protocol::{Lock, Meta, attribute as name, row::codec::Reader};

/// The most rows that are deleted in one transaction, below the limit of DynamoDB.
const MAX_DELETED: usize = 90;

/// The attributes of `META` that change with every publish, invalidation, rollback, pin and use.
const WITNESSES: [&str; 11] = [
    "s3_key",
    "current_sk",
    "version",
    "generated_at",
    "revalidate_seconds",
    "stale_since",
    "must_not_serve",
    "expired_at",
    "pinned_until",
    "mark",
    tabletheory::USED_AT,
];

/// The decision about a page that should be evicted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Eviction {
    /// It is deleted.
    Delete(Deletion),
    /// It is in use: someone renders it, or it is pinned. The transaction counts that as a use.
    Defer(Txn),
}

/// The deletion of a page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Deletion {
    /// The sort keys of superseded versions that are deleted before, because one transaction has no room for them.
    pub(crate) before: Vec<String>,
    /// Deletes the page, if it is as it was read and nobody holds its lease.
    pub(crate) txn: Txn,
    /// The S3 keys that the rows name.
    pub(crate) s3_keys: BTreeSet<String>,
}

/// Plans the eviction of the page with these rows, which are all rows of its partition. Returns `None` if there is no page.
pub(crate) fn plan(meta: &Key, rows: &[Item], now: Timestamp) -> Option<Eviction> {
    let row = |sk: &str| rows.iter().find(|row| has_key(row, |found| found == sk));
    let page = row(&meta.sk)?;
    let lock = row("LOCK").map(Lock::read);
    let is_leased = matches!(&lock, Some(Ok(lock)) if lock.is_held(now));
    let pinned_until: Option<i64> =
        Reader { role: "META", item: page }.field(&name::PINNED_UNTIL).unwrap_or_default();
    if is_leased || pinned_until.is_some_and(|until| until > now.seconds()) {
        return Some(Eviction::Defer(touch(meta, page, now)));
    }
    let current_sk = page.get(name::CURRENT_SK.name()).and_then(Value::as_str);
    let others = rows.iter().filter_map(|row| Some((row.key().ok()?.sk, row)));
    let (versions, requests): (Vec<_>, Vec<_>) = others
        .filter(|(sk, _)| sk.starts_with("VER#") || sk.starts_with("REQ#"))
        .partition(|(sk, _)| sk.starts_with("VER#"));
    // The oldest versions first; the current one must go with `META`.
    let superseded: Vec<_> = versions.iter().filter(|(sk, _)| Some(sk.as_str()) != current_sk).collect();
    let surplus = (versions.len() + requests.len()).saturating_sub(MAX_DELETED).min(superseded.len());
    let before: Vec<String> = superseded[..surplus].iter().map(|(sk, _)| sk.clone()).collect();
    let mut writes = vec![
        Write::delete(meta.clone()).when(is_as_in(page)),
        // A lease that is held would be lost, and its render with it.
        Write::delete(meta.sibling("LOCK"))
            .when(name::PK.absent().or(!name::LEASE_EXPIRES_AT.gt(now.seconds()))),
    ];
    let left = versions.iter().filter(|(sk, _)| !before.contains(sk));
    writes.extend(left.map(|(sk, _)| Write::delete(meta.sibling(sk))));
    // A request that began meanwhile has another owner.
    let requests = requests.iter().take(MAX_DELETED.saturating_sub(writes.len()));
    writes.extend(requests.map(|(sk, row)| Write::delete(meta.sibling(sk)).when(is_same_request(row))));
    let named = ["s3_key", "result_s3_key"];
    let s3_keys = rows.iter().flat_map(|row| named.map(|name| row.get(name).and_then(Value::as_str)));
    let s3_keys = s3_keys.flatten().filter(|key| !key.is_empty()).map(str::to_owned).collect();
    Some(Eviction::Delete(Deletion { before, txn: Txn::new(writes), s3_keys }))
}

/// Counts a use of a page now, which moves its `ttl` by the same time, if its row is as it was read.
pub(crate) fn touch(meta: &Key, page: &Item, now: Timestamp) -> Txn {
    Txn::from(Write::update(meta.clone(), moved(page, now)).when(is_as_in(page)))
}

/// Counts a use of the page that was read as `seen`, unless its pointer has moved or a later use is known. Returns `None` for a
/// page of which no use is recorded.
pub(crate) fn touch_seen(meta: &Key, seen: &Meta, now: Timestamp) -> Option<Txn> {
    seen.used_at?;
    let is_same = crate::protocol::pointer::is_as_read(seen).and(name::USED_AT.lt(now.seconds()));
    Some(Txn::from(Write::update(meta.clone(), moved(&seen.to_item(), now)).when(is_same)))
}

fn moved(page: &Item, now: Timestamp) -> Update {
    let read = |attribute: &Attr<i64>| page.get(attribute.name()).and_then(Value::as_i64);
    let used = Update::new([name::USED_AT.set(now.seconds())]);
    match (read(&name::TTL), read(&name::USED_AT)) {
        (Some(ttl), Some(used_at)) => {
            let later = now.seconds().saturating_sub(used_at).max(0);
            used.with(name::TTL.set(ttl.saturating_add(later)))
        }
        _ => used,
    }
}

/// The row of a page is as it was read.
fn is_as_in(page: &Item) -> Cond {
    all_as_in(page, &WITNESSES)
}

fn is_same_request(request: &Item) -> Cond {
    all_as_in(request, &["owner", "status", "request_hash"])
}

fn all_as_in(row: &Item, attributes: &[&str]) -> Cond {
    let is_as_read = |attribute: &&str| match row.get(attribute) {
        Some(value) => Attr::<Value>::named(*attribute).is(value.clone()),
        None => Attr::<Value>::named(*attribute).absent(),
    };
    attributes.iter().map(is_as_read).fold(name::PK.exists(), Cond::and)
}

fn has_key(row: &Item, is_it: impl Fn(&str) -> bool) -> bool {
    row.key().is_ok_and(|key| is_it(&key.sk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Generation, PageKey, Request, Version};
    use tabletheory::{MemoryTable, Query, Table as _};

    const NOW: i64 = 1_700_000_000;

    fn now() -> Timestamp {
        Timestamp::from_seconds(NOW)
    }

    struct Page {
        key: PageKey,
        table: MemoryTable,
    }

    impl Page {
        async fn new(meta: Meta) -> Page {
            let page = Page { key: PageKey::new("/").expect("a page"), table: MemoryTable::new() };
            page.put(page.key.meta(), meta.to_item()).await;
            page
        }

        async fn put(&self, key: Key, item: Item) {
            assert!(self.table.commit(&Txn::from(Write::put(key, item))).await.expect("a put").is_done());
        }

        async fn rows(&self) -> Vec<Item> {
            self.table.query(&Query::of(self.key.pk())).await.expect("rows").items
        }

        async fn plan(&self) -> Option<Eviction> {
            plan(&self.key.meta(), &self.rows().await, now())
        }

        async fn deletion(&self) -> Deletion {
            match self.plan().await {
                Some(Eviction::Delete(deletion)) => deletion,
                other => panic!("the page is not deleted: {other:?}"),
            }
        }

        async fn is_applied(&self, txn: &Txn) -> bool {
            self.table.commit(txn).await.expect("a commit").is_done()
        }
    }

    fn used() -> Meta {
        let mut meta = Meta::of(Generation::new("isr/a.html", NOW - 100, 60));
        (meta.used_at, meta.ttl) = (Some(NOW - 50), Some(NOW + 1000));
        meta
    }

    #[tokio::test]
    async fn a_page_goes_with_all_of_its_rows_and_bodies() {
        let mut meta = used();
        meta.current_sk = Some("VER#2".to_owned());
        let page = Page::new(meta).await;
        for (id, body) in [("1", "isr/old.html"), ("2", "isr/a.html")] {
            let version = Version::of(Generation::new(body, NOW - 100, 60));
            page.put(page.key.version(id), version.to_item()).await;
        }
        let mut request = Request::started("hash", NOW + 9);
        request.result_s3_key = Some("isr/result.html".to_owned());
        page.put(page.key.request("order").expect("a key"), request.to_item()).await;
        page.put(page.key.lock(), Lock::new("t", NOW).to_item()).await;
        let deletion = page.deletion().await;
        assert_eq!(
            deletion.s3_keys,
            ["isr/a.html", "isr/old.html", "isr/result.html"].map(str::to_owned).into()
        );
        assert!(page.is_applied(&deletion.txn).await);
        assert!(page.rows().await.is_empty());
    }

    #[tokio::test]
    async fn a_page_that_changes_after_it_was_read_is_not_deleted() {
        let changes: [fn(&mut Meta); 9] = [
            |meta| meta.generation.s3_key = "isr/b.html".to_owned(),
            |meta| meta.generation.generated_at += 1,
            |meta| meta.generation.revalidate_seconds = 0,
            |meta| meta.stale_since = Some(NOW),
            |meta| meta.must_not_serve = true,
            |meta| meta.expired_at = Some(NOW),
            |meta| meta.pinned_until = Some(NOW + 9),
            |meta| meta.mark = Some("another publish".to_owned()),
            |meta| meta.used_at = Some(NOW),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let page = Page::new(used()).await;
            let deletion = page.deletion().await;
            let mut changed = used();
            change(&mut changed);
            page.put(page.key.meta(), changed.to_item()).await;
            assert!(!page.is_applied(&deletion.txn).await, "change {number}");
        }
    }

    #[tokio::test]
    async fn a_page_that_is_rendered_or_pinned_is_deferred() {
        let page = Page::new(used()).await;
        let unleased = page.deletion().await;
        page.put(page.key.lock(), Lock::new("t", NOW + 1).to_item()).await;
        assert!(!page.is_applied(&unleased.txn).await, "the lease was acquired after the rows were read");
        let Some(Eviction::Defer(touch)) = page.plan().await else { panic!("it is leased") };
        assert!(page.is_applied(&touch).await);
        let mut pinned = used();
        pinned.pinned_until = Some(NOW + 1);
        let page = Page::new(pinned).await;
        let Some(Eviction::Defer(touch)) = page.plan().await else { panic!("it is pinned") };
        assert!(page.is_applied(&touch).await);
        let deferred = Meta::read(&page.rows().await[0]).expect("META");
        assert_eq!((deferred.used_at, deferred.ttl), (Some(NOW), Some(NOW + 1050)), "both move by 50 s");
    }

    #[tokio::test]
    async fn a_request_that_began_after_the_rows_were_read_prevents_the_deletion() {
        let page = Page::new(used()).await;
        let key = page.key.request("order").expect("a key");
        let mut request = Request::started("hash", NOW + 9);
        request.owner = Some("first".to_owned());
        page.put(key.clone(), request.to_item()).await;
        let deletion = page.deletion().await;
        request.owner = Some("second".to_owned());
        page.put(key, request.to_item()).await;
        assert!(!page.is_applied(&deletion.txn).await);
    }

    #[tokio::test]
    async fn more_versions_than_fit_into_a_transaction_are_deleted_before_it() {
        let mut meta = used();
        meta.current_sk = Some("VER#000".to_owned());
        let page = Page::new(meta).await;
        for id in 0..200 {
            let version = Version::of(Generation::new(format!("isr/{id}.html"), NOW - 100, 60));
            page.put(page.key.version(&format!("{id:03}")), version.to_item()).await;
        }
        let deletion = page.deletion().await;
        assert_eq!(deletion.before.len(), 200 - MAX_DELETED);
        assert!(!deletion.before.contains(&"VER#000".to_owned()), "the current version goes with the page");
        assert_eq!(deletion.s3_keys.len(), 201, "with the body of META");
        for sk in &deletion.before {
            assert!(page.is_applied(&Txn::from(Write::delete(page.key.meta().sibling(sk)))).await);
        }
        assert!(page.is_applied(&deletion.txn).await);
        assert!(page.rows().await.is_empty());
    }

    #[tokio::test]
    async fn a_use_never_brings_a_page_back_and_never_moves_it_backward() {
        let page = Page::new(used()).await;
        let touch = touch_seen(&page.key.meta(), &used(), now()).expect("a use is recorded");
        assert!(page.is_applied(&touch).await);
        let earlier = touch_seen(&page.key.meta(), &used(), Timestamp::from_seconds(NOW - 1));
        assert!(!page.is_applied(&earlier.expect("a use is recorded")).await);
        assert!(page.is_applied(&Txn::from(Write::delete(page.key.meta()))).await);
        assert!(!page.is_applied(&touch).await);
        assert!(page.rows().await.is_empty());
        assert_eq!(touch_seen(&page.key.meta(), &Meta { used_at: None, ..used() }, now()), None);
    }
}
