//! Recipe B as other services write it: `META` may be only a pointer, and its pointer may move without its copy. On every
//! backend, DynamoDB included.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use facetheory::protocol::{Freshness, Meta};
use facetheory::testing::CountedTable;
use facetheory::{
    Bodies, History, Invalidated, InvalidationMode, Listing, Outcome, PageKey, PageStore, Pages, Policy,
    Rendered, RolledBack, Tag,
};
use tabletheory::{
    Attr, Clock as _, Consistency, DynamoSettings, DynamoTable, Item, Key, ManualClock, MemoryTable,
    Random as _, SqliteSettings, SqliteTable, SystemClock, SystemRandom, Table, Txn, Update, Value, Write,
};
use tokio::sync::OnceCell;

use crate::support::server_variable;

const MINUTE: Duration = Duration::from_secs(60);

/// Pages in one of the tables, and another service that writes to it.
struct Site {
    name: &'static str,
    table: Arc<dyn Table>,
    clock: Arc<ManualClock>,
    pages: Pages,
    page: PageKey,
    _directory: Option<tempfile::TempDir>,
}

impl Site {
    async fn on_each_table() -> [Site; 3] {
        // The time of the machine: DynamoDB deletes rows whose `ttl` has passed by its own clock.
        let clock = || Arc::new(ManualClock::at(SystemClock.now()));
        let (one, two, three) = (clock(), clock(), clock());
        let directory = tempfile::tempdir().expect("a directory");
        let settings = SqliteSettings::default().sweep(None);
        let sqlite = SqliteTable::open_with(directory.path().join("table.db"), &settings, two.clone());
        let dynamodb = dynamodb().await.with_clock(three.clone());
        [
            Site::new("memory", Arc::new(MemoryTable::with_clock(one.clone())), one, None),
            Site::new("sqlite", Arc::new(sqlite.expect("a file")), two, Some(directory)),
            Site::new("dynamodb", Arc::new(dynamodb), three, None),
        ]
    }

    fn new(
        name: &'static str,
        table: Arc<dyn Table>,
        clock: Arc<ManualClock>,
        directory: Option<tempfile::TempDir>,
    ) -> Site {
        let pages = Pages::new(PageStore::new(table.clone()), Bodies::memory());
        // All tests share one table on DynamoDB.
        let page = PageKey::new(format!("/{:x}", SystemRandom.next_u64())).expect("a page");
        Site { name, table, clock, pages, page, _directory: directory }
    }

    fn now(&self) -> i64 {
        self.clock.now().seconds()
    }

    fn version(&self, id: &str) -> Key {
        self.page.version(id)
    }

    async fn put(&self, key: Key, item: Item) {
        let put = Txn::from(Write::put(key, item));
        assert!(self.table.commit(&put).await.expect("a put").is_done(), "{}", self.name);
    }

    /// Publishes a version with an own body as other services do: the version, then the pointer.
    async fn swap_by_other_service(&self, id: &str, attributes: &[(&str, Value)]) {
        let (now, content) = (self.clock.now(), Rendered::html("").content);
        let bytes = id.to_owned().into();
        let body = self.pages.bodies().put(&self.page, now, bytes, &content, &SystemRandom).await;
        let body = body.expect("a body").s3_key;
        let mut version = Item::from([("s3_key", body.into()), ("generated_at", self.now().into())]);
        attributes.iter().for_each(|(name, value)| version.set(*name, value.clone()));
        let pointer = Update::new([
            Attr::<String>::new("current_sk").set(format!("VER#{id}")),
            Attr::<String>::new("theirs").set("kept"),
        ]);
        let swap = Txn::new([
            Write::put(self.version(id), version).when(Attr::<String>::new("pk").absent()),
            Write::update(self.page.meta(), pointer),
        ]);
        assert!(self.table.commit(&swap).await.expect("a swap").is_done(), "{}", self.name);
    }

    /// Publishes a version as the programs of `interop/` do: they also update the copy in `META`.
    async fn publish_by_other_service(&self, id: &str) {
        self.swap_by_other_service(id, &[("revalidate_seconds", 600.into())]).await;
        let version = self.row(&self.version(id)).await.expect("a version");
        let copied = ["s3_key", "generated_at", "revalidate_seconds"];
        let copy = copied.map(|name| Attr::<Value>::new(name).set(version.get(name).expect(name).clone()));
        let copy = Txn::from(Write::update(self.page.meta(), Update::new(copy)));
        assert!(self.table.commit(&copy).await.expect("a copy").is_done(), "{}", self.name);
    }

    /// Publishes two versions and rolls back to the first one, which is pinned for an hour.
    async fn pin(&self) {
        for body in ["good", "bad"] {
            assert!(matches!(self.regenerate(body, History::Versions).await, Outcome::Published(_)));
            self.clock.advance(MINUTE);
        }
        let versions = self.pages.store().versions(&self.page, 2).await.expect("no error");
        let done = self.pages.store().roll_back(&self.page, &versions[1].0, 60 * MINUTE).await;
        assert_eq!(done.expect("no error"), RolledBack::Done, "{}", self.name);
        assert_eq!(self.served().await, (Freshness::Fresh, Some("good".into())), "{}", self.name);
        self.clock.advance(Duration::from_secs(3));
    }

    async fn invalidate(&self, mode: InvalidationMode) -> Invalidated {
        self.pages.store().invalidate(&self.page, mode).await.expect(self.name)
    }

    async fn meta(&self) -> Option<Meta> {
        let page = self.page.clone().with_interval(MINUTE);
        self.pages.store().lookup(&page).await.expect("no error").meta
    }

    /// The freshness of the page, and its text unless it must not be served.
    async fn served(&self) -> (Freshness, Option<String>) {
        let meta = self.meta().await.expect("a page");
        let read = self.pages.read(&self.page).await.expect("no error");
        let text = read.map(|(_, body)| String::from_utf8(body.bytes.to_vec()).expect("text"));
        (meta.freshness(self.clock.now()), text)
    }

    async fn regenerate(&self, body: &'static str, history: History) -> Outcome {
        let policy = Policy::every(MINUTE).with_history(history);
        let render = |_| async move { Ok(Rendered::html(body)) };
        self.pages.regenerate(&self.page, &policy, render).await.expect(self.name)
    }

    async fn row(&self, key: &Key) -> Option<Item> {
        self.table.get(key, Consistency::Strong).await.expect("a read")
    }
}

async fn dynamodb() -> DynamoTable {
    static CREATED: OnceCell<String> = OnceCell::const_new();
    let open = |name: &str| {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "tests"));
        let settings =
            DynamoSettings::default().endpoint(server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
        DynamoTable::new(&Client::from_conf(config.build()), name, settings).expect("valid settings")
    };
    let create = || async {
        let name = format!("facetheory-pointer-{:x}", SystemRandom.next_u64());
        open(&name).create_table_if_missing().await.expect("a new table");
        name
    };
    open(CREATED.get_or_init(create).await)
}

#[tokio::test]
async fn a_page_that_is_only_a_pointer_is_served_from_its_version() {
    for site in Site::on_each_table().await {
        site.swap_by_other_service("7", &[("etag", "\"7\"".into())]).await;
        let meta = site.meta().await.expect("a page");
        assert_eq!(meta.generation.revalidate_seconds, 60, "neither row has an interval: the policy's");
        assert_eq!((meta.generation.etag.as_deref(), meta.version), (Some("\"7\""), None));
        assert_eq!(site.served().await, (Freshness::Fresh, Some("7".into())), "{}", site.name);
        assert!(matches!(site.regenerate("x", History::Latest).await, Outcome::AlreadyFresh(_)));
        let listed = site.pages.store().list(&Listing::new(1000)).await.expect("no error").entries;
        let entry = listed.iter().find(|entry| entry.pk == site.page.pk()).expect("it is listed");
        assert_eq!(entry.meta.as_ref().map(|meta| &meta.generation.s3_key), Some(&meta.generation.s3_key));
    }
}

#[tokio::test]
async fn publishing_to_a_pointer_moves_it_and_keeps_the_attributes_of_other_services() {
    for history in [History::Latest, History::Versions] {
        for site in Site::on_each_table().await {
            let name = site.name;
            site.swap_by_other_service("7", &[("revalidate_seconds", 60.into())]).await;
            site.clock.advance(MINUTE);
            assert!(matches!(site.regenerate("ours", history).await, Outcome::Published(_)), "{name}");
            let row = site.row(&site.page.meta()).await.expect("META");
            assert_eq!(row.get("theirs"), Some(&"kept".into()), "{name}");
            assert_eq!(row.get("version"), Some(&1.into()), "{name}");
            let meta = Meta::read(&row).expect("META repeats the version, for readers that know no versions");
            let current = meta.current_sk.expect("a pointer");
            let (version, body) =
                site.pages.read_version(&site.page, &current).await.expect("no error").expect("a version");
            assert_eq!(version.generation, meta.generation, "{name}");
            assert_eq!(body.expect("a body").bytes, "ours", "{name}");
            assert!(site.row(&site.version("7")).await.expect("their version").get("ttl").is_some());
            assert_eq!(site.served().await, (Freshness::Fresh, Some("ours".into())), "{name}");

            // Without history our own versions expire sooner than theirs.
            site.clock.advance(MINUTE);
            assert!(matches!(site.regenerate("ours again", history).await, Outcome::Published(_)), "{name}");
            let days = if history == History::Latest { 1 } else { 30 };
            let replaced = site.row(&site.page.meta().sibling(&current)).await.expect("a version");
            assert_eq!(replaced.get("ttl"), Some(&(site.now() + days * 86_400).into()), "{name} {history:?}");
            assert_eq!(site.served().await, (Freshness::Fresh, Some("ours again".into())), "{name}");
        }
    }
}

#[tokio::test]
async fn a_swap_by_another_service_replaces_the_copy_in_meta() {
    for site in Site::on_each_table().await {
        let name = site.name;
        assert!(matches!(site.regenerate("ours", History::Versions).await, Outcome::Published(_)));
        let own = site.meta().await.and_then(|meta| meta.current_sk).expect("a version");
        site.clock.advance(Duration::from_secs(30));
        site.swap_by_other_service("zz", &[]).await;
        assert_eq!(site.served().await, (Freshness::Fresh, Some("zz".into())), "{name}");
        let swapped = site.meta().await.expect("a page").generation;
        assert_eq!((swapped.generated_at, swapped.revalidate_seconds), (site.now(), 60), "{name}");
        // They roll back to a version of ours.
        let back = Update::new([Attr::<String>::new("current_sk").set(own.as_str())]);
        let back = Txn::from(Write::update(site.page.meta(), back));
        assert!(site.table.commit(&back).await.expect("an update").is_done());
        assert_eq!(site.served().await, (Freshness::Fresh, Some("ours".into())), "{name}");
        // A render with the body of the version that was swapped in only updates the times, and the pointer stays.
        site.swap_by_other_service("zzz", &[("digest", digest_of("zzz").into())]).await;
        site.clock.advance(MINUTE);
        assert!(matches!(site.regenerate("zzz", History::Latest).await, Outcome::Unchanged(_)), "{name}");
        let meta = site.meta().await.expect("a page");
        assert_eq!((meta.current_sk.as_deref(), meta.generation.generated_at), (Some("VER#zzz"), site.now()));
        assert_eq!(site.served().await, (Freshness::Fresh, Some("zzz".into())), "{name}");
    }
}

fn digest_of(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let hex: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[tokio::test]
async fn an_invalidation_applies_to_a_pointer_until_a_later_version_is_swapped_in() {
    for mode in [InvalidationMode::Soft, InvalidationMode::Hard] {
        for site in Site::on_each_table().await {
            site.swap_by_other_service("1", &[("revalidate_seconds", 600.into())]).await;
            site.clock.advance(Duration::from_secs(3));
            let invalidated = site.pages.store().invalidate(&site.page, mode).await.expect("no error");
            assert_eq!(invalidated, Invalidated::Stale);
            let expected = match mode {
                InvalidationMode::Soft => (Freshness::Stale, Some("1".to_owned())),
                InvalidationMode::Hard => (Freshness::MustNotServe, None),
            };
            assert_eq!(site.served().await, expected, "{}", site.name);
            site.clock.advance(Duration::from_secs(3));
            site.swap_by_other_service("2", &[("revalidate_seconds", 600.into())]).await;
            assert_eq!(site.served().await, (Freshness::Fresh, Some("2".into())), "{}", site.name);
        }
    }
}

#[tokio::test]
async fn a_page_that_another_service_publishes_or_swaps_is_not_pinned_any_more() {
    for updates_copy in [false, true] {
        for site in Site::on_each_table().await {
            let name = format!("{} {updates_copy}", site.name);
            site.pin().await;
            assert_eq!(site.invalidate(InvalidationMode::Soft).await, Invalidated::Pinned, "{name}");
            match updates_copy {
                false => site.swap_by_other_service("1", &[("revalidate_seconds", 600.into())]).await,
                true => site.publish_by_other_service("1").await,
            }
            assert_eq!(site.served().await, (Freshness::Fresh, Some("1".into())), "{name}");
            assert!(!site.meta().await.expect("a page").is_pinned(site.clock.now()), "{name}");
            if updates_copy {
                let listed = site.pages.store().list(&Listing::new(1000)).await.expect("no error").entries;
                let entry = listed.iter().find(|entry| entry.pk == site.page.pk()).expect("it is listed");
                assert_eq!(entry.meta.as_ref().and_then(|meta| meta.pinned_until), None, "{name}");
            }
            assert!(!site.pages.store().unpin(&site.page).await.expect("no error"), "{name}");
            assert_eq!(site.served().await, (Freshness::Fresh, Some("1".into())), "{name}");

            assert_eq!(site.invalidate(InvalidationMode::Soft).await, Invalidated::Stale, "{name}");
            assert_eq!(site.served().await, (Freshness::Stale, Some("1".into())), "{name}");
            assert_eq!(site.invalidate(InvalidationMode::Soft).await, Invalidated::Stale, "{name}");
        }
    }
}

#[tokio::test]
async fn a_tag_of_a_page_that_was_pinned_makes_a_publish_by_another_service_stale() {
    for site in Site::on_each_table().await {
        site.pin().await;
        site.publish_by_other_service("1").await;
        let page = site.page.clone().at_path("/at");
        let meta = site.meta().await.expect("a page");
        let store = site.pages.store();
        assert_eq!(store.freshness(&page, &meta).await.expect("no error"), Freshness::Fresh, "{}", site.name);
        store.invalidate_tag(&Tag::path("/at").expect("a tag"), None).await.expect("no error");
        assert_eq!(store.freshness(&page, &meta).await.expect("no error"), Freshness::Stale, "{}", site.name);
    }
}

#[tokio::test]
async fn a_publish_by_another_service_that_updates_the_copy_ends_an_invalidation() {
    for mode in [InvalidationMode::Soft, InvalidationMode::Hard] {
        for site in Site::on_each_table().await {
            let name = format!("{} {mode:?}", site.name);
            assert!(matches!(site.regenerate("ours", History::Versions).await, Outcome::Published(_)));
            site.publish_by_other_service("1").await;
            assert_eq!(site.invalidate(mode).await, Invalidated::Stale, "{name}");
            // By a clock that is not more ahead than clocks may be, and by one that is.
            site.clock.advance(Duration::from_secs(2));
            site.publish_by_other_service("2").await;
            assert_eq!(site.served().await.1.is_some(), mode == InvalidationMode::Soft, "{name}");
            site.clock.advance(Duration::from_secs(1));
            site.publish_by_other_service("3").await;
            assert_eq!(site.served().await, (Freshness::Fresh, Some("3".into())), "{name}");
            // Also in a process that has not read the version before.
            let pages = Pages::new(PageStore::new(site.table.clone()), site.pages.bodies().clone());
            let read = pages.store().lookup(&site.page).await.expect("no error").meta.expect("a page");
            assert_eq!(Some(read), site.meta().await, "{name}");
        }
    }
}

#[tokio::test]
async fn a_page_whose_clock_was_ahead_stays_hard_invalidated() {
    for site in Site::on_each_table().await {
        let ahead = Duration::from_secs(300);
        site.clock.advance(ahead);
        site.publish_by_other_service("1").await;
        site.clock.set(site.clock.now() - ahead);
        assert_eq!(site.served().await, (Freshness::Fresh, Some("1".into())), "{}", site.name);
        assert_eq!(site.invalidate(InvalidationMode::Hard).await, Invalidated::Stale, "{}", site.name);
        assert_eq!(site.served().await, (Freshness::MustNotServe, None), "{}", site.name);
    }
}

#[tokio::test]
async fn a_pointer_to_a_version_that_does_not_exist_is_rendered_again() {
    for history in [History::Latest, History::Versions] {
        for site in Site::on_each_table().await {
            let version = Value::from("not a number");
            let pointer = Item::from([("current_sk", Value::from("VER#gone")), ("version", version)]);
            site.put(site.page.meta(), pointer).await;
            assert_eq!(site.served().await, (Freshness::MustNotServe, None), "{}", site.name);
            assert!(matches!(site.regenerate("new", history).await, Outcome::Published(_)), "{}", site.name);
            assert_eq!(site.served().await, (Freshness::Fresh, Some("new".into())), "{}", site.name);
        }
    }
}

#[tokio::test]
async fn a_pointer_that_names_no_version_counts_as_absent() {
    let long = format!("VER#{}", "x".repeat(1021));
    for current_sk in ["LOCK", "META", "REQ#1", "ver#1", long.as_str()] {
        for history in [History::Latest, History::Versions] {
            for site in Site::on_each_table().await {
                let name = format!("{} {history:?} {}", site.name, &current_sk[..current_sk.len().min(9)]);
                let copy = Item::from([
                    ("s3_key", "missing.html".into()),
                    ("generated_at", (site.now() - 61).into()),
                    ("revalidate_seconds", 60.into()),
                ]);
                for mut row in [Item::new(), copy] {
                    row.set("current_sk", current_sk);
                    row.set("version", "not a number");
                    site.put(site.page.meta(), row).await;
                    let outcome = site.regenerate("new", history).await;
                    assert!(matches!(outcome, Outcome::Published(_)), "{name}: {outcome:?}");
                    assert_eq!(site.served().await, (Freshness::Fresh, Some("new".into())), "{name}");
                    let meta = site.meta().await.expect("a page");
                    assert_eq!(meta.current_sk.is_some(), history == History::Versions, "{name}");
                }
            }
        }
    }
}

#[tokio::test]
async fn versions_of_another_service_are_listed_compared_and_rolled_back_to() {
    for site in Site::on_each_table().await {
        site.swap_by_other_service("1", &[]).await;
        site.swap_by_other_service("2", &[("revalidate_seconds", 60.into())]).await;
        let listed = site.pages.store().versions(&site.page, 10).await.expect("no error");
        let listed: Vec<(&str, bool)> =
            listed.iter().map(|(sk, version)| (sk.as_str(), version.inherits_interval)).collect();
        assert_eq!(listed, [("VER#2", false), ("VER#1", true)], "{}", site.name);
        let diff =
            site.pages.diff(&site.page, "VER#1", "VER#2").await.expect("no error").expect("both exist");
        assert!(diff.to_string().contains("\n-1\n"), "{diff}");
        assert!(diff.to_string().contains("revalidate-seconds (none) -> 60"), "{diff}");
        let back = site.pages.store().roll_back(&site.page, "VER#1", MINUTE).await.expect("no error");
        assert_eq!(back, RolledBack::Done, "{}", site.name);
        assert_eq!(site.served().await, (Freshness::Fresh, Some("1".into())), "{}", site.name);
        assert!(site.meta().await.expect("a page").is_pinned(site.clock.now()), "{}", site.name);
    }
}

#[tokio::test]
async fn only_a_copy_that_is_not_known_to_be_current_costs_a_second_read() {
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let table = Arc::new(CountedTable::new(clock.clone()));
    let site = Site::new("memory", table.clone(), clock, None);
    let reads = async || {
        let _ = table.take_all();
        assert!(site.meta().await.is_some());
        table.take_all().0
    };
    assert!(matches!(site.regenerate("ours", History::Versions).await, Outcome::Published(_)));
    assert_eq!([reads().await, reads().await], [1, 1], "our own versions never cost more");
    site.swap_by_other_service("1", &[]).await;
    assert_eq!([reads().await, reads().await], [2, 2], "the copy in META is of another version");
    let s3_key = site.meta().await.expect("a page").generation.s3_key;
    let copy = Update::new([Attr::<String>::new("s3_key").set(s3_key)]);
    assert!(table.commit(&Txn::from(Write::update(site.page.meta(), copy))).await.expect("a copy").is_done());
    assert_eq!([reads().await, reads().await], [1, 1], "the version is known to have this body");
}
