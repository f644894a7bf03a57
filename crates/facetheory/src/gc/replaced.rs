//! Deletes replaced bodies early: minutes after nobody can be reading them, without listing the bodies or the rows.
//!
//! A publish knows the body that it replaces. That body waits in a bounded queue ([`ReplacedBodies`]) and is deleted after a
//! delay, if one read of the rows of its page shows that none names it. What the queue loses, because it is full or the process
//! ends, is left to the full garbage collection.
//!
//! # Why no body is deleted that a row names, may come to name, or that somebody reads
//!
//! - *A row names it.* All rows of its partition are read, strongly consistent, in the order `LOCK`, `META`, `REQ#`, `VER#`, and
//!   judged by the same code as in a full garbage collection. A body that is named leaves the queue: it is not replaced any more.
//!   A body of another partition is never named here, because an S3 key is new for each attempt to store a body.
//! - *A publish makes a row name it.* A body that was replaced has been published, and its token deleted with `LOCK`; a token
//!   never returns, so neither a late request nor a retry publishes the body again. The update of an unchanged page requires that
//!   `META` names the body already. A body whose publish was lost for certain cannot be published either.
//! - *The outcome of the publish is unknown, or it was superseded.* A request may still be under way, which publishes the new body
//!   and replaces the old one at any time, or a version may exist to which a rollback returns. Both bodies have the token with
//!   them, and stay as long as `LOCK` has that token, held or expired. `LOCK` is read first: once it is gone, the publish has
//!   happened, and the rows that are read afterwards name the new body unless a later publish replaced it, or it never will. A
//!   body that no row names then will never be named again, but may have been a moment ago: it waits for the delay once more.
//! - *A rollback makes a row name it.* It needs the row of a version, which the check finds: it is read after `META`, so the
//!   argument of the full garbage collection holds.
//! - *Somebody reads it.* A reader that has read `META` before the replacement uses the pointer for as long as metadata is
//!   current (`metadata_max_age`, or until the change feed names the page), plus the timeout of reading a body. The delay is
//!   longer, is measured by a clock that nobody can set, and is never shorter than a lease. A process that relies on the change
//!   feed may hold the metadata of a page whose replacement was not announced for longer. It finds no body, reads the table again
//!   and gets the current page: `Engine::read_object`.

use futures_util::{StreamExt as _, stream};
use object_store::ObjectStoreExt as _;
use tabletheory::{Item, Query, TableExt as _};
use tokio::time::Instant;

use super::live_set::LiveSet;
use super::scan::RowScan;
use crate::bodies::s3_key::{S3Key, file_name};
use crate::bodies::{object_path, unavailable};
use crate::error::Result;
use crate::pages::Pages;
use crate::pages::replaced::{ReplacedBody, ReplacedReport};
use crate::protocol::Lock;

/// The most bodies that one call deletes, before it reports.
const MAX_BATCH: usize = 1000;
/// Bodies that are checked and deleted at the same time. They share commits of the embedded store.
const CONCURRENT: usize = 16;
/// The most rows of a page that are read. The bodies of a page with more rows are left to the full garbage collection.
const MAX_ROWS: usize = 256;
/// The size of the set of names in those rows. With 128 bits per name, one body in 10⁸ is mistaken for a named one.
const LIVE_BYTES: usize = 8 * 1024;
/// A body whose deletion fails this often is left to the full garbage collection.
const MAX_FAILURES: u8 = 3;

/// The decision about a body that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nobody uses it.
    Deleted,
    /// A row names it, or a row is damaged and may name it: it leaves the queue.
    Named,
    /// The publish whose outcome was unknown may still be applied: it waits.
    InDoubt,
    /// That publish cannot be applied any more. It may have been a moment ago, so the delay begins now.
    NoLongerInDoubt,
}

impl Pages {
    /// Deletes replaced bodies that are due and unused, at most a batch.
    pub(crate) async fn delete_replaced(&self) -> ReplacedReport {
        let Some(replaced) = &self.replaced else { return ReplacedReport::default() };
        let due = replaced.take_due(MAX_BATCH, Instant::now());
        let outcomes = stream::iter(due).map(|body| async { (self.delete_if_unused(&body).await, body) });
        let mut report = ReplacedReport { left: replaced.take_rejected(), ..ReplacedReport::default() };
        let mut outcomes = outcomes.buffer_unordered(CONCURRENT);
        while let Some((outcome, mut body)) = outcomes.next().await {
            match outcome {
                Ok(Verdict::Deleted) => report.deleted += 1,
                Ok(Verdict::Named) => report.named += 1,
                Ok(Verdict::NoLongerInDoubt) => {
                    body.token = None;
                    replaced.add(body, Instant::now());
                }
                Ok(Verdict::InDoubt) | Err(_) => {
                    report.error = outcome.err().or(report.error.take());
                    body.failures += 1;
                    if body.failures < MAX_FAILURES {
                        replaced.add(body, Instant::now());
                    } else {
                        report.left += 1;
                    }
                }
            }
        }
        report
    }

    async fn delete_if_unused(&self, body: &ReplacedBody) -> Result<Verdict> {
        let Some(key) = self.bodies.own_key(&body.s3_key) else { return Ok(Verdict::Named) };
        let rows = self.store.table().query_all(&Query::of(&*body.pk), MAX_ROWS).await?;
        if rows.next.is_some() {
            return Ok(Verdict::Named);
        }
        let verdict = self.decide(body, &key, &rows.items)?;
        if verdict == Verdict::Deleted {
            match self.bodies.objects.delete(&object_path(&key)?).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(cause) => return Err(unavailable("a replaced body cannot be deleted", cause)),
            }
        }
        Ok(verdict)
    }

    /// Decides about a body, given all rows of its page.
    fn decide(&self, body: &ReplacedBody, key: &str, items: &[Item]) -> Result<Verdict> {
        let live = LiveSet::new(LIVE_BYTES, &*self.random);
        let mut rows = RowScan::new(live, None, self.store.key_scheme().clone());
        for row in items {
            // A lock protects no body that was published before: nobody publishes it again.
            if row.key()?.sk != "LOCK" {
                rows.read(row)?;
            } else if let Some(token) = body.token.as_deref()
                && Lock::read(row).map_or(true, |lock| lock.lease_token == token)
            {
                return Ok(Verdict::InDoubt);
            }
        }
        let live = rows.finish();
        let directory = S3Key::parse(&self.bodies.prefix, key).map_or("", |key| key.directory);
        Ok(if live.may_contain(file_name(key)) || live.may_contain(directory) {
            Verdict::Named
        } else if body.token.is_some() {
            Verdict::NoLongerInDoubt
        } else {
            Verdict::Deleted
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tabletheory::{Faults, Faulty, Key, MemoryTable, Table as _, Txn, Write};

    use super::*;
    use crate::protocol::{Acquire, Content, Generation, Lease, Meta, Published};
    use crate::{
        Bodies, Error, History, IdempotentRequest, Kind, Outcome, PageKey, PageStore, Policy, Rendered,
        Retention,
    };

    /// Longer than the lease.
    const RETENTION: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);

    struct Site {
        pages: Pages,
        table: Arc<Faulty<MemoryTable>>,
        page: PageKey,
    }

    impl Site {
        fn new() -> Self {
            let table = Arc::new(Faulty::new(MemoryTable::new(), 1, Faults::default()));
            let pages = Pages::new(PageStore::new(table.clone()), Bodies::memory());
            let page = PageKey::new("/news").expect("a page");
            Site { pages: pages.with_replaced_retention(Some(RETENTION)), table, page }
        }

        /// Publishes a body, and returns its S3 key.
        async fn publish(&self, body: &'static str, history: History) -> String {
            let policy = Policy::every(Duration::ZERO).with_history(history);
            let render = |_| async move { Ok(Rendered::html(body)) };
            let outcome = self.pages.regenerate(&self.page, &policy, render).await;
            let Ok(Outcome::Published(page)) = outcome else { panic!("{outcome:?}") };
            page.s3_key
        }

        /// Stores a body under a lease, and queues what a publish with an unknown outcome leaves.
        async fn in_doubt(&self) -> (Lease, Option<Meta>, Generation) {
            let store = &self.pages.store;
            let Acquire::Granted(lease) = store.try_acquire(&self.page).await.expect("a lease") else {
                panic!("nobody else holds it")
            };
            let seen = store.lookup(&self.page).await.expect("no error").meta;
            let (now, content, random) = (store.now(), Content::default(), &*self.pages.random);
            let body = self.pages.bodies.put(&self.page, now, "late".into(), &content, random).await;
            let late = Generation::new(body.expect("stored").s3_key, now.seconds(), 60);
            let unknown = Err(Error::new(Kind::Unknown, "no response"));
            self.pages.queue_unused(&lease, &late, seen.as_ref(), &unknown);
            (lease, seen, late)
        }

        /// Fails unless a body is still there after its time.
        async fn assert_keeps(&self, s3_key: &str) {
            tokio::time::advance(RETENTION).await;
            assert_eq!(self.delete().await, (0, 1, 0, false));
            assert!(self.has(s3_key).await);
        }

        async fn has(&self, s3_key: &str) -> bool {
            self.pages.bodies.get(s3_key, None).await.expect("no error").is_some()
        }

        /// The numbers of deleted, named and left bodies, and whether there was an error.
        async fn delete(&self) -> (u64, u64, u64, bool) {
            let report = self.pages.delete_replaced().await;
            (report.deleted, report.named, report.left, report.error.is_some())
        }

        async fn put(&self, key: Key, item: Item) {
            assert!(self.table.commit(&Txn::from(Write::put(key, item))).await.expect("a put").is_done());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_body_is_readable_for_the_whole_delay_and_deleted_after_it() {
        let site = Site::new();
        let old = site.publish("old", History::Latest).await;
        // A reader on another gateway, which reads the body much later than the row.
        let pointer = site.pages.store.lookup(&site.page).await.expect("no error").meta.expect("a page");
        let new = site.publish("new", History::Latest).await;
        tokio::time::advance(RETENTION - SECOND).await;
        assert_eq!(site.delete().await, (0, 0, 0, false));
        let read = site.pages.bodies.get(&pointer.generation.s3_key, None).await.expect("no error");
        let read = read.expect("the body is still there");
        assert_eq!(read.bytes, "old");
        tokio::time::advance(SECOND).await;
        assert_eq!(site.delete().await, (1, 0, 0, false));
        assert!(!site.has(&old).await && site.has(&new).await);
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (0, 0, 0, false), "nothing else waits");
    }

    #[tokio::test(start_paused = true)]
    async fn the_body_of_a_version_stays_and_goes_when_the_version_is_deleted() {
        let site = Site::new();
        let first = site.publish("one", History::Versions).await;
        site.publish("two", History::Versions).await;
        // The first body counts as replaced, but a rollback makes it current again.
        site.pages.queue_replaced(&site.page, &first, None);
        let versions = site.pages.store.versions(&site.page, 10).await.expect("no error");
        let (sk, _) =
            versions.iter().find(|(_, version)| version.generation.s3_key == first).expect("a version");
        let rolled_back = site.pages.store.roll_back(&site.page, sk, RETENTION).await;
        assert_eq!(rolled_back.expect("no error"), crate::RolledBack::Done);
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (0, 1, 0, false));
        assert!(site.pages.read(&site.page).await.expect("no error").is_some());

        let deleted = site.pages.store.gc_versions(&site.page, Retention::newest(0)).await.expect("no error");
        assert_eq!(deleted.len(), 1);
        site.pages.queue_replaced(&site.page, &deleted[0], None);
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (1, 0, 0, false));
        assert!(site.has(&first).await && !site.has(&deleted[0]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_result_of_a_request_stays_as_long_as_the_request() {
        let site = Site::new();
        let request = IdempotentRequest::new("order-7", "hash");
        let policy = Policy::every(Duration::ZERO);
        let render = |_| async { Ok(Rendered::html("paid")) };
        let outcome = site.pages.regenerate_once(&site.page, &policy, &request, render).await;
        let Ok(Outcome::Published(paid)) = outcome else { panic!("{outcome:?}") };
        site.publish("new", History::Latest).await;
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (0, 1, 0, false));
        assert!(site.has(&paid.s3_key).await);
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_publish_may_still_arrive_neither_its_body_nor_the_one_that_it_would_replace_is_deleted()
    {
        let site = Site::new();
        let store = &site.pages.store;
        let old = site.publish("old", History::Latest).await;
        let (lease, seen, late) = site.in_doubt().await;
        for _ in 1..MAX_FAILURES {
            tokio::time::advance(RETENTION).await;
            assert_eq!(site.delete().await, (0, 0, 0, false));
        }
        let published = store.publish(&lease, &late, seen.as_ref(), History::Latest, None).await;
        assert_eq!(published.expect("no error"), Published::Done, "the request arrives at last");
        // A reader may have read the old pointer a moment ago.
        assert_eq!(site.delete().await, (0, 0, 0, false));
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (0, 1, 0, false), "the late body is the current one");
        assert!(site.has(&late.s3_key).await && site.has(&old).await);
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (1, 0, 0, false));
        assert!(site.has(&late.s3_key).await && !site.has(&old).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_whose_publish_never_arrives_is_deleted() {
        let site = Site::new();
        let old = site.publish("old", History::Latest).await;
        let (lease, _, never) = site.in_doubt().await;
        site.pages.store.release(&lease).await.expect("released");
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (0, 1, 0, false), "the old one is still the current one");
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (1, 0, 0, false));
        assert!(site.has(&old).await && !site.has(&never.s3_key).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_body_of_a_lost_publish_is_deleted() {
        let site = Site::new();
        let policy = Policy::every(Duration::ZERO);
        let store = &site.pages.store;
        let outcome = site.pages.regenerate(&site.page, &policy, |_| async {
            store.invalidate(&site.page, crate::InvalidationMode::Soft).await.expect("no error");
            Ok(Rendered::html("too late"))
        });
        assert_eq!(outcome.await.expect("no error"), Outcome::Lost);
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (1, 0, 0, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_damaged_row_protects_the_bodies_of_its_page() {
        for damage in [Item::new(), Item::from([("s3_key", 7.into())])] {
            let site = Site::new();
            let old = site.publish("old", History::Latest).await;
            site.publish("new", History::Latest).await;
            site.put(site.page.meta(), damage).await;
            site.assert_keeps(&old).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_bodies_of_a_page_with_too_many_rows_are_left_to_garbage_collection() {
        let site = Site::new();
        let old = site.publish("old", History::Latest).await;
        site.publish("new", History::Latest).await;
        let version = crate::protocol::Version::of(Generation::new("isr/other.html", 1, 60));
        for number in 0..MAX_ROWS {
            site.put(site.page.version(&format!("{number:04}")), version.to_item()).await;
        }
        site.assert_keeps(&old).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_deletion_is_repeated_a_few_times() {
        let site = Site::new();
        let mut bodies = vec![site.publish("one", History::Latest).await];
        bodies.push(site.publish("two", History::Latest).await);
        site.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
        for attempt in 1..=MAX_FAILURES {
            tokio::time::advance(RETENTION).await;
            let left = u64::from(attempt == MAX_FAILURES);
            assert_eq!(site.delete().await, (0, 0, left, true), "attempt {attempt}");
        }
        assert!(site.has(&bodies[0]).await);
        site.table.set_faults(Faults::default());
        bodies.push(site.publish("three", History::Latest).await);
        tokio::time::advance(RETENTION).await;
        assert_eq!(site.delete().await, (1, 0, 0, false));
        assert!(!site.has(&bodies[1]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_another_service_may_have_stored_is_not_deleted() {
        let site = Site::new();
        let of_other_page =
            "isr/0123456789abcdef01234567/1700000000000-01234567-89ab-4def-8123-456789abcdef.html";
        for theirs in ["shared/fallback.html", "s3://bucket/isr/1.html", of_other_page, ""] {
            site.put(site.page.meta(), Meta::of(Generation::new(theirs, 1, 0)).to_item()).await;
            site.publish("ours", History::Latest).await;
            assert_eq!(
                site.pages.replaced.as_ref().and_then(|replaced| replaced.next_due()),
                None,
                "{theirs}"
            );
        }
    }
}
