//! Stores that fail, and settings that could not be safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use tabletheory::{Faults, Faulty, ManualClock, MemoryTable, SeededRandom};

use super::*;
use crate::protocol::{Content, LeaseTerms};
use crate::{Bodies, History, Kind, Outcome, PageKey, PageStore, Policy, Rendered};

/// Long after all objects that a test stores, whose times the machine's clock tells.
const NOW: Timestamp = Timestamp::from_seconds(4_102_444_800);

/// A store in memory in which one of so many deletes fails, and the first listing after so many objects.
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
        let lucky = paths.filter(move |_| {
            future::ready(!deletes.fetch_add(1, Ordering::SeqCst).is_multiple_of(fail_each))
        });
        let failure = stream::once(future::ready(Err(broken())));
        self.objects.delete_stream(lucky.boxed()).chain(failure).boxed()
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

/// Pages with so many orphans in a store that fails.
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

fn go_on(_: &GcReport) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[tokio::test]
async fn what_cannot_be_deleted_is_told_and_does_not_stop_the_rest() {
    let pages = orphans(100, 4, usize::MAX).await;
    let collected = pages.gc(&GcOptions::default(), go_on).await.expect("a report");
    assert_eq!((collected.orphans, collected.failed, collected.bytes), (75, 25, 75 * 6));
    assert!(collected.finished);
    assert_eq!(collected.failures.len(), 1);
    assert!(collected.failures[0].contains("the disk is on fire"), "{:?}", collected.failures);
    let again = pages.gc(&GcOptions::default(), go_on).await.expect("a report");
    assert_eq!(again.objects, 25, "they are tried again by the next run");
}

#[tokio::test]
async fn the_body_of_a_version_that_may_still_be_there_stays() {
    let clock = Arc::new(ManualClock::at(NOW));
    let table = Arc::new(Faulty::new(MemoryTable::with_clock(clock.clone()), 1, Faults::NONE));
    let pages = Pages::new(PageStore::new(table.clone()), Bodies::memory());
    let page = PageKey::new("/").expect("a page");
    let policy = Policy::every(Duration::ZERO).with_history(History::Versions);
    for body in ["old", "new"] {
        let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html(body)) }).await;
        assert!(matches!(outcome, Ok(Outcome::Published(_))));
        clock.advance(Duration::from_secs(2 * 86_400));
    }
    let versions = pages.store.versions(&page, 10).await.expect("an answer");
    let old = &versions[1].1.generation.s3_key;
    let none = Retention { versions: 0, oldest: None };
    let how = GcOptions { retention: Some(none), ..GcOptions::default() };
    table.set_faults(Faults { lose_request: 1.0, ..Faults::NONE });
    let collected = pages.gc(&how, go_on).await.expect("a report");
    assert_eq!((collected.versions, collected.failed, collected.orphans), (0, 1, 0));
    assert!(pages.bodies.get(old, None).await.expect("an answer").is_some());
    table.set_faults(Faults::NONE);
    let collected = pages.gc(&how, go_on).await.expect("a report");
    assert_eq!((collected.versions, collected.failed, collected.orphans), (1, 0, 1));
}

#[tokio::test]
async fn a_store_that_deletes_nothing_is_not_asked_for_ever() {
    let pages = orphans(3 * BATCH, 1, usize::MAX).await;
    let collected = pages.gc(&GcOptions::default(), go_on).await.expect("a report");
    assert_eq!(collected.orphans, 0);
    assert!(collected.failed <= 2 * BATCH as u64, "the third batch is not tried");
    assert!(!collected.finished);
    assert!(collected.failures.len() <= FAILURES_TOLD);
}

#[tokio::test]
async fn a_listing_that_fails_can_be_taken_up_where_it_was() {
    let pages = orphans(2 * BATCH, usize::MAX, BATCH + BATCH / 2).await;
    let mut resume = None;
    let how = GcOptions::default();
    let failed = pages.gc(&how, |so_far| {
        resume.clone_from(&so_far.resume);
        ControlFlow::Continue(())
    });
    assert_eq!(failed.await.expect_err("the listing fails").kind(), Kind::Unavailable);
    let resume = resume.expect("the first batch was done by then");
    let again = GcOptions { resume: Some(resume), ..GcOptions::default() };
    let rest = pages.gc(&again, go_on).await.expect("the listing works again");
    assert!(rest.finished);
    assert!((BATCH..=BATCH + 1).contains(&usize::try_from(rest.objects).expect("few")), "{}", rest.objects);
    let left = pages.gc(&GcOptions::default(), go_on).await.expect("a report");
    assert_eq!(left.objects, 0, "none was forgotten");
}

#[tokio::test]
async fn settings_that_could_not_be_safe_are_refused() {
    let store = |terms| PageStore::new(Arc::new(MemoryTable::new())).with_lease_terms(terms);
    let refusal = async |how: GcOptions| {
        let terms = LeaseTerms { duration: Duration::from_secs(90), ..LeaseTerms::default() };
        let error = Pages::new(store(terms), Bodies::memory()).gc(&how, go_on).await;
        let error = error.expect_err("it is refused");
        assert_eq!(error.kind(), Kind::Invalid);
        error.to_string()
    };
    let grace = |seconds| GcOptions { grace: Duration::from_secs(seconds), ..GcOptions::default() };
    assert_eq!(
        refusal(grace(689)).await,
        "a grace period of 689 s is too short: a lease of 90 s, and readers and requests that are 600 s behind, \
         need at least 690 s"
    );
    let many = Retention { versions: MOST_VERSIONS + 1, oldest: None };
    let words = refusal(GcOptions { retention: Some(many), ..GcOptions::default() }).await;
    assert!(words.starts_with("at most 10000 versions"), "{words}");
    let words = refusal(GcOptions { resume: Some("elsewhere".into()), ..GcOptions::default() }).await;
    assert!(words.contains("no body under isr/"), "{words}");
    let terms = LeaseTerms { duration: Duration::from_secs(90), ..LeaseTerms::default() };
    assert!(Pages::new(store(terms), Bodies::memory()).gc(&grace(690), go_on).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_collection_that_is_told_to_rest_does_so_after_each_batch() {
    let pages = orphans(250, usize::MAX, usize::MAX).await;
    let pause = Duration::from_secs(1);
    let how = GcOptions { batch: 100, pause, ..GcOptions::default() };
    let (began, mut before) = (tokio::time::Instant::now(), 0);
    let collected = pages.gc(&how, |so_far| {
        assert!(so_far.orphans - before <= 100, "{} at once", so_far.orphans - before);
        before = so_far.orphans;
        ControlFlow::Continue(())
    });
    assert_eq!(collected.await.expect("a report").orphans, 250);
    assert!(began.elapsed() >= 3 * pause, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_many_bodies_of_one_page_go_batch_by_batch_too() {
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
    assert_eq!(pages.gc(&how, go_on).await.expect("a report").orphans, u64::from(BODIES));
    // It rests as often while they are listed, and again while they are deleted.
    assert!(began.elapsed() >= BODIES / 10 * 2 * pause - pause, "{:?}", began.elapsed());
}
