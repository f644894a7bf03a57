//! Pages with a controlled clock, and bodies in every store.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use facetheory::protocol::Content;
use facetheory::{
    Bodies, GcOptions, GcReport, History, Outcome, PageKey, PageStore, Pages, Policy, Rendered, Retention,
};
use tabletheory::{
    Clock, Item, Key, ManualClock, MemoryTable, Random, SeededRandom, SqliteSettings, SqliteTable,
    SystemRandom, Table, Timestamp, Txn, Write,
};

use crate::concurrent::{ConcurrentTable, concurrent_table};
use crate::support::server_variable;

/// Object stores use their own clocks. By this clock their times are long ago, so that the time in an S3 key decides.
pub(crate) const START: Timestamp = Timestamp::from_seconds(4_102_444_800);
pub(crate) const GRACE: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) pages: Pages,
    pub(crate) bodies: Bodies,
    pub(crate) table: Arc<ConcurrentTable>,
    pub(crate) clock: Arc<ManualClock>,
    random: SeededRandom,
    pub(crate) directory: Option<tempfile::TempDir>,
}

fn s3() -> Bodies {
    let credentials = Credentials::new(
        server_variable("AWS_ACCESS_KEY_ID"),
        server_variable("AWS_SECRET_ACCESS_KEY"),
        None,
        None,
        "tests",
    );
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(server_variable("FACETHEORY_TEST_S3_ENDPOINT"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build();
    let prefix = format!("test-{:x}", SystemRandom.next_u64());
    Bodies::s3(&config, &server_variable("FACETHEORY_TEST_S3_BUCKET"), &prefix).expect("a store")
}

impl Test {
    /// In memory, in files, and in S3.
    pub(crate) fn on_each_store() -> [Test; 3] {
        let clock = || Arc::new(ManualClock::at(START));
        let (one, two, three) = (clock(), clock(), clock());
        let directory = tempfile::tempdir().expect("a directory");
        let settings = SqliteSettings::default().sweep(None);
        let sqlite = SqliteTable::open_with(directory.path().join("table.db"), &settings, two.clone());
        let files = Bodies::files(directory.path().join("bodies")).expect("a store");
        [
            Test::memory_on(one),
            Test::new("files", Arc::new(sqlite.expect("a file")), files, two, Some(directory)),
            Test::new("s3", Arc::new(MemoryTable::with_clock(three.clone())), s3(), three, None),
        ]
    }

    pub(crate) fn memory() -> Test {
        Test::memory_on(Arc::new(ManualClock::at(START)))
    }

    fn memory_on(clock: Arc<ManualClock>) -> Test {
        Test::new("memory", Arc::new(MemoryTable::with_clock(clock.clone())), Bodies::memory(), clock, None)
    }

    fn new(
        name: &'static str,
        table: Arc<dyn Table>,
        bodies: Bodies,
        clock: Arc<ManualClock>,
        directory: Option<tempfile::TempDir>,
    ) -> Test {
        let table = Arc::new(concurrent_table(table));
        let store = PageStore::new(table.clone()).with_random(Arc::new(SeededRandom::new(7)));
        let pages = Pages::new(store, bodies.clone()).with_random(Arc::new(SeededRandom::new(8)));
        Test { name, pages, bodies, table, clock, random: SeededRandom::new(9), directory }
    }

    pub(crate) fn store(&self) -> &PageStore {
        self.pages.store()
    }

    /// Renders and publishes a page, and returns the S3 key of its body.
    pub(crate) async fn publish(&self, page: &PageKey, body: &str, history: History) -> String {
        let policy = Policy::every(Duration::ZERO).with_history(history);
        let body = body.to_owned();
        let outcome = self.pages.regenerate(page, &policy, |_| async { Ok(Rendered::html(body)) }).await;
        match outcome.expect(self.name) {
            Outcome::Published(generation) => generation.s3_key,
            other => panic!("{}: {other:?}", self.name),
        }
    }

    /// Stores a body that no row names.
    pub(crate) async fn orphan(&self, page: &PageKey, body: &str) -> String {
        let (now, content) = (self.clock.now(), Content::default());
        let stored = self.bodies.put(page, now, body.to_owned().into(), &content, &self.random).await;
        stored.expect(self.name).s3_key
    }

    pub(crate) async fn put(&self, key: Key, item: Item) {
        let put = Txn::from(Write::put(key, item));
        assert!(self.table.commit(&put).await.expect(self.name).is_done());
    }

    pub(crate) async fn has(&self, s3_key: &str) -> bool {
        self.bodies.get(s3_key, None).await.expect(self.name).is_some()
    }

    pub(crate) async fn gc(&self, how: &GcOptions) -> GcReport {
        self.pages.gc(how, |_| ControlFlow::Continue(())).await.expect(self.name)
    }
}

pub(crate) fn page(path: &str) -> PageKey {
    PageKey::new(path).expect("a page")
}

/// The default options of the tests.
pub(crate) fn how() -> GcOptions {
    let mut options = GcOptions::default();
    (options.grace, options.memory) = (GRACE, 65_536);
    options
}

/// Retains this many versions of each page besides the current one.
pub(crate) fn retaining(versions: usize) -> GcOptions {
    let mut options = how();
    options.retention = Some(Retention::newest(versions));
    options
}

/// A dry run with these options.
pub(crate) fn dry_run(mut options: GcOptions) -> GcOptions {
    options.dry_run = true;
    options
}
