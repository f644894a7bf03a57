//! Rows whose attributes are missing, additional or of a wrong type, and the result of every operation on them.

use std::time::Duration;

use facetheory::protocol::{
    Acquire, Begin, Epoch, Freshness, Generation, Lock, Meta, Request, SeenEpochs, Version,
};
use facetheory::{Bodies, GetResult, History, InvalidationMode, Isr, Outcome, Pages, Policy, Rendered, Tag};
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt as _, PutPayload};
use std::sync::Arc;
use tabletheory::{Item, Set, Value};

use crate::{NOW, Site, assert_documented, describe};

/// The count of a tag that was invalidated before a page was rendered.
const COUNT: u64 = 1_000_003;
const VERSION_SK: &str = "VER#01HF7YAT00TTTTTTTTTTTTTTTT";
/// The body that the rows name, "old", and its digest.
const BODY: &str = "isr/0/1-a.html";
const DIGEST: &str = "sha256:cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4";

/// One value of each type of a table.
fn one_of_each_type() -> Vec<Value> {
    let text = Value::from("x");
    vec![
        text.clone(),
        7.into(),
        true.into(),
        Value::Null,
        Value::L(vec![text.clone()]),
        Value::M([("x".to_owned(), text)].into_iter().collect()),
        Value::B(b"x".to_vec()),
        Value::Ss(Set::new(["x".to_owned()]).expect("a set")),
    ]
}

/// A row with all its attributes.
struct FullRow {
    role: &'static str,
    item: Item,
}

fn full_rows() -> [FullRow; 7] {
    let mut generation = Generation::new(BODY, NOW, 60);
    generation.etag = Some("\"1\"".into());
    generation.content.status = Some(200);
    generation.content.content_type = Some("text/html".into());
    generation.content.headers = vec![("link".into(), "</a.css>".into())];
    generation.content.digest = Some(DIGEST.into());
    generation.content.tags = vec!["news".into()];
    generation.content.deployment = Some("7".into());
    generation.epochs = Some(SeenEpochs::of_render_at(NOW));
    let mut version = Version::of(generation.clone());
    version.ttl = Some(NOW + 100);
    let mut meta = Meta::of(generation);
    meta.ttl = Some(NOW + 100);
    meta.current_sk = Some(VERSION_SK.into());
    meta.version = Some(3);
    meta.stale_since = Some(NOW - 1);
    meta.expired_at = Some(NOW - 10);
    meta.pinned_until = Some(NOW);
    meta.mark = Some("mark".into());
    let mut lock = Lock::new("token", NOW + 10);
    (lock.ttl, lock.owner) = (Some(NOW + 100), Some("web-3".into()));
    let mut request = Request::started("hash", NOW + 100);
    request.owner = Some("token".into());
    request.in_progress_until = Some(NOW + 10);
    request.result_s3_key = Some(BODY.into());
    let mut in_place = meta.clone();
    (in_place.current_sk, in_place.version) = (None, None);
    let mut hard = meta.clone();
    hard.must_not_serve = true;
    let mut epoch = Epoch::at(NOW - 10);
    (epoch.seq, epoch.seq_base, epoch.seq_at) = (Some(3), Some(COUNT - 3), Some(NOW - 10));
    [
        FullRow { role: "META", item: meta.to_item() },
        FullRow { role: "META, in place", item: in_place.to_item() },
        FullRow { role: "META, hard", item: hard.to_item() },
        FullRow { role: "LOCK", item: lock.to_item() },
        FullRow { role: "VER#", item: version.to_item() },
        FullRow { role: "REQ#", item: request.to_item() },
        FullRow { role: "TAG", item: epoch.to_item() },
    ]
}

async fn result_of(role: &str, item: &Item) -> String {
    match role {
        "META" | "META, in place" | "META, hard" => meta(item).await,
        "LOCK" => lock(item).await,
        "VER#" => version(item).await,
        "REQ#" => request(item).await,
        "TAG" => tag(item).await,
        other => panic!("no row has the role {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_attribute_is_missing_or_mistyped_once() {
    let mut cases = Vec::new();
    for FullRow { role, item } in full_rows() {
        let whole = result_of(role, &item).await;
        cases.push(vec![role.to_owned(), "(complete)".into(), whole.clone(), whole.clone()]);
        let mut extra = item.clone();
        for (index, value) in one_of_each_type().into_iter().enumerate() {
            extra.set(format!("extra_{index}"), value);
        }
        assert_eq!(result_of(role, &extra).await, whole, "{role}: extra attributes change nothing");
        let short = |result: String| if result == whole { "the same".to_owned() } else { result };
        for (name, correct) in item.iter() {
            let mut without = item.clone();
            without.remove(name);
            let missing = short(result_of(role, &without).await);
            let mut mistyped: Vec<String> = Vec::new();
            let wrong =
                one_of_each_type().into_iter().filter(|value| value.type_name() != correct.type_name());
            for value in wrong {
                let mut item = item.clone();
                let of_type = format!(" of type {};", value.type_name());
                item.set(name, value);
                let result = result_of(role, &item).await.replace(&of_type, " of type …;");
                let result = short(result);
                if !mistyped.contains(&result) {
                    mistyped.push(result);
                }
            }
            cases.push(vec![role.to_owned(), format!("`{name}`"), missing, mistyped.join(" — or — ")]);
        }
    }
    assert_documented("Attributes", &cases);
}

/// Puts the row, and a version to roll back to.
async fn site_of(item: &Item) -> Site {
    let site = Site::new();
    site.put(site.page.meta(), item.clone()).await;
    let version = Version::of(Generation::new(BODY, NOW, 60));
    site.put(site.page.meta().sibling(VERSION_SK), version.to_item()).await;
    site
}

/// A site whose store has the body that the row names.
async fn site_with_body(item: &Item) -> Site {
    let objects = Arc::new(InMemory::new());
    objects.put(&BODY.into(), PutPayload::from_static(b"old")).await.expect("stored");
    let site = site_of(item).await;
    Site { pages: Pages::new(site.store.clone(), Bodies::over(objects)), ..site }
}

/// The response of a process that has nothing in memory, and the next one if it differs after the background work.
async fn responses(site: &Site) -> String {
    let policy = Policy::every(Duration::from_secs(60));
    let isr = Isr::new(site.pages.clone());
    let response = async || {
        let response = isr.get(&site.page, &policy, |_| async { Ok(Rendered::html("new")) }).await;
        describe(response, |response| match response {
            GetResult::Page(served) => {
                let body = if *served.page.bytes() == "old" { "its body" } else { "a new render" };
                format!("{} with {body}", served.state)
            }
            other => format!("{other:?}"),
        })
    };
    let first = response().await;
    assert!(isr.settle(Duration::from_secs(60)).await);
    let second = response().await;
    if first == second { first } else { format!("{first}, then {second}") }
}

/// The freshness of the page, the response to a request for it, and which operations fail.
async fn meta(item: &Item) -> String {
    let site = site_with_body(item).await;
    let view = site.store.lookup(&site.page).await.expect("no error");
    let state = match view.meta.map(|meta| meta.freshness(site.store.now())) {
        None => "missing".to_owned(),
        Some(Freshness::MustNotServe) => "must not be served".to_owned(),
        Some(state) => format!("{state:?}").to_lowercase(),
    };
    let mut results = vec![format!("{state}, {}", responses(&site).await)];
    let mut fails = |what: &str, error: String| results.push(format!("{what} fails ({error})"));
    for mode in [InvalidationMode::Soft, InvalidationMode::Hard] {
        let site = site_of(item).await;
        if let Err(error) = site.store.invalidate(&site.page, mode).await {
            fails("invalidation", error.to_string());
        }
        if let Some(meta) = site.store.lookup(&site.page).await.expect("no error").meta {
            assert_ne!(meta.freshness(site.store.now()), Freshness::Fresh, "it was invalidated");
        }
    }
    for history in [History::Latest, History::Versions] {
        let site = site_of(item).await;
        site.set_clock(NOW + 100);
        let policy = Policy::every(Duration::from_secs(60)).with_history(history);
        let regenerated =
            site.pages.regenerate(&site.page, &policy, |_| async { Ok(Rendered::html("new")) }).await;
        match regenerated {
            Ok(Outcome::Published(_)) => {
                let read = site.pages.read(&site.page).await.expect("no error").expect("it is served");
                assert_eq!(read.1.bytes, "new");
            }
            other => fails("regeneration", describe(other, |outcome| format!("{outcome:?}"))),
        }
    }
    let site = site_of(item).await;
    if let Err(error) = site.store.roll_back(&site.page, VERSION_SK, Duration::from_secs(60)).await {
        fails("rollback", error.to_string());
    }
    let site = site_of(item).await;
    if let Err(error) = site.store.unpin(&site.page).await {
        fails("unpinning", error.to_string());
    }
    site.set_clock(NOW + 100);
    if !matches!(site.store.begin_request(&site.page, "key", "hash").await, Ok(Begin::Started { .. })) {
        fails("a request", "not started".into());
    }
    results.join("; ")
}

/// Whether it blocks other workers, before and after its expiry.
async fn lock(item: &Item) -> String {
    let site = Site::new();
    site.put(site.page.lock(), item.clone()).await;
    let acquired = async || match site.store.try_acquire(&site.page).await.expect("no error") {
        Acquire::Granted(lease) => {
            site.store.release(&lease).await.expect("no error");
            "free"
        }
        Acquire::Held { .. } => "held",
    };
    let before = acquired().await;
    site.set_clock(NOW + 11);
    let after = acquired().await;
    site.store.invalidate(&site.page, InvalidationMode::Soft).await.expect("no error");
    format!("{before}, {after} when it has expired, {} after an invalidation", acquired().await)
}

/// Whether the version is listed, and can be rolled back to.
async fn version(item: &Item) -> String {
    let site = site_of(&Meta::of(Generation::new("isr/0/1-b.html", NOW, 60)).to_item()).await;
    site.put(site.page.meta().sibling(VERSION_SK), item.clone()).await;
    let other = Version::of(Generation::new("isr/0/1-b.html", NOW, 60));
    site.put(site.page.meta().sibling("VER#0"), other.to_item()).await;
    let listed = describe(site.store.versions(&site.page, 10).await, |versions| match versions.len() {
        2 => "listed".into(),
        1 => "not listed".into(),
        more => format!("{more} listed"),
    });
    let back = site.store.roll_back(&site.page, VERSION_SK, Duration::from_secs(60)).await;
    format!("{listed}; rollback: {}", describe(back, |back| format!("{back:?}")))
}

/// The result of a repetition, at once and after the in-progress limit.
async fn request(item: &Item) -> String {
    let site = Site::new();
    site.put(site.page.request("key").expect("a key"), item.clone()).await;
    let begin = async || {
        let begun = site.store.begin_request(&site.page, "key", "hash").await;
        describe(begun, |begun| format!("{begun:?}").split([' ', '{']).next().unwrap_or_default().to_owned())
    };
    let at_once = begin().await;
    site.set_clock(NOW + 11);
    let later = begin().await;
    if at_once == later { at_once } else { format!("{at_once}, {later} once it is overdue") }
}

/// The freshness of pages with this tag: an older one and a younger one without counts, and one that has seen the count. Then the
/// tag is invalidated again.
async fn tag(item: &Item) -> String {
    let site = Site::new();
    let tag = Tag::new("news").expect("a tag");
    site.put(tag.key(None), item.clone()).await;
    let state = async |generated_at: i64, seen: bool| {
        let epochs = site.store.epochs(std::slice::from_ref(&tag), None).await;
        let mut meta = Meta::of(Generation::new("a.html", generated_at, 60));
        if seen {
            let mut epochs = SeenEpochs::of_render_at(generated_at);
            epochs.insert(&tag, COUNT);
            meta.generation.epochs = Some(epochs);
        }
        describe(epochs, |epochs| {
            format!("{:?}", meta.freshness_with(&epochs, site.store.now(), Duration::from_secs(2)))
        })
    };
    let (older, younger, seen) =
        (state(NOW - 20, false).await, state(NOW, false).await, state(NOW, true).await);
    site.set_clock(NOW + 5);
    site.store.invalidate_tag(&tag, None).await.expect("no error");
    let (uncounted, counted) = (state(NOW, false).await, state(NOW, true).await);
    let again = if uncounted == counted { counted } else { format!("{uncounted} and {counted}") };
    if [&older, &younger, &seen].iter().all(|state| **state == again) {
        return again;
    }
    format!(
        "without counts an older page {older}, a younger {younger}; with the count {seen}; {again} once invalidated again"
    )
}
