//! Garbage collection with stores that fail, and with unsafe options.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, future, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use tabletheory::{Faults, Faulty, ManualClock, MemoryTable, SeededRandom, Timestamp};

use super::options::{MAX_BATCH, MAX_FAILURES_DESCRIBED};
use super::*;
use crate::protocol::{Content, LeaseTerms};
use crate::{Bodies, History, Kind, Outcome, PageKey, PageStore, Policy, Rendered, Retention};

/// Long after all objects that a test stores, whose times come from the clock of the machine.
const NOW: Timestamp = Timestamp::from_seconds(4_102_444_800);

/// A store in memory in which every `fail_each`-th delete fails, and the first listing fails after `list_most` objects.
#[derive(Debug)]
struct Failing {
    objects: InMemory,
    deletes: Arc<AtomicUsize>,
    fail_each: usize,
    list_most: AtomicUsize,
}

impl std::fmt::Display for Failing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("failing")
    }
}

fn broken() -> object_store::Error {
    object_store::Error::Generic { store: "failing", source: "the disk is on fire".into() }
}

#[async_trait::async_trait]
impl ObjectStore for Failing {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.objects.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.objects.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let (deletes, fail_each) = (Arc::clone(&self.deletes), self.fail_each);
        let succeeding = paths.filter(move |_| {
            future::ready(!deletes.fetch_add(1, Ordering::SeqCst).is_multiple_of(fail_each))
        });
        let failure = stream::once(future::ready(Err(broken())));
        self.objects.delete_stream(succeeding.boxed()).chain(failure).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        match self.list_most.swap(usize::MAX, Ordering::SeqCst) {
            usize::MAX => self.objects.list(prefix),
            most => {
                let failure = stream::once(future::ready(Err(broken())));
                self.objects.list(prefix).take(most).chain(failure).boxed()
            }
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

/// Pages with this many orphans, in a store that fails.
async fn orphans(count: usize, fail_each: usize, list_most: usize) -> Pages {
    let table = MemoryTable::with_clock(Arc::new(ManualClock::at(NOW)));
    let objects = Failing {
        objects: InMemory::new(),
        deletes: Arc::new(1.into()),
        fail_each,
        list_most: list_most.into(),
    };
    let mut bodies = Bodies::memory();
    bodies.objects = Arc::new(objects);
    let random = SeededRandom::new(1);
    for number in 0..count {
        let page = PageKey::new(format!("/{number}")).expect("a page");
        let stored = NOW - Duration::from_secs(10 * 86_400);
        bodies.put(&page, stored, "orphan".into(), &Content::default(), &random).await.expect("stored");
    }
    Pages::new(PageStore::new(Arc::new(table)), bodies)
}

fn proceed(_: &GcReport) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[tokio::test]
async fn a_failed_delete_is_reported_and_does_not_stop_the_rest() {
    let pages = orphans(100, 4, usize::MAX).await;
    let report = pages.gc(&GcOptions::default(), proceed).await.expect("a report");
    assert_eq!((report.orphans, report.failed, report.bytes), (75, 25, 75 * 6));
    assert!(report.finished);
    assert_eq!(report.failures.len(), 1);
    assert!(report.failures[0].contains("the disk is on fire"), "{:?}", report.failures);
    let again = pages.gc(&GcOptions::default(), proceed).await.expect("a report");
    assert_eq!(again.objects, 25, "the next run tries them again");
}

#[tokio::test]
async fn the_body_of_a_version_that_may_still_exist_is_not_deleted() {
    let clock = Arc::new(ManualClock::at(NOW));
    let table = Arc::new(Faulty::new(MemoryTable::with_clock(clock.clone()), 1, Faults::default()));
    let pages = Pages::new(PageStore::new(table.clone()), Bodies::memory());
    let page = PageKey::new("/").expect("a page");
    let policy = Policy::every(Duration::ZERO).with_history(History::Versions);
    for body in ["old", "new"] {
        let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html(body)) }).await;
        assert!(matches!(outcome, Ok(Outcome::Published(_))));
        clock.advance(Duration::from_secs(2 * 86_400));
    }
    let versions = pages.store.versions(&page, 10).await.expect("no error");
    let old = &versions[1].1.generation.s3_key;
    let how = GcOptions { retention: Some(Retention::newest(0)), ..GcOptions::default() };
    table.set_faults(Faults { lose_request: 1.0, ..Faults::default() });
    let report = pages.gc(&how, proceed).await.expect("a report");
    assert_eq!((report.versions, report.failed, report.orphans), (0, 1, 0));
    assert!(pages.bodies.get(old, None).await.expect("no error").is_some());
    table.set_faults(Faults::default());
    let report = pages.gc(&how, proceed).await.expect("a report");
    assert_eq!((report.versions, report.failed, report.orphans), (1, 0, 1));
}

#[tokio::test]
async fn a_run_stops_after_too_many_failures() {
    let pages = orphans(3 * MAX_BATCH, 1, usize::MAX).await;
    let report = pages.gc(&GcOptions::default(), proceed).await.expect("a report");
    assert_eq!(report.orphans, 0);
    assert!(report.failed <= 2 * MAX_BATCH as u64, "the third batch is not tried");
    assert!(!report.finished);
    assert!(report.failures.len() <= MAX_FAILURES_DESCRIBED);
}

#[tokio::test]
async fn a_failed_listing_can_be_resumed() {
    let pages = orphans(2 * MAX_BATCH, usize::MAX, MAX_BATCH + MAX_BATCH / 2).await;
    let mut resume = None;
    let how = GcOptions::default();
    let failed = pages.gc(&how, |so_far| {
        resume.clone_from(&so_far.resume);
        ControlFlow::Continue(())
    });
    assert_eq!(failed.await.expect_err("the listing fails").kind(), Kind::Unavailable);
    let resume = resume.expect("the first batch was complete by then");
    let again = GcOptions { resume: Some(resume), ..GcOptions::default() };
    let rest = pages.gc(&again, proceed).await.expect("the listing works again");
    assert!(rest.finished);
    assert!(
        (MAX_BATCH..=MAX_BATCH + 1).contains(&usize::try_from(rest.objects).expect("few")),
        "{}",
        rest.objects
    );
    let left = pages.gc(&GcOptions::default(), proceed).await.expect("a report");
    assert_eq!(left.objects, 0, "no orphan is left");
}

#[tokio::test]
async fn unsafe_options_are_rejected() {
    let store = |terms| PageStore::new(Arc::new(MemoryTable::new())).with_lease_terms(terms);
    let rejection = async |how: GcOptions| {
        let terms = LeaseTerms::lasting(Duration::from_secs(90));
        let error = Pages::new(store(terms), Bodies::memory()).gc(&how, proceed).await;
        let error = error.expect_err("it is rejected");
        assert_eq!(error.kind(), Kind::Invalid);
        error.to_string()
    };
    let grace = |seconds| GcOptions { grace: Duration::from_secs(seconds), ..GcOptions::default() };
    assert_eq!(
        rejection(grace(689)).await,
        "a grace period of 689 s is too short: it must be at least 690 s, for a lease of 90 s, and readers and \
         requests that are delayed by up to 600 s"
    );
    let many = Retention::newest(MAX_RETAINED_VERSIONS + 1);
    let text = rejection(GcOptions { retention: Some(many), ..GcOptions::default() }).await;
    assert!(text.starts_with("at most 10000 versions"), "{text}");
    let text = rejection(GcOptions { resume: Some("elsewhere".into()), ..GcOptions::default() }).await;
    assert!(text.contains("not the S3 key of a body under isr/"), "{text}");
    let terms = LeaseTerms::lasting(Duration::from_secs(90));
    assert!(Pages::new(store(terms), Bodies::memory()).gc(&grace(690), proceed).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_run_pauses_after_each_batch() {
    let pages = orphans(250, usize::MAX, usize::MAX).await;
    let pause = Duration::from_secs(1);
    let how = GcOptions { batch: 100, pause, ..GcOptions::default() };
    let (began, mut before) = (tokio::time::Instant::now(), 0);
    let report = pages.gc(&how, |so_far| {
        assert!(so_far.orphans - before <= 100, "{} at once", so_far.orphans - before);
        before = so_far.orphans;
        ControlFlow::Continue(())
    });
    assert_eq!(report.await.expect("a report").orphans, 250);
    assert!(began.elapsed() >= 3 * pause, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn many_bodies_of_one_page_are_deleted_in_batches_too() {
    const BODIES: u32 = 1000;
    let pages = orphans(0, usize::MAX, usize::MAX).await;
    let (page, random) = (PageKey::new("/").expect("a page"), SeededRandom::new(2));
    for age in 1..=BODIES {
        let stored = NOW - age * Duration::from_secs(86_400);
        let stored = pages.bodies.put(&page, stored, "orphan".into(), &Content::default(), &random).await;
        stored.expect("stored");
    }
    let pause = Duration::from_secs(1);
    let how = GcOptions { batch: 10, pause, grace: Duration::from_secs(3600), ..GcOptions::default() };
    let began = tokio::time::Instant::now();
    assert_eq!(pages.gc(&how, proceed).await.expect("a report").orphans, u64::from(BODIES));
    // It pauses after each batch that it lists, and after each batch that it deletes.
    assert!(began.elapsed() >= BODIES / 10 * 2 * pause - pause, "{:?}", began.elapsed());
}
