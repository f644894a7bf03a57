//! Replaced bodies are deleted in the background, a while after they were replaced.

use std::sync::Arc;
use std::time::Duration;

use facetheory::{Bodies, History, InvalidationMode, IsrBuilder, PageKey, Rendered, RolledBack, State};
use futures_util::TryStreamExt as _;
use object_store::ObjectStore as _;
use object_store::memory::InMemory;

use crate::fixture::{INTERVAL, SECOND, Site};

const RETENTION: Duration = Duration::from_secs(600);

/// A site, and the store of its bodies.
fn site(build: impl FnOnce(IsrBuilder) -> IsrBuilder) -> (Site, Arc<InMemory>) {
    let objects = Arc::new(InMemory::new());
    (Site::on(build, Bodies::over(objects.clone())), objects)
}

/// The number of bodies and their bytes.
async fn stored(objects: &InMemory) -> (usize, u64) {
    let listed: Vec<_> = objects.list(None).try_collect().await.expect("a listing");
    (listed.len(), listed.iter().map(|object| object.size).sum())
}

/// Renders the page again, with another body each time.
async fn regenerate(site: &Site, body: &str) {
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("a result");
    let result = site.get_slow(Duration::ZERO, Ok(Rendered::html(body.to_owned()))).await;
    assert!(result.is_ok(), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn pages_that_change_at_every_render_leave_a_bounded_number_of_bodies() {
    const PAGES: usize = 20;
    const BYTES: u64 = 10_000;
    let (site, objects) = site(|builder| builder);
    let page = |number| PageKey::new(format!("/{number}")).expect("a page");
    let pages: Vec<Site> = (0..PAGES).map(|number| Site { page: page(number), ..site.clone() }).collect();
    let mut most = 0;
    // An hour: 1,200 bodies.
    for minute in 0..60 {
        for page in &pages {
            regenerate(page, &format!("{minute:010000}")).await;
        }
        tokio::time::sleep(INTERVAL).await;
        let (bodies, bytes) = stored(&objects).await;
        assert_eq!(bytes, BYTES * bodies as u64);
        most = most.max(bodies);
    }
    // The current one, and those of ten minutes.
    assert!((10 * PAGES..=12 * PAGES).contains(&most), "{most} bodies");
    tokio::time::sleep(RETENTION + 2 * SECOND).await;
    assert_eq!(stored(&objects).await.0, PAGES, "the current ones");
    for page in &pages {
        assert_eq!(page.get("not rendered").await.0, State::Stale);
    }
}

#[tokio::test(start_paused = true)]
async fn the_bodies_of_versions_that_are_not_retained_are_deleted_and_a_rollback_keeps_its_own() {
    let (site, objects) = site(|builder| builder);
    let site = site.with(|policy| (policy.history, policy.versions) = (History::Versions, Some(2)));
    for body in ["1", "2", "3", "4", "5"] {
        regenerate(&site, body).await;
        tokio::time::sleep(SECOND).await;
    }
    let versions = site.isr.versions(&site.page, 10).await.expect("versions");
    assert_eq!(versions.len(), 3);
    let (oldest, _) = versions.last().expect("a version");
    let outcome = site.isr.roll_back(&site.page, oldest, 10 * RETENTION).await;
    assert_eq!(outcome.expect("no error"), RolledBack::Done);
    assert_eq!(stored(&objects).await.0, 5);
    tokio::time::sleep(2 * RETENTION).await;
    assert_eq!(stored(&objects).await.0, 3);
    // Another process has nothing in memory.
    assert_eq!(site.another().get("not rendered").await, (State::Hit, "3".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn without_a_retention_replaced_bodies_are_left_to_gc() {
    let (site, objects) = site(|builder| builder.replaced_retention(None));
    regenerate(&site, "one").await;
    regenerate(&site, "two").await;
    tokio::time::sleep(100 * RETENTION).await;
    assert_eq!(stored(&objects).await.0, 2);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_bodies_that_are_not_due() {
    let (site, objects) = site(|builder| builder);
    let start = tokio::time::Instant::now();
    regenerate(&site, "one").await;
    regenerate(&site, "two").await;
    assert!(site.isr.settle(RETENTION).await);
    assert!(site.isr.shut_down(RETENTION).await);
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    tokio::time::sleep(2 * RETENTION).await;
    assert_eq!(stored(&objects).await.0, 2, "an engine that was shut down deletes nothing");
}
