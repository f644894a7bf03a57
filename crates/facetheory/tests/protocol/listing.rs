//! Listing of pages.

use facetheory::protocol::{Acquire, Generation, Published};
use facetheory::{History, KeyScheme, Listed, Listing, PageKey, Tenant};
use tabletheory::{Item, Key, Table as _, Txn, Value, Write};

use crate::fixture::{NOW, Test};

async fn publish(t: &Test, page: &PageKey, tags: &[&str]) {
    let Acquire::Granted(lease) = t.store.try_acquire(page).await.expect("no error") else {
        panic!("it is held")
    };
    let mut rendered = Generation::new("a.html", NOW, 60);
    rendered.content.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let published = t.store.publish(&lease, &rendered, None, History::Versions, None).await;
    assert_eq!(published.expect("no error"), Published::Done);
}

fn at(path: &str) -> PageKey {
    PageKey::new(format!("default::{path}?")).expect("a page").at_path(path)
}

fn keys(listed: &Listed) -> Vec<&str> {
    let mut keys: Vec<&str> = listed.entries.iter().filter_map(|entry| entry.cache_key.as_deref()).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn pages_are_listed_by_tenant_path_and_tag() {
    for t in Test::on_each_table() {
        publish(&t, &at("/docs"), &[]).await;
        publish(&t, &at("/docs/a"), &["news", "sport"]).await;
        publish(&t, &at("/docsets"), &["news"]).await;
        let acme = Tenant::new("acme").expect("a tenant");
        let own = KeyScheme::Hashed.page(Some(&acme), "acme::/docs/b?").expect("a page").at_path("/docs/b");
        publish(&t, &own, &[]).await;

        let list = async |select: fn(&mut Listing)| {
            let mut listing = Listing::new(100);
            select(&mut listing);
            t.store.list(&listing).await.expect("no error")
        };
        let all = list(|_| {}).await;
        assert_eq!(
            keys(&all),
            ["acme::/docs/b?", "default::/docs/a?", "default::/docs?", "default::/docsets?"]
        );
        assert_eq!(all.next, None);
        let docs = list(|listing| listing.below = Some("/docs/".into())).await;
        assert_eq!(keys(&docs), ["acme::/docs/b?", "default::/docs/a?", "default::/docs?"]);
        let news = list(|listing| listing.tag = Some("news".into())).await;
        assert_eq!(keys(&news), ["default::/docs/a?", "default::/docsets?"]);
        let of_acme = list(|listing| listing.tenant = Tenant::new("acme").ok()).await;
        assert_eq!(of_acme.entries.len(), 1);
        assert_eq!(of_acme.entries[0].tenant.as_deref(), Some("acme"));
        assert_eq!(of_acme.entries[0].path.as_deref(), Some("/docs/b"));
    }
}

#[tokio::test]
async fn pages_with_raw_keys_are_listed_with_the_tenant_and_key_that_the_partition_names() {
    for t in Test::on_each_table() {
        let raw = KeyScheme::raw("page:").expect("a prefix");
        let store = t.store.clone().with_key_scheme(raw.clone());
        let foreign = Item::from([("s3_key", Value::from("a.html")), ("generated_at", NOW.into())]);
        for pk in ["page:default::/a?", "page:acme::/a?"] {
            let put = Write::put(Key::new(pk, "META"), foreign.clone());
            assert!(t.table.commit(&Txn::from(put)).await.expect("a put").is_done());
        }
        let acme = Tenant::new("acme").expect("a tenant");
        publish(&t, &raw.page(Some(&acme), "acme::/b?").expect("a page").at_path("/b"), &["news"]).await;
        let mut listing = Listing::new(10);
        assert_eq!(
            keys(&store.list(&listing).await.expect("no error")),
            ["acme::/a?", "acme::/b?", "default::/a?"]
        );
        listing.tenant = Some(acme);
        assert_eq!(keys(&store.list(&listing).await.expect("no error")), ["acme::/a?", "acme::/b?"]);
    }
}

#[tokio::test]
async fn every_page_is_listed_once_however_few_are_listed_at_a_time() {
    for t in Test::on_each_table() {
        for number in 0..30 {
            publish(&t, &at(&format!("/{number}")), &[]).await;
        }
        let mut found = Vec::new();
        let mut listing = Listing::new(7);
        loop {
            let listed = t.store.list(&listing).await.expect("no error");
            assert!(listed.entries.len() <= 7);
            found.extend(listed.entries.into_iter().map(|entry| entry.pk));
            let Some(next) = listed.next else { break };
            listing.after = Some(next);
        }
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 30);
    }
}

#[tokio::test]
async fn a_call_reads_a_bounded_number_of_rows_even_if_few_match() {
    for t in Test::on_each_table() {
        publish(&t, &at("/wanted"), &["rare"]).await;
        for number in 0..3000 {
            let row = Write::put(Key::new(format!("CACHE#{number:04}"), "VER#1"), Item::new());
            assert!(t.table.commit(&Txn::from(row)).await.expect("a put").is_done());
        }
        let mut listing = Listing::new(10);
        listing.tag = Some("rare".into());
        let first = t.store.list(&listing).await.expect("no error");
        listing.after = Some(first.next.clone().expect("not all rows were read"));
        let second = t.store.list(&listing).await.expect("no error");
        assert_eq!(first.entries.len() + second.entries.len(), 1);
        assert_eq!(second.next, None);
    }
}

#[tokio::test]
async fn rows_of_other_languages_are_listed_with_the_attributes_they_have() {
    for t in Test::on_each_table() {
        let foreign = Item::from([
            ("s3_key", Value::from("a.html")),
            ("generated_at", NOW.into()),
            ("revalidate_seconds", 60.into()),
        ]);
        for (pk, item) in [("CACHE#1", foreign), ("CACHE#2", Item::new())] {
            let put = Write::put(Key::new(pk, "META"), item);
            assert!(t.table.commit(&Txn::from(put)).await.expect("a put").is_done());
        }
        let mut listed = t.store.list(&Listing::new(10)).await.expect("no error").entries;
        listed.sort_by(|one, other| one.pk.cmp(&other.pk));
        assert_eq!(listed.len(), 2);
        assert_eq!((listed[0].cache_key.as_deref(), listed[0].meta.is_some()), (None, true));
        assert!(listed[1].meta.is_none(), "a row that cannot be read is listed too");
    }
}

#[tokio::test]
async fn every_way_of_publishing_records_the_cache_key_and_path() {
    for t in Test::on_each_table() {
        for history in [History::Latest, History::Versions] {
            // Twice: the second render has the current body.
            for _ in 0..2 {
                let lease = t.acquire().await;
                assert_eq!(t.publish(&lease, "a.html", history).await, Published::Done);
                let listed = t.store.list(&Listing::new(10)).await.expect("no error");
                assert_eq!(keys(&listed), ["/"]);
            }
        }
    }
}
