//! Rows whose checksum does not match, and the result of every operation on them.

use std::time::Duration;

use facetheory::protocol::{Acquire, Begin, Generation, Meta};
use facetheory::{History, InvalidationMode, Tag};
use tabletheory::{Consistency, Key, Table as _};

use crate::{NOW, Site, assert_documented, describe};

/// A page with two versions, a tag that was invalidated before it was rendered, a request and a lease.
async fn whole() -> Site {
    let site = Site::new();
    site.store.invalidate_tag(&Tag::everything(), None).await.expect("no error");
    for (seconds, body) in [(100, "1.html"), (200, "2.html")] {
        site.set_clock(NOW + seconds);
        assert_eq!(publish(&site, body).await, "Done");
    }
    let started = site.store.begin_request(&site.page, "order-7", "hash").await.expect("no error");
    assert_eq!(started, Begin::Fresh);
    site.store.bind_request("order-7", "hash").await.expect("no error");
    site
}

async fn publish(site: &Site, body: &str) -> String {
    let Acquire::Granted(lease) = site.store.try_acquire(&site.page).await.expect("no error") else {
        return "Held".to_owned();
    };
    let seen = meta(site).await;
    let rendered = Generation::new(body, site.store.now().seconds(), 60);
    let published = site.store.publish(&lease, &rendered, seen.as_ref(), History::Versions, None).await;
    describe(published, |published| format!("{published:?}"))
}

async fn meta(site: &Site) -> Option<Meta> {
    site.store.lookup(&site.page).await.expect("no error").meta
}

async fn freshness(site: &Site) -> String {
    match meta(site).await {
        Some(meta) => describe(site.store.freshness(&site.page, &meta).await, |state| format!("{state:?}")),
        None => "missing".to_owned(),
    }
}

async fn is_damaged(site: &Site, key: &Key) -> bool {
    let row = site.table.get(key, Consistency::Strong).await.expect("a row");
    row.is_some_and(|row| row.is_damaged())
}

fn damage(site: &Site, key: &Key) {
    assert!(site.table.damage(key), "{key}");
}

async fn of_meta() -> String {
    let site = whole().await;
    damage(&site, &site.page.meta());
    let before = freshness(&site).await;
    let invalidated = site.store.invalidate(&site.page, InvalidationMode::Hard).await;
    let invalidated = describe(invalidated, |invalidated| format!("{invalidated:?}"));
    let published = publish(&site, "3.html").await;
    format!("{before}; invalidation: {invalidated}; publish: {published}, then {}", freshness(&site).await)
}

async fn of_lock() -> String {
    let site = whole().await;
    let Acquire::Granted(first) = site.store.try_acquire(&site.page).await.expect("no error") else {
        panic!()
    };
    damage(&site, &site.page.lock());
    let second = publish(&site, "second.html").await;
    let late = Generation::new("first.html", NOW, 60);
    let first = site.store.publish(&first, &late, None, History::Versions, None).await;
    let first = describe(first, |published| format!("{published:?}"));
    format!("free; another worker's publish: {second}; its holder's publish: {first}")
}

async fn of_version() -> String {
    let site = whole().await;
    let versions = site.store.versions(&site.page, 10).await.expect("no error");
    damage(&site, &site.page.meta().sibling(versions[1].0.as_str()));
    let listed = site.store.versions(&site.page, 10).await.expect("no error").len();
    let rolled_back = site.store.roll_back(&site.page, &versions[1].0, Duration::from_secs(9)).await;
    let rolled_back = describe(rolled_back, |rolled_back| format!("{rolled_back:?}"));
    format!(
        "{listed} of {} listed; rollback: {rolled_back}; the page is {}",
        versions.len(),
        freshness(&site).await
    )
}

async fn of_request() -> String {
    let site = Site::new();
    let begin = async || {
        let begun = site.store.begin_request(&site.page, "order-7", "hash").await;
        describe(begun, |begun| match begun {
            Begin::Started { .. } => "Started".to_owned(),
            other => format!("{other:?}").split(' ').next().unwrap_or_default().to_owned(),
        })
    };
    let first = begin().await;
    damage(&site, &site.page.request("order-7").expect("a key"));
    site.set_clock(NOW + 100);
    let second = begin().await;
    format!("{first}, then {second} once the lease has expired, then {}", begin().await)
}

async fn of_tag() -> String {
    let site = whole().await;
    let before = freshness(&site).await;
    let key = Tag::everything().key(None);
    damage(&site, &key);
    site.set_clock(NOW + 210);
    let read = freshness(&site).await;
    let replaced = if is_damaged(&site, &key).await { "not replaced" } else { "replaced" };
    site.set_clock(NOW + 220);
    publish(&site, "3.html").await;
    format!("{before} before; {read}, and {replaced}; after the next render {}", freshness(&site).await)
}

#[tokio::test(start_paused = true)]
async fn a_row_of_each_kind_is_damaged() {
    let cases = [
        ("META", of_meta().await),
        ("LOCK", of_lock().await),
        ("VER#", of_version().await),
        ("REQ#", of_request().await),
        ("TAG", of_tag().await),
    ];
    let cases: Vec<Vec<String>> =
        cases.into_iter().map(|(role, result)| vec![role.to_owned(), result]).collect();
    assert_documented("Damaged rows", &cases);
}
