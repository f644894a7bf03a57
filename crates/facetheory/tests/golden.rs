//! The wire format of rows, in files that other languages can test against.

use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::{
    Epoch, FeedEntry, Generation, Lock, Meta, Request, RequestStatus, Version, VersionId, request_hash,
};
use facetheory::{Bodies, CacheKey, Isr, KeyScheme, PageKey, PageStore, Pages, Tag, Tenant};
use tabletheory::{
    Consistency, Item, Key, ManualClock, MemoryTable, SeededRandom, Table as _, Timestamp, Txn, Value, Write,
};

struct Vector {
    name: String,
    role: String,
    /// The row as one line of DynamoDB-JSON, exactly as in the file.
    line: String,
}

fn vectors() -> Vec<Vector> {
    let text = include_str!("golden/rows.json");
    let parsed: serde_json::Value = serde_json::from_str(text).expect("the file is JSON");
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix(r#""item": "#));
    let vectors = parsed.as_array().expect("a list").iter().zip(lines);
    let vectors: Vec<Vector> = vectors
        .map(|(vector, line)| {
            let text = |name: &str| vector[name].as_str().expect(name).to_owned();
            Vector { name: text("name"), role: text("role"), line: line.to_owned() }
        })
        .collect();
    assert_eq!(vectors.len(), parsed.as_array().expect("a list").len(), "every item is on one line");
    vectors
}

/// Reads the row with its type, and writes it again.
fn again(role: &str, item: &Item) -> Item {
    match role {
        "META" => Meta::read(item).expect(role).to_item(),
        "LOCK" => Lock::read(item).expect(role).to_item(),
        "VER#" => Version::read(item).expect(role).to_item(),
        "REQ#" => Request::read(item).expect(role).to_item(),
        "TAG" => Epoch::read(item).expect(role).to_item(),
        "FEED#" => FeedEntry::read(item).expect(role).to_item(),
        // They have no type; another test writes them.
        "PROBE" => item.clone(),
        other => panic!("no row has the role {other}"),
    }
}

#[test]
fn every_row_is_read_and_written_byte_for_byte() {
    for Vector { name, role, line } in vectors() {
        let item = Item::from_json(&line).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut written = again(&role, &item);
        for part in ["pk", "sk"] {
            written.set(part, item.get(part).expect("a row has a key").clone());
        }
        assert_eq!(written.to_json(), line, "{name}");
    }
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("the file is JSON")
}

fn list(value: &serde_json::Value) -> &[serde_json::Value] {
    value.as_array().expect("a list")
}

#[test]
fn requests_have_the_hashes_of_the_file() {
    for vector in list(&json(include_str!("golden/request_hashes.json"))) {
        let text = |name: &str| vector[name].as_str();
        let cache_key = text("cache_key").expect("a cache key");
        let hash = request_hash(cache_key, text("deployment"), text("policy_version"));
        assert_eq!(Some(hash.as_str()), text("request_hash"), "{}", vector["name"]);
    }
}

#[test]
fn attribute_names_are_snake_case_and_numbers_are_whole() {
    for Vector { name, line, .. } in vectors() {
        let item = Item::from_json(&line).expect("an item");
        for (attribute, value) in item.iter() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(attribute.chars().all(plain), "{name}: {attribute}");
            if let Some(number) = value.as_number() {
                assert!(number.to_string().parse::<i64>().is_ok(), "{name}: {attribute} is {number}");
            }
        }
    }
}

#[test]
fn keys_are_written_as_in_the_file() {
    let tenant = Tenant::new("t1").expect("a tenant");
    let page = KeyScheme::Hashed.page(Some(&tenant), "/").expect("a page");
    let alone = PageKey::new("/").expect("a page");
    let keys = [
        alone.meta(),
        page.meta(),
        alone.lock(),
        page.lock(),
        page.request("order-7").expect("a plain key"),
        alone.request("a b").expect("a key that is not plain"),
        Tag::new("news").expect("a tag").key(None),
        Tag::new("news").expect("a tag").key(Some(&tenant)),
    ];
    let found: Vec<_> = vectors()
        .iter()
        .map(|vector| Item::from_json(&vector.line).expect("an item").key().expect("a key"))
        .collect();
    for key in keys {
        assert!(found.contains(&key), "{key}");
    }
}

#[test]
fn partition_keys_are_built_as_in_the_file() {
    for vector in list(&json(include_str!("golden/keys.json"))["partition_keys"]) {
        let text = |name: &str| vector[name].as_str();
        let tenant = text("tenant").map(|name| Tenant::new(name).expect("a tenant"));
        let scheme = match text("scheme") {
            Some("raw") => KeyScheme::raw(text("prefix").expect("a prefix")).expect("a prefix"),
            _ => KeyScheme::Hashed,
        };
        let page = scheme.page(tenant.as_ref(), text("cache_key").expect("a key")).expect("a page");
        assert_eq!(Some(page.pk()), text("pk"), "{}", vector["name"]);
        assert_eq!(page.lock().pk, page.meta().pk, "{}", vector["name"]);
    }
}

#[test]
fn cache_keys_of_typescript_services_are_built_from_their_parts_as_in_the_file() {
    for vector in list(&json(include_str!("golden/keys.json"))["facetheory_ts"]) {
        let text = |name: &str| vector[name].as_str();
        let mut key = CacheKey::route(text("pattern").expect("a pattern")).facetheory_ts();
        if let Some(tenant) = text("tenant") {
            key = key.tenant(&Tenant::new(tenant).expect("a tenant"));
        }
        for part in ["params", "query", "auth", "cookies"] {
            for pair in vector["seen"][part].as_array().expect(part) {
                let [name, value] = [&pair[0], &pair[1]].map(|text| text.as_str().expect("a text"));
                key = match part {
                    "params" => key.param(name, value),
                    "query" => key.query(name, value),
                    "auth" => key.auth(name, value),
                    _ => key.cookie(name, value),
                };
            }
        }
        assert_eq!(Some(key.to_string().as_str()), text("cache_key"), "{}", vector["name"]);
    }
}

#[tokio::test]
async fn keys_of_requests_are_built_as_in_the_file() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("golden/keys.json")).expect("the file is JSON");
    let page = PageKey::new("/").expect("a page");
    for vector in vectors["request_keys"].as_array().expect("a list") {
        let text = |name: &str| vector[name].as_str().expect(name);
        let key = text("idempotency_key");
        assert_eq!(page.request(key).expect("a key").sk, text("sk"), "{key}");
        let table = Arc::new(MemoryTable::new());
        assert!(PageStore::new(table.clone()).bind_request(key, "hash").await.expect("no error"));
        let row = table.get(&Key::new(text("bound_pk"), text("sk")), Consistency::Strong).await;
        assert!(row.expect("a read").is_some(), "{key}");
    }
}

#[test]
fn ids_of_versions_are_built_as_in_the_file() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("golden/keys.json")).expect("the file is JSON");
    for vector in vectors["version_ids"].as_array().expect("a list") {
        let time = Timestamp::from_millis(vector["ms"].as_i64().expect("a time"));
        let id = VersionId::of_body(time, vector["s3_key"].as_str().expect("an S3 key"));
        assert_eq!(Some(id.to_string().as_str()), vector["id"].as_str());
    }
}

#[tokio::test]
async fn rows_that_belong_to_no_page_are_written_as_in_the_file() {
    let of = |name: &str| {
        let vector = vectors().into_iter().find(|vector| vector.name == name).expect(name);
        Item::from_json(&vector.line).expect("an item")
    };
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_000_000)));
    let table = Arc::new(MemoryTable::with_clock(clock));
    let store = PageStore::new(table.clone()).with_random(Arc::new(SeededRandom::new(1)));
    let bound = of("REQ#, which binds the idempotency key order-7 to one request");
    let hash = bound.get("request_hash").and_then(Value::as_str).expect("a hash");
    assert!(store.bind_request("order-7", hash).await.expect("no error"));
    store.invalidate_tag(&Tag::new("sport").expect("a tag"), None).await.expect("no error");
    Isr::new(Pages::new(store, Bodies::memory())).check_table_write().await.expect("no error");
    for row in [bound, of("the row that readiness checks rewrite"), of("a tag, as we write it")] {
        let key = row.key().expect("a key");
        assert_eq!(table.get(&key, Consistency::Strong).await.expect("a read"), Some(row), "{key}");
    }
}

#[test]
fn rows_have_the_expected_values() {
    let of = |name: &str| {
        let vector = vectors().into_iter().find(|vector| vector.name == name).expect(name);
        Item::from_json(&vector.line).expect("an item")
    };
    let meta = Meta::read(&of("META, with all that our own rows add")).expect("META");
    assert_eq!(meta.version, Some(8));
    assert!(meta.must_not_serve);
    assert_eq!(meta.generation.content.headers.len(), 3, "one name may occur twice");
    assert_eq!(meta.generation.content.tags, ["news", "sport"]);
    let request = Request::read(&of("REQ#, completed")).expect("REQ#");
    assert_eq!(request.status, RequestStatus::Completed);
    assert_eq!(request.result_s3_key.as_deref(), Some("pages/t1/abc.html"));
}

#[tokio::test]
async fn pages_of_recipe_b_are_read_as_in_the_file() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("golden/recipe_b.json")).expect("the file is JSON");
    let page = PageKey::new("/").expect("a page").with_interval(Duration::from_secs(120));
    for vector in vectors.as_array().expect("a list") {
        let item = |name: &str| {
            let item = vector.get(name).filter(|item| !item.is_null());
            item.map(|item| Item::from_json(&item.to_string()).expect(name))
        };
        let table = Arc::new(MemoryTable::new());
        let rows = [(page.meta(), item("meta")), (page.version("7"), item("version"))];
        for (key, row) in rows.into_iter().filter_map(|(key, row)| Some((key, row?))) {
            assert!(table.commit(&Txn::from(Write::put(key, row))).await.expect("a put").is_done());
        }
        let read = PageStore::new(table).lookup(&page).await.expect("no error").meta.expect("a row");
        let served = Some(read).filter(|meta| !meta.must_not_serve).map(|meta| meta.to_item());
        assert_eq!(served, item("page"), "{}", vector["name"]);
    }
}

fn foreign(attributes: &[(&str, Value)]) -> Item {
    let required = [
        ("s3_key", Value::from("a.html")),
        ("generated_at", 1_700_000_000.into()),
        ("revalidate_seconds", 60.into()),
    ];
    let mut item: Item = required.into_iter().collect();
    for (name, value) in attributes {
        item.set(*name, value.clone());
    }
    item
}

#[test]
fn attributes_that_other_languages_add_or_mistype_are_ignored() {
    let plain = Meta::of(Generation::new("a.html", 1_700_000_000, 60));
    for extra in [
        ("cacheKey", Value::from("/")),
        ("etag", "".into()),
        ("etag", Value::Null),
        ("ttl", "soon".into()),
        ("http_status", "200".into()),
        ("http_status", 70_000.into()),
        ("headers", "none".into()),
        ("headers", Value::L(vec![1.into(), Value::L(vec!["lonely".into()])])),
        ("tags", Value::L(vec!["news".into()])),
        ("version", (-1).into()),
        ("must_not_serve", "true".into()),
    ] {
        assert_eq!(Meta::read(&foreign(std::slice::from_ref(&extra))).expect("readable"), plain, "{extra:?}");
    }
    let half = Value::N("60.9".parse().expect("a number"));
    let read = Meta::read(&foreign(&[("revalidate_seconds", half)])).expect("readable");
    assert_eq!(read.generation.revalidate_seconds, 60, "a fraction is cut off");
    let read = Meta::read(&foreign(&[("revalidate_seconds", (-5).into())])).expect("readable");
    assert_eq!(read.generation.revalidate_seconds, 0, "a negative interval counts as zero");
    let huge = Value::N("1E100".parse().expect("a number"));
    let read = Meta::read(&foreign(&[("revalidate_seconds", huge)])).expect("readable");
    assert_eq!(read.generation.revalidate_seconds, i64::MAX);
}

#[test]
fn a_row_that_lacks_a_required_attribute_is_corrupt() {
    for (attribute, value, reason) in [
        ("s3_key", None, "META: attribute `s3_key` is missing"),
        ("s3_key", Some(1.into()), "META: attribute `s3_key` is of type N; it must be S"),
        ("generated_at", Some("now".into()), "META: attribute `generated_at` is of type S; it must be N"),
        (
            "revalidate_seconds",
            Some(Value::Null),
            "META: attribute `revalidate_seconds` is of type NULL; it must be N",
        ),
    ] {
        let mut item = foreign(&[]);
        item.remove(attribute);
        if let Some(value) = value {
            item.set(attribute, value);
        }
        let error = Meta::read(&item).expect_err(reason);
        assert_eq!((error.kind(), error.to_string().as_str()), (facetheory::Kind::Corrupt, reason));
    }
    let odd = Item::from([("status", Value::from("DONE")), ("request_hash", "h".into()), ("ttl", 1.into())]);
    assert_eq!(
        Request::read(&odd).expect_err("odd").to_string(),
        "REQ#: unknown status \"DONE\"; it must be STARTED, COMPLETED or FAILED"
    );
}
