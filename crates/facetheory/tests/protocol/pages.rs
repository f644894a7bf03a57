//! Regeneration from beginning to end, with paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use facetheory::protocol::{Acquire, Freshness};
use facetheory::testing::RuntimeClock;
use facetheory::{
    Bodies, History, IdempotentRequest, InvalidationMode, Kind, Outcome, PageKey, PageStore, Pages, Policy,
    RegenerateReason, Render, RenderContext, RenderError, Rendered, RolledBack, Tag,
};
use object_store::memory::InMemory;
use tabletheory::MemoryTable;

use crate::fixture::{LEASE, NOW, count_objects};
use crate::scripted::{Fate, Scripted, scripted};

struct Site {
    pages: Pages,
    table: Arc<Scripted>,
    renders: AtomicU32,
    page: PageKey,
}

impl Site {
    fn new() -> Self {
        Site::with(Bodies::memory())
    }

    fn with(bodies: Bodies) -> Self {
        let clock = Arc::new(RuntimeClock::starting_at(NOW));
        let table = Arc::new(scripted(Arc::new(MemoryTable::with_clock(clock))));
        Site {
            pages: Pages::new(PageStore::new(table.clone()), bodies),
            table,
            renders: AtomicU32::new(0),
            page: PageKey::new("/").expect("a page"),
        }
    }

    async fn regenerate(&self, body: &'static str, takes: Duration) -> facetheory::Result<Outcome> {
        let policy = Policy::every(Duration::from_secs(60)).with_history(History::Versions);
        self.pages
            .regenerate(&self.page, &policy, |_| async {
                self.renders.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(takes).await;
                Ok(Rendered::html(body))
            })
            .await
    }

    async fn body(&self) -> Option<String> {
        let found = self.pages.read(&self.page).await.expect("no error");
        found.map(|(_, body)| String::from_utf8_lossy(&body.bytes).into_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_is_rendered_published_and_read() {
    let site = Site::new();
    assert_eq!(site.body().await, None);
    let outcome = site.regenerate("one", Duration::ZERO).await.expect("rendered");
    let Outcome::Published(generation) = outcome else { panic!("{outcome:?}") };
    assert_eq!(generation.generated_at, site.pages.store().now().seconds());
    assert!(generation.etag.is_some_and(|etag| etag.len() == 34));
    assert_eq!(site.body().await.as_deref(), Some("one"));
    assert!(matches!(site.regenerate("two", Duration::ZERO).await, Ok(Outcome::AlreadyFresh(_))));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(matches!(site.regenerate("two", Duration::ZERO).await, Ok(Outcome::Published(_))));
    assert_eq!(site.body().await.as_deref(), Some("two"));
    assert_eq!(site.renders.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn of_many_workers_one_renders() {
    let site = Site::new();
    let (one, two, three) = tokio::join!(
        site.regenerate("a", Duration::from_secs(5)),
        site.regenerate("b", Duration::from_secs(5)),
        site.regenerate("c", Duration::from_secs(5)),
    );
    assert!(matches!(one, Ok(Outcome::Published(_))));
    for other in [two, three] {
        assert!(matches!(other, Ok(Outcome::Held { until }) if until == NOW + 8));
    }
    assert_eq!(site.renders.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_render_longer_than_its_lease_is_published() {
    let site = Site::new();
    let outcome = site.regenerate("slow", 10 * LEASE).await.expect("rendered");
    let Outcome::Published(generation) = outcome else { panic!("{outcome:?}") };
    assert_eq!(generation.generated_at, NOW, "generated_at is when the render began");
    let meta = site.pages.store().lookup(&site.page).await.expect("no error").meta.expect("a page");
    assert_eq!(meta.freshness(site.pages.store().now()), Freshness::Stale, "it may be stale at once");
}

#[tokio::test(start_paused = true)]
async fn a_render_whose_lease_is_lost_is_cancelled() {
    let site = Site::new();
    let invalidate = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        site.pages.store().invalidate(&site.page, InvalidationMode::Hard).await.expect("no error");
    };
    let began = site.pages.store().now();
    let (outcome, ()) = tokio::join!(site.regenerate("outdated", 100 * LEASE), invalidate);
    assert_eq!(outcome.expect("no error"), Outcome::Lost);
    let waited = site.pages.store().now().millis() - began.millis();
    assert!(waited <= 11_000, "the next heartbeat detected it: {waited} ms");
    assert_eq!(site.body().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_render_continues_after_a_lost_heartbeat() {
    let site = Site::new();
    // The lease is acquired; then one heartbeat is lost with all its retries.
    site.table.script(&[Fate::Pass, Fate::LoseRequest, Fate::LoseRequest, Fate::LoseRequest]);
    let outcome = site.regenerate("slow", 2 * LEASE).await.expect("rendered");
    assert!(matches!(outcome, Outcome::Published(_)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_body_is_not_stored_again() {
    let objects = Arc::new(InMemory::new());
    let site = Site::with(Bodies::over(objects.clone()));
    assert!(matches!(site.regenerate("same", Duration::ZERO).await, Ok(Outcome::Published(_))));
    assert_eq!(count_objects(&objects).await, 1);
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(matches!(site.regenerate("same", Duration::ZERO).await, Ok(Outcome::Unchanged(_))));
    assert_eq!(count_objects(&objects).await, 1);
    assert!(matches!(site.regenerate("same", Duration::ZERO).await, Ok(Outcome::AlreadyFresh(_))));
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(matches!(site.regenerate("other", Duration::ZERO).await, Ok(Outcome::Published(_))));
    assert_eq!(count_objects(&objects).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_render_leaves_the_page_unchanged_and_releases_the_lease() {
    let site = Site::new();
    assert!(matches!(site.regenerate("good", Duration::ZERO).await, Ok(Outcome::Published(_))));
    tokio::time::advance(Duration::from_secs(100)).await;
    let policy = Policy::every(Duration::from_secs(60));
    let render = |_| async { Err::<Rendered, _>("the origin is down".into()) };
    let failed = site.pages.regenerate(&site.page, &policy, render).await;
    let error = failed.expect_err("it failed");
    assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Render, "the render of / failed"));
    assert_eq!(site.body().await.as_deref(), Some("good"));
    let next = site.pages.store().try_acquire(&site.page).await.expect("no error");
    assert!(matches!(next, Acquire::Granted(_)));
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_body_is_missing_counts_as_missing_and_is_rendered_again() {
    let bodies = Bodies::memory();
    let site = Site::with(bodies.clone());
    assert!(matches!(site.regenerate("one", Duration::ZERO).await, Ok(Outcome::Published(_))));
    let broken = site.pages.store().lookup(&site.page).await.expect("no error").meta.expect("a page");
    bodies.delete(&broken.generation.s3_key).await.expect("deleted");
    assert_eq!(site.body().await, None);
    assert!(
        matches!(site.regenerate("one", Duration::ZERO).await, Ok(Outcome::AlreadyFresh(_))),
        "it is fresh by its times"
    );
    let policy = Policy::every(Duration::from_secs(60));
    for repaired in [true, false] {
        let lost = RegenerateReason::BodyMissing(broken.generation.s3_key.clone());
        let render = |_| async { Ok(Rendered::html("one")) };
        let heal = site.pages.regenerate_for(&site.page, &policy, &lost, render);
        let outcome = heal.await.expect("no error");
        assert_eq!(matches!(outcome, Outcome::Published(_)), repaired, "one render is enough: {outcome:?}");
        assert_eq!(site.body().await.as_deref(), Some("one"));
    }
}

async fn regenerate_with<R>(site: &Site, render: impl FnOnce(RenderContext) -> R) -> Outcome
where
    R: Future<Output = Result<Render, RenderError>>,
{
    let policy = Policy::every(Duration::from_secs(60)).with_history(History::Versions);
    site.pages.regenerate(&site.page, &policy, render).await.expect("no error")
}

#[tokio::test(start_paused = true)]
async fn a_renderer_may_report_that_the_page_is_unchanged() {
    let site = Site::new();
    assert!(matches!(site.regenerate("same", Duration::ZERO).await, Ok(Outcome::Published(_))));
    tokio::time::advance(Duration::from_secs(100)).await;
    let outcome = regenerate_with(&site, |context| async move {
        let served = context.served.expect("a current page");
        let mut still_right = Rendered::unchanged(&served);
        still_right.revalidate = Some(Duration::from_secs(7));
        still_right.content.headers = vec![("x-seen".into(), "twice".into())];
        Ok(still_right.into())
    });
    assert!(matches!(outcome.await, Outcome::Unchanged(_)));
    let meta = site.pages.store().lookup(&site.page).await.expect("no error").meta.expect("a page");
    assert_eq!((meta.generation.generated_at, meta.generation.revalidate_seconds), (NOW + 100, 7));
    assert_eq!(meta.generation.content.headers, [("x-seen".to_owned(), "twice".to_owned())]);
    assert!(meta.generation.content.digest.is_some());
    assert_eq!(meta.version, Some(1), "the pointer did not move");
    assert_eq!(site.body().await.as_deref(), Some("same"));
}

#[tokio::test(start_paused = true)]
async fn a_renderer_cannot_report_a_missing_page_as_unchanged() {
    let site = Site::new();
    let policy = Policy::every(Duration::from_secs(60));
    let render = |_| async {
        let mut nothing = Rendered::html("");
        nothing.bytes = None;
        Ok(nothing)
    };
    let error = site.pages.regenerate(&site.page, &policy, render).await.expect_err("there is no page");
    assert_eq!(error.to_string(), "/ was rendered as unchanged, but there is no page yet");
    let next = site.pages.store().try_acquire(&site.page).await.expect("no error");
    assert!(matches!(next, Acquire::Granted(_)), "the lease was released");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_must_not_be_cached_changes_nothing() {
    let site = Site::new();
    assert!(matches!(site.regenerate("good", Duration::ZERO).await, Ok(Outcome::Published(_))));
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(regenerate_with(&site, |_| async { Ok(Render::Declined) }).await, Outcome::Declined);
    assert_eq!(site.body().await.as_deref(), Some("good"));
    assert!(matches!(site.regenerate("better", Duration::ZERO).await, Ok(Outcome::Published(_))));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_its_renderer_invalidates_must_not_be_served() {
    let site = Site::new();
    assert_eq!(
        regenerate_with(&site, |_| async { Ok(Render::Invalidate) }).await,
        Outcome::Declined,
        "there is no page"
    );
    assert!(matches!(site.regenerate("good", Duration::ZERO).await, Ok(Outcome::Published(_))));
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(regenerate_with(&site, |_| async { Ok(Render::Invalidate) }).await, Outcome::Invalidated);
    let view = site.pages.store().lookup(&site.page).await.expect("no error");
    assert!(view.lock.is_none() && view.meta.expect("a page").must_not_serve);
    assert!(site.body().await.is_none());
    assert!(matches!(site.regenerate("good again", Duration::ZERO).await, Ok(Outcome::Published(_))));
    assert_eq!(site.body().await.as_deref(), Some("good again"));
}

#[tokio::test(start_paused = true)]
async fn a_renderer_does_not_invalidate_what_another_worker_published() {
    for text in ["new", "old"] {
        let site = Site::new();
        assert!(matches!(site.regenerate("old", Duration::ZERO).await, Ok(Outcome::Published(_))));
        tokio::time::advance(Duration::from_secs(100)).await;
        let outcome = regenerate_with(&site, |_| async {
            // This deletes the lease of the render, which detects it at its next heartbeat.
            site.pages.store().invalidate(&site.page, InvalidationMode::Soft).await.expect("no error");
            let outcome = site.regenerate(text, Duration::ZERO).await;
            assert!(matches!(outcome, Ok(Outcome::Published(_) | Outcome::Unchanged(_))));
            Ok(Render::Invalidate)
        });
        assert_eq!(outcome.await, Outcome::Declined);
        assert_eq!(site.body().await.as_deref(), Some(text));
        let meta = site.pages.store().lookup(&site.page).await.expect("no error").meta.expect("a page");
        assert!(!meta.must_not_serve && meta.generation.revalidate_seconds > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_tag_was_invalidated_is_rendered_again_within_its_interval() {
    let site = Site::new();
    let tagged = |body: &'static str| async move {
        let mut page = Rendered::html(body);
        page.content.tags = vec!["news".into()];
        Ok(page.into())
    };
    assert!(matches!(regenerate_with(&site, |_| tagged("one")).await, Outcome::Published(_)));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(matches!(regenerate_with(&site, |_| tagged("two")).await, Outcome::AlreadyFresh(_)));
    site.pages.store().invalidate_tag(&Tag::new("news").expect("a tag"), None).await.expect("no error");
    tokio::time::advance(Duration::from_secs(3)).await;
    assert!(matches!(regenerate_with(&site, |_| tagged("two")).await, Outcome::Published(_)));
    assert!(matches!(regenerate_with(&site, |_| tagged("three")).await, Outcome::AlreadyFresh(_)));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_executed_once_and_can_be_retried_after_a_failure() {
    let site = Site::new();
    let policy = Policy::every(Duration::ZERO);
    let request = async |hash: &str, result: Result<&'static str, &'static str>| {
        let render = |_| async move { result.map(Rendered::html).map_err(RenderError::from) };
        site.pages
            .regenerate_once(&site.page, &policy, &IdempotentRequest::new("order-7", hash), render)
            .await
    };
    let failed = request("h", Err("the origin is down")).await.expect_err("it fails");
    assert_eq!(failed.kind(), Kind::Render);
    let Ok(Outcome::Published(page)) = request("h", Ok("paid")).await else { panic!("it can be retried") };
    let replayed = Outcome::Replayed { s3_key: Some(page.s3_key) };
    assert_eq!(request("h", Ok("paid twice")).await.expect("no error"), replayed);
    assert_eq!(request("other", Ok("paid")).await.expect("no error"), Outcome::OtherRequest);
    assert_eq!(site.body().await.as_deref(), Some("paid"));
}

/// Executes one request with a render that takes this long.
async fn pay(site: &Site, takes: Duration) -> Outcome {
    let (policy, request) = (Policy::every(Duration::from_secs(60)), IdempotentRequest::new("order-7", "h"));
    let render = |_| async move {
        tokio::time::sleep(takes).await;
        Ok(Rendered::html("paid"))
    };
    site.pages.regenerate_once(&site.page, &policy, &request, render).await.expect("no error")
}

#[tokio::test(start_paused = true)]
async fn a_request_that_another_worker_executes_is_in_progress() {
    let site = Site::new();
    let second = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        pay(&site, Duration::ZERO).await
    };
    let (first, second) = tokio::join!(pay(&site, 2 * LEASE), second);
    assert!(matches!(first, Outcome::Published(_)), "{first:?}");
    assert_eq!(second, Outcome::InProgress { until: Some(NOW + 300) });
    assert!(matches!(pay(&site, Duration::ZERO).await, Outcome::Replayed { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_lease_was_lost_can_be_retried_at_once() {
    let site = Site::new();
    let fence = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        site.pages.store().invalidate(&site.page, InvalidationMode::Soft).await.expect("no error")
    };
    // Detected by the publish, and by a heartbeat.
    for takes in [Duration::from_secs(2), 2 * LEASE] {
        let (lost, _) = tokio::join!(pay(&site, takes), fence());
        assert_eq!(lost, Outcome::Lost);
    }
    assert!(
        matches!(pay(&site, Duration::ZERO).await, Outcome::Published(_)),
        "it is not in progress any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_publish_releases_the_lease() {
    let site = Site::new();
    site.table.script(&[Fate::Pass, Fate::Deny]);
    let error = site.regenerate("one", Duration::ZERO).await.expect_err("the publish is rejected");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(matches!(site.regenerate("one", Duration::ZERO).await, Ok(Outcome::Published(_))));
}

#[tokio::test(start_paused = true)]
async fn a_pinned_page_is_not_regenerated_for_an_earlier_reason() {
    let site = Site::new();
    let policy = Policy::every(Duration::from_secs(60)).with_history(History::Versions);
    for body in ["good", "bad"] {
        assert!(matches!(site.regenerate(body, Duration::ZERO).await, Ok(Outcome::Published(_))));
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    let store = site.pages.store();
    let versions = store.versions(&site.page, 10).await.expect("no error");
    let back = store.roll_back(&site.page, &versions[1].0, Duration::from_secs(3600)).await;
    assert_eq!(back.expect("no error"), RolledBack::Done);
    let (pinned, _) = site.pages.read(&site.page).await.expect("no error").expect("a page");
    for reason in [
        RegenerateReason::OtherDeployment("another".into()),
        RegenerateReason::EarlyRefresh(pinned.generation.generated_at),
    ] {
        let render = |_| async { Ok(Rendered::html("bad")) };
        let outcome = site.pages.regenerate_for(&site.page, &policy, &reason, render).await;
        assert!(matches!(outcome, Ok(Outcome::AlreadyFresh(_))), "{reason:?}: {outcome:?}");
    }
    assert_eq!(site.body().await.as_deref(), Some("good"));
    let broken = RegenerateReason::BodyMissing(pinned.generation.s3_key);
    let render = |_| async { Ok(Rendered::html("better")) };
    let outcome = site.pages.regenerate_for(&site.page, &policy, &broken, render).await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))), "there is no body to serve");
}
