//! Leases and publishing: one worker publishes, and a late one changes nothing.

use std::time::Duration;

use facetheory::protocol::{
    Acquire, Freshness, Generation, Guards, Lease, LeaseTerms, Lock, Meta, Publication, Published, Refresh,
};
use facetheory::{History, Invalidated, InvalidationMode, Kind};
use tabletheory::{Commit, Item, Table, Timestamp, Txn, Value, Write};

use crate::fixture::{LEASE, NOW, SECOND, Test};
use crate::scripted::Fate;

#[tokio::test]
async fn a_late_writer_cannot_publish() {
    for history in [History::Latest, History::Versions] {
        for t in Test::on_each_table() {
            let slow = t.acquire().await;
            t.advance(LEASE + SECOND);
            let quick = t.acquire().await;
            assert_eq!(t.publish(&slow, "old", history).await, Published::Lost);
            assert_eq!(t.meta().await, None, "nothing was written");
            assert_eq!(t.publish(&quick, "new", history).await, Published::Done);
            assert_eq!(t.publish(&slow, "old", history).await, Published::Lost);
            assert_eq!(t.meta().await.expect("a page").generation.s3_key, "new");
        }
    }
}

#[tokio::test]
async fn an_expired_lease_cannot_publish_even_if_nobody_took_it() {
    for t in Test::on_each_table() {
        let lease = t.acquire().await;
        t.advance(LEASE);
        assert_eq!(t.publish(&lease, "late", History::Latest).await, Published::Lost);
        // Without this guard the token alone decides, which is safe as well.
        let mut guards = Guards::default();
        guards.not_expired = false;
        let t = t.with(|store| store.with_guards(guards));
        let lease = t.acquire().await;
        t.advance(LEASE);
        assert_eq!(t.publish(&lease, "late", History::Latest).await, Published::Done);
    }
}

#[tokio::test]
async fn a_refused_acquire_returns_the_expiry_of_the_lease() {
    for t in Test::on_each_table() {
        let lease = t.acquire().await;
        let held = t.store.try_acquire(&t.page).await.expect("no error");
        assert_eq!(held, Acquire::Held { until: NOW + 8 });
        t.store.release(&lease).await.expect("no error");
        t.store.release(&lease).await.expect("releasing twice is not an error");
        let next = t.acquire().await;
        t.store.release(&lease).await.expect("no error");
        assert!(
            t.store.lookup(&t.page).await.expect("no error").lock.is_some(),
            "the next holder has it now"
        );
        assert_ne!(next.token(), lease.token());
    }
}

#[tokio::test]
async fn a_refreshed_lease_outlives_its_first_term() {
    for t in Test::on_each_table() {
        let mut lease = t.acquire().await;
        for _ in 0..5 {
            t.advance(Duration::from_secs(5));
            lease = match t.store.refresh(&lease).await.expect("no error") {
                Refresh::Extended(longer) => longer,
                Refresh::Lost => panic!("it was held"),
            };
            assert!(matches!(t.store.try_acquire(&t.page).await, Ok(Acquire::Held { .. })));
        }
        assert_eq!(t.publish(&lease, "slow but alive", History::Latest).await, Published::Done);
        let expired = t.acquire().await;
        t.advance(LEASE);
        assert_eq!(t.store.refresh(&expired).await.expect("no error"), Refresh::Lost);
    }
}

#[tokio::test]
async fn a_skew_margin_protects_an_expired_lease_for_longer() {
    for t in Test::on_each_table() {
        let mut terms = LeaseTerms::default();
        terms.skew = Duration::from_secs(5);
        let t = t.with(|store| store.with_lease_terms(terms));
        t.acquire().await;
        t.advance(LEASE + Duration::from_secs(4));
        assert!(matches!(t.store.try_acquire(&t.page).await, Ok(Acquire::Held { .. })));
        t.advance(SECOND);
        t.acquire().await;
    }
}

#[tokio::test]
async fn versions_rise_by_one_and_meta_repeats_the_current_one() {
    for t in Test::on_each_table() {
        for (count, body) in ["a", "b", "c"].into_iter().enumerate() {
            let lease = t.acquire().await;
            assert_eq!(t.publish(&lease, body, History::Versions).await, Published::Done);
            let meta = t.meta().await.expect("a page");
            assert_eq!(meta.version, Some(count as u64 + 1));
            assert_eq!(meta.generation.s3_key, body);
            t.advance(SECOND);
        }
        let rows = t.rows().await;
        assert_eq!(rows.len(), 4, "META and three versions: {rows:?}");
        assert_eq!(t.meta().await.expect("a page").current_sk.as_ref(), rows.last(), "the newest sorts last");
        // A page without further history continues to count, and its pointer stays, for readers that follow it.
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "d", History::Latest).await, Published::Done);
        let (meta, now) = (t.meta().await.expect("a page"), t.rows().await);
        assert_eq!((meta.version, meta.current_sk.as_ref()), (Some(4), now.last()));
        assert_eq!(now[..4], rows, "the version before expires by its ttl");
    }
}

#[tokio::test]
async fn an_unchanged_body_updates_only_the_times() {
    for history in [History::Latest, History::Versions] {
        for t in Test::on_each_table() {
            let with_digest = |t: &Test, body: &str| {
                let mut page = t.rendered(body);
                page.content.digest = Some("sha256:same".into());
                page
            };
            let lease = t.acquire().await;
            let first = with_digest(&t, "first");
            let done = t.store.publish(&lease, &first, None, history, None).await;
            assert_eq!(done.expect("no error"), Published::Done);
            let before = t.meta().await.expect("a page");
            t.advance(Duration::from_secs(100));
            assert_eq!(before.freshness(t.store.now()), Freshness::Stale);
            let lease = t.acquire().await;
            let again = with_digest(&t, "first");
            let done = t.store.publish(&lease, &again, Some(&before), history, None).await;
            assert_eq!(done.expect("no error"), Published::Done);
            let after = t.meta().await.expect("a page");
            assert_eq!(after.freshness(t.store.now()), Freshness::Fresh);
            assert_eq!(after.generation.s3_key, "first");
            assert_eq!((after.version, &after.current_sk), (before.version, &before.current_sk));
            // Read too early: another worker has published since, so the times of that page do not change.
            let lease = t.acquire().await;
            let other = Txn::from(Write::put(t.page.meta(), Meta::of(t.rendered("other")).to_item()));
            assert!(t.table.commit(&other).await.expect("a put").is_done());
            let done = t.store.publish(&lease, &again, Some(&after), history, None).await;
            assert_eq!(done.expect("no error"), Published::Lost);
            assert_eq!(t.rows().await.iter().filter(|sk| *sk == "LOCK").count(), 0, "the lease was released");
        }
    }
}

#[tokio::test]
async fn a_version_id_that_is_taken_never_overwrites_its_version() {
    for t in Test::on_each_table() {
        let publish = async |lease: &Lease, body: &str| {
            let (page, seen) = (t.rendered(body), t.meta().await);
            let mut publication = Publication::new(lease, &page, t.store.now());
            publication.seen = seen.as_ref();
            t.table.commit(&publication.versioned("01HF7YAT00TTTTTTTTTTTTTTTT")).await.expect("no error")
        };
        assert!(publish(&t.acquire().await, "first").await.is_done());
        assert!(matches!(publish(&t.acquire().await, "second").await, Commit::Refused { .. }));
        let versions = t.store.versions(&t.page, 10).await.expect("no error");
        assert_eq!(versions.len(), 1);
        assert_eq!(versions[0].1.generation.s3_key, "first");
        assert_eq!(t.meta().await.expect("a page").generation.s3_key, "first");
    }
}

#[tokio::test]
async fn guards_refuse_an_outdated_read_and_an_older_render() {
    for t in Test::on_each_table() {
        let mut guards = Guards::default();
        guards.version = true;
        let t = t.with(|store| store.with_guards(guards));
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "a", History::Versions).await, Published::Done);
        let lease = t.acquire().await;
        let late = t.store.publish(&lease, &t.rendered("b"), None, History::Versions, None).await;
        assert_eq!(late.expect("no error"), Published::Lost, "META has a version by now");
        let outdated = t.meta().await;
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "b", History::Versions).await, Published::Done);
        let lease = t.acquire().await;
        let late =
            t.store.publish(&lease, &t.rendered("c"), outdated.as_ref(), History::Versions, None).await;
        assert_eq!(late.expect("no error"), Published::Lost, "META has a later version by now");

        let mut guards = Guards::default();
        guards.newer = true;
        let t = t.with(|store| store.with_guards(guards));
        let seen = t.meta().await;
        for generated_at in [NOW - 5, NOW] {
            let lease = t.acquire().await;
            let older = Generation::new("older", generated_at, 60);
            let late = t.store.publish(&lease, &older, seen.as_ref(), History::Latest, None).await;
            assert_eq!(late.expect("no error"), Published::Lost, "{generated_at}");
        }
        assert_eq!(t.meta().await.expect("a page").generation.s3_key, "b");
    }
}

#[tokio::test]
async fn a_publish_with_a_lost_response_is_never_reported_as_not_done() {
    use Fate::{Deny, LoseRequest, LoseResponse, Pass};
    for history in [History::Latest, History::Versions] {
        for (fates, published) in [
            (vec![LoseResponse, Pass], Ok(Published::Done)),
            (vec![LoseRequest, LoseResponse, LoseResponse, Pass], Ok(Published::Done)),
            (vec![LoseResponse, LoseResponse, LoseResponse, LoseResponse, Pass], Ok(Published::Done)),
            (vec![LoseRequest, LoseRequest, LoseRequest, Pass], Err(Kind::Unavailable)),
            // There is no page, and there was none: it may have been published and deleted by its `ttl` since.
            (vec![LoseRequest, LoseRequest, LoseRequest, LoseResponse, Pass], Ok(Published::Superseded)),
            (vec![LoseResponse; 6], Err(Kind::Unknown)),
            // The rejection of a retry does not decide about earlier attempts.
            (vec![LoseResponse, Deny, Pass], Ok(Published::Done)),
            (vec![LoseRequest, Deny, Pass], Err(Kind::Unavailable)),
            (vec![LoseResponse, LoseResponse, LoseResponse, Deny], Err(Kind::Unknown)),
        ] {
            for t in Test::on_each_table() {
                let lease = t.acquire().await;
                t.table.script(&fates);
                let outcome = t.store.publish(&lease, &t.rendered("a"), None, history, None).await;
                t.table.script(&[]);
                assert_eq!(outcome.map_err(|error| error.kind()), published, "{fates:?}");
                let meta = t.meta().await;
                match published {
                    Ok(Published::Done) => {
                        let meta = meta.expect("a page");
                        assert_eq!(meta.generation.s3_key, "a");
                        assert!(meta.version.is_none_or(|version| version == 1), "it was applied once");
                    }
                    Ok(_) | Err(Kind::Unavailable) => {
                        assert_eq!(meta, None, "nothing was published");
                        t.acquire().await;
                    }
                    Err(_) => {}
                }
            }
        }
    }
}

#[tokio::test]
async fn a_lease_is_granted_even_if_the_response_was_lost() {
    use Fate::{LoseRequest, LoseResponse, Pass};
    for fates in [vec![LoseResponse, Pass], vec![LoseRequest, LoseResponse, Pass]] {
        for t in Test::on_each_table() {
            t.table.script(&fates);
            let lease = t.acquire().await;
            assert_eq!(t.publish(&lease, "a", History::Latest).await, Published::Done);
        }
    }
}

#[tokio::test]
async fn a_late_acquire_does_not_bring_a_released_lease_back() {
    for history in [History::Latest, History::Versions] {
        for t in Test::on_each_table() {
            t.table.script(&[Fate::Delay, Fate::Pass]);
            let lease = t.acquire().await;
            let rendered = t.rendered("from before the invalidation");
            assert_eq!(
                t.store.invalidate(&t.page, InvalidationMode::Hard).await.expect("no error"),
                Invalidated::Absent
            );
            t.table.come_late().await;
            let published = t.store.publish(&lease, &rendered, None, history, None).await;
            assert_eq!(published.expect("no error"), Published::Lost);
            assert_eq!(t.meta().await, None);
        }
    }
}

#[tokio::test]
async fn a_refusal_is_final_only_once_the_lease_is_gone() {
    use Fate::{ComeLate, Delay, Pass};
    for history in [History::Latest, History::Versions] {
        for t in Test::on_each_table() {
            let lease = t.acquire().await;
            t.advance(LEASE / 2);
            t.table.script(&[Delay; 3]);
            assert_eq!(t.store.refresh(&lease).await.map_err(|error| error.kind()), Err(Kind::Unknown));
            t.advance(LEASE / 2);
            // The retry finds the lease expired; then the delayed refresh arrives, and the first attempt.
            t.table.script(&[Delay, Pass, ComeLate]);
            assert_eq!(t.publish(&lease, "a", history).await, Published::Done);
            assert_eq!(t.meta().await.expect("a page").generation.s3_key, "a");
        }
    }
}

#[tokio::test]
async fn a_row_of_another_language_is_served_and_replaced() {
    for t in Test::on_each_table() {
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "ours", History::Versions).await, Published::Done);
        // A full put of META with only the required attributes.
        let theirs = Item::from([
            ("s3_key", Value::from("theirs")),
            ("generated_at", (NOW + 1).into()),
            ("revalidate_seconds", 60.into()),
        ]);
        assert!(
            t.table.commit(&Txn::from(Write::put(t.page.meta(), theirs))).await.expect("a put").is_done()
        );
        assert_eq!(t.meta().await.expect("a page").generation.s3_key, "theirs");
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "ours again", History::Versions).await, Published::Done);
        assert_eq!(t.meta().await.expect("a page").generation.s3_key, "ours again");
        // A row that cannot be read counts as missing.
        let broken = Item::from([("s3_key", Value::from(7))]);
        assert!(
            t.table.commit(&Txn::from(Write::put(t.page.meta(), broken))).await.expect("a put").is_done()
        );
        assert_eq!(t.meta().await, None);
    }
}

#[tokio::test]
async fn a_version_that_is_not_a_number_counts_as_absent_for_the_guard_too() {
    for t in Test::on_each_table() {
        let mut guards = Guards::default();
        guards.version = true;
        let t = t.with(|store| store.with_guards(guards));
        let mut item = facetheory::protocol::Meta::of(t.rendered("theirs")).to_item();
        item.set("version", "one");
        assert!(t.table.commit(&Txn::from(Write::put(t.page.meta(), item))).await.expect("a put").is_done());
        let lease = t.acquire().await;
        assert_eq!(t.publish(&lease, "ours", History::Versions).await, Published::Done);
        assert_eq!(t.meta().await.expect("a page").version, Some(1));
    }
}

#[tokio::test]
async fn a_publish_removes_every_attribute_of_the_page_before_and_records_its_hard_invalidation() {
    for (body, history) in
        [("next", History::Latest), ("next", History::Versions), ("before", History::Versions)]
    {
        for t in Test::on_each_table() {
            let mut before = Meta::of(Generation::new("before", NOW - 9, 0));
            before.generation.etag = Some("\"before\"".into());
            let content = &mut before.generation.content;
            content.status = Some(404);
            content.content_type = Some("text/plain".into());
            content.headers = vec![("x-before".into(), "1".into())];
            content.digest = Some("sha256:before".into());
            content.tags = vec!["before".into()];
            content.deployment = Some("before".into());
            (before.ttl, before.mark) = (Some(NOW + 9), Some("before".into()));
            (before.stale_since, before.pinned_until, before.must_not_serve) = (Some(NOW), Some(NOW), true);
            let put = Write::put(t.page.meta(), before.to_item());
            assert!(t.table.commit(&Txn::from(put)).await.expect("a put").is_done());

            let lease = t.acquire().await;
            assert_eq!(t.publish(&lease, body, history).await, Published::Done);
            let after = t.meta().await.expect("a page");
            assert_eq!(after.freshness(t.store.now()), Freshness::Fresh, "it may be served again");
            let mut expected = Meta::of(t.rendered(body));
            (expected.mark, expected.expired_at) = (Some(lease.token().into()), Some(NOW));
            (expected.ttl, expected.used_at) = (after.ttl, Some(NOW));
            (expected.version, expected.current_sk) = (after.version, after.current_sk.clone());
            assert_eq!(after, expected, "{body} {history:?}");
        }
    }
}

#[test]
fn a_refusal_that_shows_our_own_token_means_that_the_lease_was_granted() {
    let page = facetheory::PageKey::new("/").expect("a page");
    let lease = Lease::starting(page, "ours", Timestamp::from_seconds(NOW), &LeaseTerms::default());
    let refused = |token: &str| {
        let lock = Lock::new(token, NOW + 5);
        Commit::Refused { index: 0, seen: Some(lock.to_item()) }
    };
    assert_eq!(lease.clone().acquired(refused("ours")), Acquire::Granted(lease.clone()));
    assert_eq!(lease.acquired(refused("theirs")), Acquire::Held { until: NOW + 5 });
}
