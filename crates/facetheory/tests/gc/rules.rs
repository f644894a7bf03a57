//! Which bodies and versions are deleted, and which are not.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::{Content, LeaseTerms};
use facetheory::{
    History, InvalidationMode, Isr, Kind, Outcome, PageKey, PageStore, Pages, Pointers, Policy, Rendered,
    RolledBack,
};
use tabletheory::{Clock as _, Consistency, Item, Key, SeededRandom, Table as _, Txn, Write};

use crate::fixture::{DAY, GRACE, Test, dry_run, how, page, retaining};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn only_orphans_older_than_the_grace_period_are_deleted() {
    for t in Test::on_each_store() {
        let named = t.publish(&page("/"), "served", History::Latest).await;
        let old = t.orphan(&page("/"), "1234567").await;
        let alone = t.orphan(&page("/gone"), "123").await;
        t.clock.advance(GRACE + SECOND);
        let young = t.orphan(&page("/young"), "young").await;
        t.clock.advance(GRACE - SECOND);

        let plan = t.gc(&dry_run(how())).await;
        assert!(t.has(&old).await && t.has(&alone).await, "{}: a dry run deletes nothing", t.name);
        let report = t.gc(&how()).await;
        assert_eq!(report, plan, "{}: the report is that of the dry run", t.name);
        assert_eq!((report.orphans, report.bytes), (2, 10), "{}", t.name);
        assert_eq!((report.objects, report.named, report.young), (4, 1, 1), "{}", t.name);
        assert!(!t.has(&old).await && !t.has(&alone).await, "{}", t.name);
        assert!(t.has(&named).await && t.has(&young).await, "{}", t.name);

        t.clock.advance(2 * SECOND);
        assert_eq!(t.gc(&how()).await.orphans, 1, "{}: the grace period is over", t.name);
        assert!(t.pages.read(&page("/")).await.expect("no error").is_some(), "{}", t.name);
    }
}

#[tokio::test]
async fn the_row_and_the_object_of_readiness_checks_do_not_disturb_gc() {
    for t in Test::on_each_store() {
        let isr = Isr::new(t.pages.clone());
        let check = async || {
            isr.check_table_write().await.expect(t.name);
            isr.check_bodies_write().await.expect(t.name);
        };
        check().await;
        t.clock.advance(2 * DAY);
        let report = t.gc(&retaining(0)).await;
        assert!(report.finished && report.damaged == 0 && report.orphans == 0, "{}: {report:?}", t.name);
        assert!(t.has("probe/readiness.txt").await, "{}: it is not a body", t.name);
        check().await;
        let row = t.table.get(&Key::new("FACETHEORY#PROBE", "PROBE"), Consistency::Strong).await;
        assert!(row.expect(t.name).is_some(), "{}: it was written again", t.name);
    }
}

#[tokio::test]
async fn a_body_that_was_replaced_recently_is_not_deleted() {
    for t in Test::on_each_store() {
        let old = t.publish(&page("/"), "old", History::Latest).await;
        t.clock.advance(DAY);
        let new = t.publish(&page("/"), "new", History::Latest).await;
        let report = t.gc(&how()).await;
        assert_eq!((report.orphans, report.young), (0, 1), "{}: a reader may still fetch it", t.name);
        t.clock.advance(GRACE);
        assert_eq!(t.gc(&how()).await.orphans, 1, "{}", t.name);
        assert!(!t.has(&old).await && t.has(&new).await, "{}", t.name);
    }
}

#[tokio::test]
async fn versions_that_are_not_retained_are_deleted_with_their_bodies() {
    for t in Test::on_each_store() {
        let mut bodies = Vec::new();
        for body in ["a", "b", "c", "d", "e"] {
            bodies.push(t.publish(&page("/"), body, History::Versions).await);
            t.clock.advance(DAY);
        }
        let versions = t.store().versions(&page("/"), 10).await.expect("no error");
        let (first, _) = &versions[4];
        let back = t.store().roll_back(&page("/"), first, DAY).await.expect("no error");
        assert_eq!(back, RolledBack::Done);

        let plan = t.gc(&dry_run(retaining(2))).await;
        assert_eq!(t.store().versions(&page("/"), 10).await.expect("no error").len(), 5);
        let report = t.gc(&retaining(2)).await;
        assert_eq!((report.versions, report.orphans, report.bytes), (2, 2, 2), "{}", t.name);
        assert_eq!((plan.versions, plan.orphans, plan.bytes), (2, 2, 2), "{}", t.name);
        for (body, exists) in bodies.iter().zip([true, false, false, true, true]) {
            assert_eq!(t.has(body).await, exists, "{}: {body}", t.name);
        }

        let oldest = Some((t.clock.now() - Duration::from_secs(90_000)).seconds());
        let mut aged = retaining(2);
        aged.retention.as_mut().expect("a retention").oldest = oldest;
        let report = t.gc(&aged).await;
        assert_eq!((report.versions, report.orphans), (1, 1), "{}: d is too old, e is not", t.name);
        assert!(
            t.has(&bodies[0]).await && t.has(&bodies[4]).await,
            "{}: the current version is not deleted",
            t.name
        );
        assert_eq!(t.gc(&how()).await.versions, 0, "{}: without a retention all are retained", t.name);
    }
}

#[tokio::test]
async fn a_version_that_a_rollback_chooses_meanwhile_is_not_deleted() {
    for t in Test::on_each_store() {
        let good = t.publish(&page("/"), "good", History::Versions).await;
        t.clock.advance(DAY);
        t.publish(&page("/"), "bad", History::Versions).await;
        t.clock.advance(DAY);
        let versions = t.store().versions(&page("/"), 10).await.expect("no error");
        let target = versions[1].0.clone();
        let store = PageStore::new(t.table.table.clone());
        // The second step is the transaction that deletes the version: in the scan the other version was current.
        t.table.meanwhile(Some(Arc::new(move |step| {
            let (store, target) = (store.clone(), target.clone());
            Box::pin(async move {
                if step == 2 {
                    let back = store.roll_back(&page("/"), &target, DAY).await.expect("no error");
                    assert_eq!(back, RolledBack::Done);
                }
            })
        })));
        let report = t.gc(&retaining(0)).await;
        t.table.meanwhile(None);
        assert_eq!((report.versions, report.orphans), (0, 0), "{}", t.name);
        assert!(t.has(&good).await, "{}", t.name);
        let (_, body) = t.pages.read(&page("/")).await.expect("no error").expect("it is served");
        assert_eq!(body.bytes, "good", "{}", t.name);
        assert_eq!(t.gc(&retaining(0)).await.versions, 1, "{}: now the bad one is deleted", t.name);
    }
}

#[tokio::test]
async fn the_result_of_a_request_is_live_even_if_no_other_row_names_it() {
    for t in Test::on_each_store() {
        let result = t.orphan(&page("/"), "result").await;
        let elsewhere = t.orphan(&page("/"), "with an absolute key").await;
        let request = facetheory::protocol::Request::started("hash", t.clock.now().seconds() + 1);
        let mut item = request.to_item();
        item.set("result_s3_key", result.as_str());
        t.put(page("/").request("1").expect("a key"), item.clone()).await;
        item.set("result_s3_key", format!("s3://bucket/{elsewhere}"));
        t.put(page("/").request("2").expect("a key"), item).await;
        t.clock.advance(DAY);
        let plan = t.gc(&dry_run(how())).await;
        let report = t.gc(&how()).await;
        assert_eq!(report, plan, "{}", t.name);
        assert_eq!((report.orphans, report.named, report.expired), (0, 2, 2), "{}", t.name);
        assert_eq!(t.gc(&how()).await.orphans, 2, "{}: the rows had expired and were deleted", t.name);
    }
}

#[tokio::test]
async fn the_body_of_a_late_worker_is_not_deleted_until_its_lock_is_gone() {
    for t in Test::on_each_store() {
        let lease = t.store().try_acquire(&page("/")).await.expect("no error");
        let facetheory::protocol::Acquire::Granted(lease) = lease else { panic!("nobody else holds it") };
        let stored = t.orphan(&page("/"), "slow").await;
        t.clock.advance(DAY);
        let report = t.gc(&how()).await;
        assert_eq!((report.orphans, report.protected), (0, 1), "{}", t.name);
        t.store().release(&lease).await.expect("released");
        let _swept_lock = t.gc(&how()).await;
        assert!(!t.has(&stored).await, "{}", t.name);
    }
}

/// A body that is in a file of its own.
fn large() -> String {
    "x".repeat(300 * 1024)
}

#[tokio::test]
async fn objects_of_others_under_the_prefix_are_not_deleted() {
    let t = &Test::on_each_store()[1];
    let root = t.directory.as_ref().expect("files").path().join("bodies");
    let orphan = t.orphan(&page("/"), &large()).await;
    let directory = root.join(&orphan).parent().expect("a directory").to_owned();
    for other in [directory.join("notes.html"), root.join("isr/readme.txt"), root.join("elsewhere")] {
        std::fs::write(other, "not ours").expect("a file");
    }
    t.clock.advance(DAY);
    let report = t.gc(&how()).await;
    assert_eq!((report.orphans, report.foreign), (1, 2));
    for other in [directory.join("notes.html"), root.join("isr/readme.txt"), root.join("elsewhere")] {
        assert!(other.exists(), "{}", other.display());
    }
}

#[tokio::test]
async fn empty_directories_are_deleted_with_their_last_file() {
    let t = &Test::on_each_store()[1];
    let root = t.directory.as_ref().expect("files").path().join("bodies");
    let one = t.orphan(&page("/1"), &large()).await;
    let other = t.publish(&page("/2"), &large(), History::Latest).await;
    t.clock.advance(DAY);
    assert_eq!(t.gc(&how()).await.orphans, 1);
    assert!(!root.join(&one).parent().expect("a directory").exists());
    assert!(root.join(&other).exists());
    t.publish(&page("/1"), "again", History::Latest).await;
}

#[tokio::test]
async fn the_time_at_which_a_file_was_written_counts_as_well() {
    let t = &Test::on_each_store()[1];
    let root = t.directory.as_ref().expect("files").path().join("bodies");
    // A render that began long ago has just finished.
    let slow = t.orphan(&page("/"), &large()).await;
    t.clock.advance(DAY);
    let written = std::time::UNIX_EPOCH
        + Duration::from_millis(u64::try_from(t.clock.now().millis()).expect("after 1970"));
    let file = std::fs::File::options().write(true).open(root.join(&slow)).expect("the file");
    file.set_modified(written).expect("a time");
    assert_eq!(t.gc(&how()).await.young, 1);
    t.clock.advance(GRACE);
    assert_eq!(t.gc(&how()).await.orphans, 1);
}

#[tokio::test]
async fn a_damaged_row_protects_every_body_that_it_may_name() {
    for t in Test::on_each_store() {
        let body = t.publish(&page("/"), "served", History::Latest).await;
        let orphan = t.orphan(&page("/other"), "orphan").await;
        t.put(page("/").meta(), Item::from([("s3_key", 7.into())])).await;
        t.clock.advance(DAY);
        let report = t.gc(&how()).await;
        assert_eq!((report.damaged, report.protected, report.orphans), (1, 1, 1), "{}", t.name);
        assert!(t.has(&body).await && !t.has(&orphan).await, "{}", t.name);

        let orphan = t.orphan(&page("/other"), "orphan").await;
        t.clock.advance(DAY);
        t.put(tabletheory::Key::new("whose", "META"), Item::new()).await;
        let refused = t.pages.gc(&how(), |_| ControlFlow::Continue(())).await;
        assert_eq!(refused.expect_err("its page is unknown").kind(), Kind::Corrupt, "{}", t.name);
        assert!(t.has(&orphan).await, "{}: nothing was deleted", t.name);
    }
}

#[tokio::test]
async fn a_stopped_run_can_be_resumed() {
    /// More than one batch.
    const ORPHANS: u64 = 1100;
    for t in Test::on_each_store() {
        let random = SeededRandom::new(3);
        let (at, content) = (t.clock.now(), Content::default());
        let pages: Vec<PageKey> = (0..ORPHANS).map(|number| page(&format!("/{number}"))).collect();
        for some in pages.chunks(64) {
            let puts = some.iter().map(|page| t.bodies.put(page, at, "x".into(), &content, &random));
            for stored in futures_util::future::join_all(puts).await {
                stored.expect(t.name);
            }
        }
        t.clock.advance(DAY);
        let stop = |so_far: &facetheory::GcReport| {
            if so_far.orphans > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let first = t.pages.gc(&how(), stop).await.expect(t.name);
        assert!(!first.finished, "{}", t.name);
        assert!((900..=1000).contains(&first.orphans), "{}: {}", t.name, first.orphans);
        assert_eq!(first.resume.is_some(), t.name != "files", "{}: files are not listed in order", t.name);

        let mut again = how();
        again.resume = first.resume.clone();
        let second = t.gc(&again).await;
        assert!(second.finished && second.resume.is_none(), "{}", t.name);
        assert_eq!(first.orphans + second.orphans, ORPHANS, "{}: no orphan is left", t.name);
        assert_eq!(second.objects, second.orphans, "{}: no body is listed twice", t.name);
        assert_eq!(t.gc(&how()).await.objects, 0, "{}", t.name);
    }
}

#[tokio::test]
async fn a_run_can_be_stopped_while_it_reads_rows() {
    let t = Test::memory();
    let orphan = t.orphan(&page("/"), "orphan").await;
    for number in 0..5 {
        t.publish(&page(&format!("/{number}")), "x", History::Latest).await;
    }
    t.clock.advance(DAY);
    let stopped = t.pages.gc(&how(), |_| ControlFlow::Break(())).await.expect("a report");
    assert!(!stopped.finished);
    assert!(stopped.rows < 5 && t.has(&orphan).await, "no body is deleted before every row was read");
}

#[tokio::test]
async fn a_body_is_not_deleted_in_whatever_form_a_row_names_it() {
    for t in Test::on_each_store() {
        let absolute = t.publish(&page("/absolute"), "absolute", History::Latest).await;
        let relative = t.pages.clone().with_pointers(Pointers::Relative);
        let policy = Policy::every(Duration::ZERO).with_history(History::Versions);
        let render = |_| async { Ok(Rendered::html("relative")) };
        let outcome = relative.regenerate(&page("/relative"), &policy, render).await.expect(t.name);
        let Outcome::Published(generation) = outcome else { panic!("{}: {outcome:?}", t.name) };
        assert_eq!(generation.s3_key.matches('/').count(), 1, "{}: it has no prefix", generation.s3_key);

        // A row of another service names a body of ours with its bucket, and another one only in a version.
        let (with_bucket, swapped) =
            (t.orphan(&page("/bucket"), "b").await, t.orphan(&page("/b"), "v").await);
        let row = |s3_key: String| {
            Item::from([
                ("s3_key", s3_key.into()),
                ("generated_at", t.clock.now().seconds().into()),
                ("revalidate_seconds", 60.into()),
            ])
        };
        t.put(page("/bucket").meta(), row(format!("s3://bucket/{with_bucket}"))).await;
        t.put(page("/b").meta(), Item::from([("current_sk", "VER#1".into())])).await;
        t.put(page("/b").version("1"), row(swapped.rsplit_once('/').expect("a file").1.to_owned())).await;

        t.clock.advance(2 * DAY);
        let report = t.gc(&retaining(0)).await;
        assert_eq!((report.orphans, report.named, report.damaged), (0, 4, 0), "{}", t.name);
        for s3_key in [absolute, generation.s3_key, with_bucket, swapped] {
            assert!(t.has(&s3_key).await, "{}: {s3_key}", t.name);
        }
        let (_, body) = t.pages.read(&page("/relative")).await.expect("no error").expect("a page");
        assert_eq!(body.bytes, "relative", "{}: it is read by a process that writes the other form", t.name);
    }
}

#[tokio::test]
async fn an_engine_deletes_replaced_bodies_on_every_store_without_a_run_of_gc() {
    for t in Test::on_each_store() {
        let store = t.store().clone().with_lease_terms(LeaseTerms::lasting(SECOND));
        let pages = Pages::new(store, t.bodies.clone());
        let isr = Isr::builder(pages).replaced_retention(Some(Duration::ZERO)).build();
        let policy = Policy::every(GRACE);
        let mut bodies = Vec::new();
        for body in ["one", "two", "three"] {
            isr.invalidate(&page("/"), InvalidationMode::Hard).await.expect(t.name);
            let result = isr.get(&page("/"), &policy, move |_| async move { Ok(Rendered::html(body)) }).await;
            assert!(result.is_ok(), "{}: {result:?}", t.name);
            let meta = t.store().lookup(&page("/")).await.expect(t.name).meta;
            bodies.push(meta.expect("a page").generation.s3_key);
        }
        let gone = async {
            while t.has(&bodies[0]).await || t.has(&bodies[1]).await {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(120 * SECOND, gone).await.expect(t.name);
        assert!(t.has(&bodies[2]).await, "{}", t.name);
    }
}

#[tokio::test]
async fn the_current_version_of_a_page_that_has_expired_is_deleted_with_its_body() {
    for t in Test::on_each_store() {
        let (expired, kept) = (page("/expired"), page("/kept"));
        let of_expired = t.publish(&expired, "expired", History::Versions).await;
        let of_kept = t.publish(&kept, "kept", History::Versions).await;
        // As TTL does: the row of a current version has no `ttl`.
        let deleted = t.table.commit(&Txn::from(Write::delete(expired.meta()))).await;
        assert!(deleted.expect(t.name).is_done());
        assert_eq!(t.gc(&how()).await.versions, 0, "{}: it is within the grace period", t.name);
        t.clock.advance(2 * DAY);
        assert_eq!(t.gc(&how()).await.versions, 1, "{}", t.name);
        assert!(!t.has(&of_expired).await && t.has(&of_kept).await, "{}", t.name);
    }
}
