//! The counts of invalidations: a page that was rendered before an invalidation is never fresh after it, whatever the clocks do.

use std::time::Duration;

use facetheory::protocol::{Freshness, Meta};
use facetheory::{
    Bodies, History, InvalidationMode, Outcome, PageKey, PageStore, Pages, Policy, RenderError, Rendered,
    RolledBack, Tag,
};
use tabletheory::{Item, ManualClock, Table as _, Timestamp, Txn, Update, Value, Write};

use crate::fixture::{NOW, SECOND, Test};

const HOUR: i64 = 3600;
const STEPS: [i64; 3] = [-HOUR, 0, HOUR];

/// Pages of a table, and a page of `/docs` that its renders tag.
struct Site {
    t: Test,
    pages: Pages,
    page: PageKey,
}

impl Site {
    fn on_each_table() -> impl Iterator<Item = Site> {
        Test::on_each_table().into_iter().map(|t| {
            let pages = Pages::new(t.store.clone(), Bodies::memory());
            let page = PageKey::new("/docs/a").expect("a page").at_path("/docs/a");
            Site { t, pages, page: page.of_route("/docs/{name}").expect("a route") }
        })
    }

    /// Publishes the page with a body and tags. `during` runs while it is rendered.
    async fn render_during(&self, body: &'static str, tags: &[&str], during: impl Future<Output = ()>) {
        let mut rendered = Rendered::html(body);
        rendered.content.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let policy = Policy::every(Duration::from_secs(10 * 3600)).with_history(History::Versions);
        let render = |_| async {
            during.await;
            Ok::<_, RenderError>(rendered)
        };
        let outcome = self.pages.regenerate(&self.page, &policy, render).await.expect("no error");
        assert!(matches!(outcome, Outcome::Published(_) | Outcome::Unchanged(_)), "{outcome:?}");
    }

    async fn render(&self, body: &'static str, tags: &[&str]) {
        self.render_during(body, tags, async {}).await;
    }

    async fn meta(&self) -> Meta {
        self.t.store.lookup(&self.page).await.expect("no error").meta.expect("a page")
    }

    /// The freshness of the page for another process, which has read nothing yet.
    async fn freshness(&self) -> Freshness {
        let other = PageStore::new(self.t.table.clone());
        other.freshness(&self.page, &self.meta().await).await.expect("no error")
    }

    async fn invalidate(&self, tag: &Tag) {
        self.t.store.invalidate_tag(tag, None).await.expect("no error");
    }

    async fn invalidate_hard(&self, tag: &Tag) {
        let mode = InvalidationMode::Hard;
        self.t.store.invalidate_tag_with(tag, None, mode).await.expect("no error");
    }

    fn set_clock(&self, seconds: i64) {
        self.t.clock.set(Timestamp::from_seconds(seconds));
    }
}

/// All kinds of tags by which the page can be invalidated.
fn kinds() -> [Tag; 5] {
    let tags = [Tag::new("news"), Tag::path("/"), Tag::path("/docs"), Tag::route("/docs/{name}")];
    let [tag, root, path, route] = tags.map(|tag| tag.expect("a tag"));
    [tag, root, path, route, Tag::everything()]
}

/// Each kind of tag, with a new site on each table.
fn tagged_sites() -> impl Iterator<Item = (Tag, Site)> {
    kinds().into_iter().flat_map(|tag| Site::on_each_table().map(move |site| (tag.clone(), site)))
}

#[tokio::test]
async fn no_step_of_a_clock_hides_the_invalidation_of_a_tag() {
    for (rendered, invalidated) in STEPS.iter().flat_map(|one| STEPS.map(|other| (*one, other))) {
        for (tag, site) in tagged_sites() {
            site.invalidate(&tag).await;
            site.set_clock(NOW + rendered + 3);
            site.render("one", &["news"]).await;
            site.set_clock(NOW + invalidated);
            site.invalidate(&tag).await;
            for read in STEPS {
                site.set_clock(NOW + read + 3);
                let freshness = site.freshness().await;
                assert_eq!(freshness, Freshness::Stale, "{tag:?}: {rendered} {invalidated} {read}");
            }
        }
    }
}

#[tokio::test]
async fn a_hard_invalidation_applies_to_a_page_that_is_older_than_any_row_of_a_tag() {
    for site in Site::on_each_table() {
        site.render("one", &["news"]).await;
        site.set_clock(NOW + 100 * 24 * HOUR);
        assert_eq!(site.freshness().await, Freshness::Stale, "the row of a tag may have expired");
        let news = Tag::new("news").expect("a tag");
        site.t.store.invalidate_tag_with(&news, None, InvalidationMode::Hard).await.expect("no error");
        assert_eq!(site.freshness().await, Freshness::MustNotServe);
    }
}

#[tokio::test]
async fn no_step_of_a_clock_brings_a_page_back_whose_tag_was_hard_invalidated() {
    for (hard, soft) in STEPS.iter().flat_map(|one| STEPS.map(|other| (*one, other))) {
        for (tag, site) in tagged_sites() {
            site.invalidate(&tag).await;
            site.set_clock(NOW + 3);
            site.render("one", &["news"]).await;
            site.set_clock(NOW + hard);
            site.invalidate_hard(&tag).await;
            for read in STEPS {
                site.set_clock(NOW + read + 3);
                assert_eq!(site.freshness().await, Freshness::MustNotServe, "{tag:?}: {hard} {read}");
            }
            site.set_clock(NOW + soft);
            site.invalidate(&tag).await;
            // Also a page that is stale by itself.
            for read in [NOW, NOW + 24 * HOUR] {
                site.set_clock(read);
                assert_eq!(
                    site.freshness().await,
                    Freshness::MustNotServe,
                    "{tag:?}: {soft}, a soft one later"
                );
            }
            site.set_clock(NOW + soft);
            site.render("two", &["news"]).await;
            assert_eq!(site.freshness().await, Freshness::Fresh, "{tag:?}: rendered after both");
            site.invalidate(&tag).await;
            assert_eq!(site.freshness().await, Freshness::Stale, "{tag:?}: rendered after the hard one");
        }
    }
}

#[tokio::test]
async fn a_hard_invalidation_of_a_tag_ends_a_pin_and_one_from_before_the_rollback_does_not() {
    for (tag, site) in tagged_sites() {
        site.render("one", &["news"]).await;
        site.t.advance(SECOND);
        site.invalidate(&tag).await;
        site.render("two", &["news"]).await;
        site.invalidate_hard(&tag).await;
        let versions = site.t.store.versions(&site.page, 2).await.expect("no error");
        let (pin, oldest) = (Duration::from_secs(3600), &versions[1].0);
        let rolled_back = site.t.store.roll_back(&site.page, oldest, pin).await.expect("no error");
        assert_eq!(rolled_back, RolledBack::Done);
        assert_eq!(site.freshness().await, Freshness::Fresh, "{tag:?}");
        site.invalidate(&tag).await;
        assert_eq!(site.freshness().await, Freshness::Fresh, "{tag:?}: a soft one leaves it alone");
        site.set_clock(NOW - HOUR);
        site.invalidate_hard(&tag).await;
        assert_eq!(site.freshness().await, Freshness::MustNotServe, "{tag:?}");
    }
}

#[tokio::test]
async fn a_page_that_is_regenerated_right_after_an_invalidation_is_fresh_at_once() {
    for (tag, site) in tagged_sites() {
        site.render("one", &["news"]).await;
        for (body, step) in [("two", 0), ("two", 0), ("three", -HOUR), ("four", HOUR)] {
            site.set_clock(NOW + step);
            site.invalidate(&tag).await;
            assert_eq!(site.freshness().await, Freshness::Stale, "{tag:?} {body}");
            site.render(body, &["news"]).await;
            assert_eq!(site.freshness().await, Freshness::Fresh, "{tag:?} {body}");
        }
    }
}

#[tokio::test]
async fn an_invalidation_during_a_render_applies_to_it_although_the_clock_was_set_back() {
    for (tag, is_own) in kinds().into_iter().flat_map(|tag| [(tag.clone(), false), (tag, true)]) {
        for site in Site::on_each_table() {
            site.render("one", &["news"]).await;
            site.invalidate(&tag).await;
            let other = PageStore::new(site.t.table.clone());
            let invalidator = if is_own { &site.t.store } else { &other };
            let during = async {
                site.set_clock(NOW - HOUR);
                invalidator.invalidate_tag(&tag, None).await.expect("no error");
            };
            site.render_during("two", &["news"], during).await;
            site.set_clock(NOW);
            assert_eq!(site.freshness().await, Freshness::Stale, "{tag:?}");
        }
    }
}

#[tokio::test]
async fn a_tag_that_a_render_brings_is_compared_by_its_time_and_counted_from_then_on() {
    for site in Site::on_each_table() {
        let news = Tag::new("news").expect("a tag");
        let others = PageStore::new(site.t.table.clone());
        others.invalidate_tag(&news, None).await.expect("no error");
        site.set_clock(NOW + 2);
        site.render("one", &["news"]).await;
        assert_eq!(
            site.freshness().await,
            Freshness::Stale,
            "it may have been rendered before the invalidation"
        );
        site.t.advance(2 * SECOND);
        site.render("two", &["news"]).await;
        assert_eq!(site.freshness().await, Freshness::Fresh, "the tag was known before this render");
        others.invalidate_tag(&Tag::new("sport").expect("a tag"), None).await.expect("no error");
        others.invalidate_tag(&news, None).await.expect("no error");
        site.t.advance(10 * SECOND);
        site.render("three", &["news", "sport"]).await;
        assert_eq!(site.freshness().await, Freshness::Fresh, "the new tag was invalidated clearly before");
        site.set_clock(NOW - HOUR);
        others.invalidate_tag(&Tag::new("sport").expect("a tag"), None).await.expect("no error");
        assert_eq!(site.freshness().await, Freshness::Stale);
    }
}

/// Another service changes the row of a tag: by a put, by an update of the time alone, or by deleting it.
fn foreign_writes(tag: &Tag, time: i64) -> [Write; 3] {
    let key = tag.key(None);
    let update = Update::new([tabletheory::Attr::<i64>::new("invalidated_at").set(time)]);
    [
        Write::put(key.clone(), Item::from([("invalidated_at", Value::from(time))])),
        Write::update(key.clone(), update),
        Write::delete(key),
    ]
}

#[tokio::test]
async fn invalidations_are_not_lost_when_another_service_replaces_or_deletes_the_row_of_a_tag() {
    for (number, more) in (0..3).flat_map(|number| [0, 1, 2, 3, 4].map(|more| (number, more))) {
        for site in Site::on_each_table() {
            let news = Tag::new("news").expect("a tag");
            site.render("one", &["news"]).await;
            for _ in 0..3 {
                site.invalidate(&news).await;
            }
            site.render("two", &["news"]).await;
            assert_eq!(site.freshness().await, Freshness::Fresh);
            let write = foreign_writes(&news, NOW)[number].clone();
            assert!(site.t.table.commit(&Txn::from(write)).await.expect("a write").is_done());
            for _ in 0..more {
                site.invalidate(&news).await;
                assert_eq!(site.freshness().await, Freshness::Stale, "write {number}, {more} more");
            }
            // An update at the same time changes nothing.
            let is_same = number == 1 && more == 0;
            let expected = if is_same { Freshness::Fresh } else { Freshness::Stale };
            assert_eq!(site.freshness().await, expected, "write {number}, {more} more");
        }
    }
}

#[tokio::test]
async fn a_time_that_another_service_writes_applies_to_pages_with_counts() {
    for site in Site::on_each_table() {
        let news = Tag::new("news").expect("a tag");
        site.invalidate(&news).await;
        // The first render brings the tag.
        site.render("one", &["news"]).await;
        site.render("two", &["news"]).await;
        assert_eq!(site.freshness().await, Freshness::Fresh);
        let [_, update, _] = foreign_writes(&news, NOW + 5);
        assert!(site.t.table.commit(&Txn::from(update)).await.expect("a write").is_done());
        assert_eq!(site.freshness().await, Freshness::Stale);
    }
}

#[tokio::test]
async fn a_page_that_another_service_has_updated_is_compared_by_its_time() {
    for site in Site::on_each_table() {
        let news = Tag::new("news").expect("a tag");
        site.render("one", &["news"]).await;
        site.t.advance(10 * SECOND);
        site.invalidate(&news).await;
        let published = |generated_at: i64| {
            let time = tabletheory::Attr::<i64>::new("generated_at").set(generated_at);
            Txn::from(Write::update(site.page.meta(), Update::new([time])))
        };
        for (generated_at, expected) in [(NOW + 12, Freshness::Stale), (NOW + 13, Freshness::Fresh)] {
            assert!(site.t.table.commit(&published(generated_at)).await.expect("a write").is_done());
            site.set_clock(generated_at);
            assert_eq!(site.freshness().await, expected, "{generated_at}");
        }
    }
}

#[tokio::test]
async fn a_regeneration_reads_no_epochs_and_one_after_an_invalidation_by_this_process_does() {
    use std::sync::Arc;
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
    let table = Arc::new(facetheory::testing::CountedTable::new(clock.clone()));
    let store = PageStore::new(table.clone());
    let pages = Pages::new(store.clone(), Bodies::memory());
    let page = PageKey::new("/").expect("a page");
    let policy = Policy::every(Duration::from_secs(60));
    let regenerate = async |pages: &Pages| {
        clock.advance(Duration::from_secs(61));
        let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("a")) }).await;
        assert!(outcome.is_ok(), "{outcome:?}");
        table.take_all().0
    };
    assert_eq!(regenerate(&pages).await, 2, "META, and the rows of its tags");
    assert_eq!(regenerate(&pages).await, 1, "META");
    let other = Pages::new(PageStore::new(table.clone()), Bodies::memory());
    assert_eq!(regenerate(&other).await, 1, "the counts of the previous version are enough");
    store.invalidate_tag(&Tag::everything(), None).await.expect("no error");
    assert_eq!(regenerate(&pages).await, 2, "the count has changed since the previous version");
    let meta = store.lookup(&page).await.expect("no error").meta.expect("a page");
    assert_eq!(store.freshness(&page, &meta).await.expect("no error"), Freshness::Fresh);
}
