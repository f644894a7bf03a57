//! Names from clients: tenants, cache keys, idempotency keys, tags, tokens, sort keys.

use std::time::Duration;

use facetheory::protocol::{Acquire, Generation, Lease, LeaseTerms};
use facetheory::{
    Bodies, GetResult, History, Isr, KeyScheme, PageKey, Pages, Policy, Rendered, Result, State, Tag, Tenant,
};
use tabletheory::Timestamp;

use crate::{Site, assert_documented, describe};

fn accepted<T>(result: Result<T>) -> String {
    describe(result, |_| "accepted".into())
}

#[tokio::test]
async fn names_from_clients() {
    let page = PageKey::new("/").expect("a page");
    let site = Site::new();
    let long = "x".repeat(5_000);
    let tenant = |name: &str| accepted(Tenant::new(name));
    let tag = |name: &str| accepted(Tag::new(name));
    let request = |key: &str| {
        describe(page.request(key), |key| {
            let hash = key.sk.strip_prefix("REQ#sha256=").filter(|hash| hash.len() == 64);
            if hash.is_some() { "accepted, hashed".into() } else { "accepted".into() }
        })
    };
    let raw = KeyScheme::raw("CACHE#").expect("a prefix");
    let cases = [
        ("tenant, empty", tenant("")),
        ("tenant, 128 bytes", tenant(&long[..128])),
        ("tenant, 129 bytes", tenant(&long[..129])),
        ("tenant, 43 characters of 3 bytes", tenant(&"€".repeat(43))),
        ("tenant, `a#CACHE#b`", tenant("a#CACHE#b")),
        ("tenant, with a line feed", tenant("a\nb")),
        ("tenant, with NUL", tenant("a\0")),
        ("tenant, with a right-to-left mark", tenant("a\u{200f}b")),
        ("tenant, `../acme`", tenant("../acme")),
        ("cache key, empty", accepted(PageKey::new(""))),
        ("cache key, 65,536 bytes", accepted(PageKey::new("k".repeat(65_536)))),
        ("cache key, 65,537 bytes", accepted(PageKey::new("k".repeat(65_537)))),
        ("cache key, `TENANT#acme#CACHE#x`, hashed", accepted(PageKey::new("TENANT#acme#CACHE#x"))),
        ("cache key, 2,043 bytes, raw", accepted(raw.page(None, &long[..2043]))),
        ("raw prefix, empty", accepted(KeyScheme::raw(""))),
        ("raw prefix, `TENANT#x`", accepted(KeyScheme::raw("TENANT#x"))),
        ("idempotency key, empty", request("")),
        ("idempotency key, `order-7`", request("order-7")),
        ("idempotency key, `../META`", request("../META")),
        ("idempotency key, `a#b`", request("a#b")),
        ("idempotency key, `sha256=0`", request("sha256=0")),
        ("idempotency key, with a line feed", request("a\nb")),
        ("idempotency key, 129 bytes", request(&long[..129])),
        ("idempotency key, 4,096 bytes", request(&long[..4096])),
        ("idempotency key, 4,097 bytes", request(&long[..4097])),
        ("tag, empty", tag("")),
        ("tag, 1,024 bytes", tag(&long[..1024])),
        ("tag, 1,025 bytes", tag(&long[..1025])),
        ("tag, `a#TAG#b`", tag("a#TAG#b")),
        ("tag, with a carriage return", tag("a\rb")),
        ("sort key of a version, `META`", accepted(site.store.version(&page, "META").await)),
        (
            "sort key of a version, `VER#`",
            describe(site.store.version(&page, "VER#").await, |v| format!("{v:?}")),
        ),
        (
            "sort key of a version, 2,000 bytes",
            accepted(site.store.version(&page, &format!("VER#{}", &long[..2000])).await),
        ),
        ("token, empty", publish_with_token("").await),
        ("token, of another worker", publish_with_token("of another worker").await),
        ("token, 5,000 bytes", publish_with_token(&long).await),
        ("request hash, 5,000 bytes", {
            describe(site.store.begin_request(&page, "key", &long).await, |_| "accepted".into())
        }),
        ("request hash, empty", {
            describe(site.store.begin_request(&page, "other", "").await, |begin| {
                format!("{begin:?}").split([' ', '{']).next().unwrap_or_default().to_owned()
            })
        }),
        ("S3 key in a row, `../../secret`", read_object("../../secret").await),
        ("S3 key in a row, empty", read_object("").await),
        ("S3 key in a row, 5,000 bytes", read_object(&long).await),
    ];
    let cases: Vec<Vec<String>> =
        cases.into_iter().map(|(name, result)| vec![name.to_owned(), result]).collect();
    assert_documented("Names", &cases);
}

/// Publishes with a lease that was never granted, while another worker holds the lease.
async fn publish_with_token(token: &str) -> String {
    let site = Site::new();
    let Ok(Acquire::Granted(_)) = site.store.try_acquire(&site.page).await else { panic!("it is free") };
    let now = Timestamp::from_seconds(crate::NOW);
    let forged = Lease::starting(site.page.clone(), token, now, &LeaseTerms::default());
    let rendered = Generation::new("forged.html", crate::NOW, 60);
    let published = site.store.publish(&forged, &rendered, None, History::Latest, None).await;
    assert_eq!(site.store.lookup(&site.page).await.expect("no error").meta, None, "nothing is published");
    describe(published, |published| format!("{published:?}"))
}

/// The result of reading a page whose row has this S3 key, which must be the same for bodies in memory and in files.
async fn read_object(s3_key: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    // The directory of `../../secret`, as seen from the directory of the bodies.
    std::fs::write(directory.path().join("secret"), "a file that is not a body").expect("a file");
    let in_directory = directory.path().join("data/bodies");
    std::fs::create_dir_all(&in_directory).expect("a directory");
    let mut results = Vec::new();
    for bodies in [Bodies::memory(), Bodies::files(&in_directory).expect("a store")] {
        let site = Site::new();
        let pages = Pages::new(site.store.clone(), bodies);
        let meta = facetheory::protocol::Meta::of(Generation::new(s3_key, crate::NOW, 60));
        site.put(site.page.meta(), meta.to_item()).await;
        let read =
            describe(pages.read(&site.page).await, |found| found.map_or("missing", |_| "served").into());
        results.push(read);
        let policy = Policy::every(Duration::from_secs(60));
        let render = |_| async { Ok(Rendered::html("new")) };
        let response = Isr::new(pages).get(&site.page, &policy, render).await;
        let Ok(GetResult::Page(served)) = response else { panic!("{s3_key}: {response:?}") };
        assert_eq!((served.state, &**served.page.bytes()), (State::Miss, &b"new"[..]), "{s3_key}");
    }
    assert_eq!(results, ["missing"; 2], "{s3_key}");
    "a missing body, rendered again".to_owned()
}
