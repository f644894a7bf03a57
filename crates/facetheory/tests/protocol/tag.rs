//! Tags: all pages with a tag are invalidated by one write.

use std::time::Duration;

use facetheory::protocol::{EpochTerms, Freshness, Generation, Meta};
use facetheory::{KeyScheme, PageKey, PageStore, Tag, Tenant};

use crate::fixture::{SECOND, Test};

/// A page at this path, of a route and a tenant.
fn page(tenant: Option<&Tenant>, path: &str) -> PageKey {
    let key = KeyScheme::Hashed.page(tenant, path).expect("a page");
    key.at_path(path).of_route("/docs/{name}").expect("a route")
}

fn rendered(store: &PageStore, tags: &[&str]) -> Meta {
    let mut page = Generation::new("a.html", store.now().seconds(), 3600);
    page.content.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    Meta::of(page)
}

#[tokio::test]
async fn a_page_is_invalidated_by_its_tags_path_route_and_tenant() {
    let acme = Tenant::new("acme").expect("a tenant");
    let cases = [
        (Tag::new("news"), true),
        (Tag::new("sport"), false),
        (Tag::path("/"), true),
        (Tag::path("/docs"), true),
        (Tag::path("/docs/a"), true),
        (Tag::path("/docs/a/b"), false),
        (Tag::path("/doc"), false),
        (Tag::route("/docs/{name}"), true),
        (Tag::route("/posts/{name}"), false),
        (Ok(Tag::everything()), true),
    ];
    for (tag, goes_stale) in cases {
        let tag = tag.expect("a tag");
        for t in Test::on_each_table() {
            let (ours, theirs) = (page(Some(&acme), "/docs/a"), page(None, "/docs/a"));
            let meta = rendered(&t.store, &["news", "an invalid\ntag"]);
            t.advance(10 * SECOND);
            t.store.invalidate_tag(&tag, Some(&acme)).await.expect("no error");
            let state = t.store.freshness(&ours, &meta).await.expect("no error");
            assert_eq!(state == Freshness::Stale, goes_stale, "{tag:?}: {state:?}");
            let state = t.store.freshness(&theirs, &meta).await.expect("no error");
            assert_eq!(state, Freshness::Fresh, "{tag:?} of another tenant");
        }
    }
}

#[tokio::test]
async fn a_render_after_an_invalidation_and_its_margin_is_fresh() {
    for t in Test::on_each_table() {
        t.store.invalidate_tag(&Tag::everything(), None).await.expect("no error");
        let state = async || t.freshness(&rendered(&t.store, &[])).await;
        t.advance(2 * SECOND);
        assert_eq!(state().await, Freshness::Stale, "the clock of another host may be behind by this much");
        t.advance(SECOND);
        assert_eq!(state().await, Freshness::Fresh);
    }
}

#[tokio::test]
async fn an_invalidation_by_another_process_applies_after_the_max_age_of_epochs() {
    for t in Test::on_each_table() {
        let other = PageStore::new(t.table.clone());
        let meta = rendered(&t.store, &[]);
        t.advance(10 * SECOND);
        assert_eq!(t.freshness(&meta).await, Freshness::Fresh);
        other.invalidate_tag(&Tag::everything(), None).await.expect("no error");
        assert_eq!(t.freshness(&meta).await, Freshness::Fresh, "the epoch is cached for a second");
        t.advance(SECOND);
        assert_eq!(t.freshness(&meta).await, Freshness::Stale);
    }
}

#[tokio::test]
async fn epochs_without_a_max_age_are_read_every_time() {
    for t in Test::on_each_table() {
        let mut never = EpochTerms::default();
        never.max_age = Duration::ZERO;
        let t = t.with(|store| store.with_epoch_terms(never));
        let meta = rendered(&t.store, &[]);
        t.advance(10 * SECOND);
        assert_eq!(t.freshness(&meta).await, Freshness::Fresh);
        PageStore::new(t.table.clone()).invalidate_tag(&Tag::everything(), None).await.expect("no error");
        assert_eq!(t.freshness(&meta).await, Freshness::Stale);
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_extend_the_max_age_of_epochs() {
    for t in Test::on_each_table() {
        let meta = rendered(&t.store, &[]);
        t.advance(Duration::from_secs(3600));
        assert_eq!(t.freshness(&meta).await, Freshness::Stale, "by itself");
        t.store.epochs(&[Tag::everything()], None).await.expect("no error");
        t.clock.set(tabletheory::Timestamp::from_seconds(crate::fixture::NOW + 10));
        PageStore::new(t.table.clone()).invalidate_tag(&Tag::everything(), None).await.expect("no error");
        assert_eq!(t.freshness(&meta).await, Freshness::Stale);
    }
}
