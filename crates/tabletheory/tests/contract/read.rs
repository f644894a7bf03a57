//! Reads: get, batch get, query and scan.

use tabletheory::{Consistency, Item, Key, Query, Scan, Value};

use crate::fixture::{Fixture, item, sks};

pub(crate) async fn reading_an_absent_row_returns_none(t: &Fixture) {
    assert_eq!(t.get("META").await, None);
    let eventual = t.table.get(&t.key("META"), Consistency::Eventual).await;
    assert_eq!(eventual.expect("a get"), None);
    assert_eq!(t.rows().await, []);
}

pub(crate) async fn a_batch_is_returned_in_the_order_of_its_keys(t: &Fixture) {
    for index in 0..150 {
        t.put(&format!("{index:03}"), item([("n", index.into())])).await;
    }
    let mut keys: Vec<Key> = (0..150).rev().map(|index| t.key(&format!("{index:03}"))).collect();
    keys.insert(70, t.key("absent"));
    keys.push(t.key("007"));
    let rows = t.table.batch_get(&keys, Consistency::Strong).await.expect("a batch");
    assert_eq!(rows.len(), 152);
    for (key, row) in keys.iter().zip(&rows) {
        let n = row.as_ref().and_then(|row| row.get("n")).and_then(Value::as_i64);
        assert_eq!(n, key.sk.parse().ok(), "{key}");
    }
    assert_eq!(t.table.batch_get(&[], Consistency::Eventual).await.expect("nothing"), []);
}

/// Sort keys in byte order, which differs from the order of UTF-16 units.
const SORTED: [&str; 9] = ["\0", "LOCK", "META", "VER#1", "VER#2", "a", "é", "\u{FFFF}", "😀"];

async fn put_sorted(t: &Fixture) {
    for sk in SORTED.iter().rev() {
        t.put(sk, Item::new()).await;
    }
    // Neighbouring partitions.
    for pk in [t.pk("p\0"), t.pk("o"), t.pk("p#"), t.pk("")] {
        let put = tabletheory::Write::put(Key::new(pk, "META"), Item::new());
        assert!(t.commit([put]).await.expect("a put").is_done());
    }
}

pub(crate) async fn a_query_returns_one_partition_in_byte_order(t: &Fixture) {
    put_sorted(t).await;
    assert_eq!(sks(&t.rows().await), SORTED);
    let mut backward = SORTED;
    backward.reverse();
    assert_eq!(sks(&t.query_all(&Query::of(t.pk("p")).backward()).await), backward);
    assert_eq!(sks(&t.query_all(&Query::of(t.pk("p")).eventual()).await), SORTED);
}

pub(crate) async fn a_query_can_be_restricted_by_sort_key(t: &Fixture) {
    put_sorted(t).await;
    let of = || Query::of(t.pk("p"));
    for (query, expected) in [
        (of().sk_is("META"), &SORTED[2..3]),
        (of().sk_is("absent"), &[]),
        (of().sk_lt("META"), &SORTED[..2]),
        (of().sk_le("META"), &SORTED[..3]),
        (of().sk_gt("META"), &SORTED[3..]),
        (of().sk_ge("META"), &SORTED[2..]),
        (of().sk_ge("N"), &SORTED[3..]),
        (of().sk_between("LOCK", "VER#1"), &SORTED[1..4]),
        (of().sk_between("b", "c"), &[]),
        (of().begins_with("VER#"), &SORTED[3..5]),
        (of().begins_with("\u{FFFF}"), &SORTED[7..8]),
        (of().begins_with("X"), &[]),
        (of().sk_gt("\u{FFFF}"), &SORTED[8..]),
    ] {
        assert_eq!(sks(&t.query_all(&query).await), expected, "{query:?}");
        let mut backward = expected.to_vec();
        backward.reverse();
        assert_eq!(sks(&t.query_all(&query.clone().backward()).await), backward, "{query:?} backward");
        for limit in 1..4 {
            assert_eq!(
                sks(&t.query_all(&query.clone().limit(limit)).await),
                expected,
                "{query:?} by {limit}"
            );
            let paged = t.query_all(&query.clone().limit(limit).backward()).await;
            assert_eq!(sks(&paged), backward, "{query:?} backward by {limit}");
        }
    }
}

pub(crate) async fn a_prefix_matches_every_following_character(t: &Fixture) {
    let with_prefix = ["V", "V\0", "Va", "V\u{FFFF}a", "V\u{10FFFF}", "V\u{10FFFF}\u{10FFFF}x"];
    for sk in with_prefix.iter().chain(&["U\u{10FFFF}", "W", "v"]) {
        t.put(sk, Item::new()).await;
    }
    assert_eq!(sks(&t.query_all(&Query::of(t.pk("p")).begins_with("V")).await), with_prefix);
    let last = &with_prefix[4..];
    assert_eq!(sks(&t.query_all(&Query::of(t.pk("p")).begins_with("V\u{10FFFF}")).await), last);
}

pub(crate) async fn a_query_continues_where_its_page_ended(t: &Fixture) {
    put_sorted(t).await;
    let query = Query::of(t.pk("p")).limit(4);
    let first = t.table.query(&query).await.expect("a page");
    assert_eq!(sks(&first.items), SORTED[..4]);
    let next = first.next.expect("there are more rows");
    // The row at which the page ended may be deleted meanwhile.
    let gone = t.commit([tabletheory::Write::delete(t.key(SORTED[3]))]).await;
    assert!(gone.expect("a delete").is_done());
    let second = t.table.query(&query.after(next)).await.expect("a page");
    assert_eq!(sks(&second.items), SORTED[4..8]);
}

pub(crate) async fn a_page_ends_after_about_a_megabyte(t: &Fixture) {
    for index in 0..5 {
        t.put(&index.to_string(), item([("body", "x".repeat(300_000).into())])).await;
    }
    let page = t.table.query(&Query::of(t.pk("p"))).await.expect("a page");
    assert_eq!(page.items.len(), 4, "the row that exceeds a megabyte is the last");
    assert!(page.next.is_some());
    assert_eq!(t.rows().await.len(), 5);
}

pub(crate) async fn a_scan_returns_every_row_once(t: &Fixture) {
    let mut expected = Vec::new();
    for index in 0..25 {
        let key = Key::new(t.pk(&format!("scan{}", index % 5)), index.to_string());
        let put = tabletheory::Write::put(key.clone(), Item::new());
        assert!(t.commit([put]).await.expect("a put").is_done());
        expected.push(key);
    }
    // Other tests write to the same table, so the number of pages is unknown.
    let (mut found, mut cursors) = (Vec::new(), std::collections::HashSet::new());
    let mut scan = Scan::new().limit(7);
    loop {
        let page = t.table.scan(&scan).await.expect("a page");
        assert!(page.items.len() <= 7);
        found.extend(page.items.iter().map(|row| row.key().expect("a key")));
        match page.next {
            Some(cursor) => {
                let text = cursor.to_string();
                scan = Scan::new().limit(7).after(text.parse().expect("a cursor"));
                assert!(cursors.insert(text), "a cursor occurred twice");
            }
            None => break,
        }
    }
    found.retain(|key| key.pk.starts_with(&t.pk("scan")));
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
