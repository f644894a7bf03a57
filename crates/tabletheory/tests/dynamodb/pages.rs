//! Reads of several rows.

use super::*;

/// More pages than any test reads: a cursor that does not advance must fail the test, not hang it.
const MAX_PAGES: usize = 100;

async fn sort_keys(table: &DynamoTable, query: Query) -> Vec<String> {
    let mut keys = Vec::new();
    let mut next = query.clone();
    for _ in 0..MAX_PAGES {
        let page = table.query(&next).await.expect("a page");
        keys.extend(page.items.iter().map(|item| item.key().expect("a key").sk));
        match page.next {
            Some(cursor) => next = query.clone().after(cursor),
            None => return keys,
        }
    }
    panic!("{query:?} does not end");
}

#[tokio::test]
async fn a_query_returns_all_rows_with_any_page_size() {
    let table = new_table().await;
    for sk in ["META", "VER#1", "VER#2", "VER#3", "Z"] {
        put(&table, sk, Item::new()).await;
    }
    let all = || Query::of("CACHE#1");
    for rows in 1..=4 {
        for (query, expected) in [
            (all(), vec!["META", "VER#1", "VER#2", "VER#3", "Z"]),
            (all().backward(), vec!["Z", "VER#3", "VER#2", "VER#1", "META"]),
            (all().begins_with("VER#"), vec!["VER#1", "VER#2", "VER#3"]),
            (all().sk_is("VER#2"), vec!["VER#2"]),
            (all().sk_between("VER#1", "VER#3"), vec!["VER#1", "VER#2", "VER#3"]),
            (all().sk_between("VER#1", "VER#3").backward(), vec!["VER#3", "VER#2", "VER#1"]),
            (all().sk_le("VER#2"), vec!["META", "VER#1", "VER#2"]),
            (all().sk_le("VER#2").backward(), vec!["VER#2", "VER#1", "META"]),
            (all().sk_ge("VER#2"), vec!["VER#2", "VER#3", "Z"]),
            (all().sk_ge("VER#2").backward().eventual(), vec!["Z", "VER#3", "VER#2"]),
            (all().sk_lt("VER#2"), vec!["META", "VER#1"]),
            (all().sk_gt("VER#2").backward(), vec!["Z", "VER#3"]),
            (Query::of("CACHE#2"), vec![]),
        ] {
            assert_eq!(sort_keys(&table, query.clone().limit(rows)).await, expected, "{query:?} by {rows}");
        }
    }
}

#[tokio::test]
async fn the_page_after_the_last_matching_row_is_empty() {
    let table = new_table().await;
    for sk in ["A", "B", "C"] {
        put(&table, sk, Item::new()).await;
    }
    let after = |query: Query, sk: &str| query.after(Cursor::after(key(sk)));
    let all = || Query::of("CACHE#1");
    for query in [
        after(all(), "C"),
        after(all().backward(), "A"),
        after(all().sk_is("B"), "B"),
        after(all().begins_with("B"), "B"),
        after(all().sk_between("A", "B"), "B"),
        after(all().sk_between("B", "C").backward(), "B"),
        after(all().sk_le("B"), "B"),
        after(all().sk_ge("B").backward(), "B"),
        after(all().sk_lt("C"), "B"),
        after(all().sk_gt("A").backward(), "B"),
    ] {
        assert_eq!(table.query(&query).await.expect("a valid cursor"), Page::default(), "{query:?}");
    }
}

#[tokio::test]
async fn a_scan_returns_every_row_once() {
    let table = new_table().await;
    for index in 0..7 {
        let write = Write::put(Key::new(format!("CACHE#{index}"), "META"), Item::new());
        assert!(table.commit(&write.into()).await.expect("a response").is_done());
    }
    let (mut found, mut scan, mut pages) = (Vec::new(), Scan::new().limit(3), 0);
    loop {
        pages += 1;
        assert!(pages <= MAX_PAGES, "the scan does not end");
        let page = table.scan(&scan).await.expect("a response");
        assert!(page.items.len() <= 3);
        found.extend(page.items.iter().map(|item| item.key().expect("a key").pk));
        match page.next {
            Some(cursor) => scan = Scan::new().limit(3).after(cursor),
            None => break,
        }
    }
    found.sort();
    let expected: Vec<String> = (0..7).map(|index| format!("CACHE#{index}")).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_batch_may_have_many_and_repeated_keys() {
    let table = new_table().await;
    for index in [3, 120, 240] {
        put(&table, &format!("VER#{index}"), numbered(index)).await;
    }
    let mut keys: Vec<Key> = (0..250).map(|index| key(&format!("VER#{index}"))).collect();
    keys.extend([key("VER#3"), key("VER#3")]);
    let rows = table.batch_get(&keys, Consistency::Strong).await.expect("a response");
    let found: Vec<_> = rows
        .iter()
        .enumerate()
        .filter_map(|(at, row)| Some((at, row.as_ref()?.get("version")?.as_i64()?)))
        .collect();
    assert_eq!(rows.len(), 252);
    assert_eq!(found, [(3, 3), (120, 120), (240, 240), (250, 3), (251, 3)]);
    assert_eq!(table.batch_get(&[], Consistency::Strong).await.expect("a response"), []);
}

/// Reports all keys except the first as unprocessed.
fn only_the_first(request: &Json, mut response: Json) -> Json {
    let (name, requested) =
        request["RequestItems"].as_object().and_then(|map| map.iter().next()).expect("one");
    let keys = requested["Keys"].as_array().expect("keys").clone();
    let first = keys[0]["sk"]["S"].clone();
    let rows = response["Responses"][name].as_array_mut().expect("rows");
    rows.retain(|row| row["sk"]["S"] == first);
    let mut unprocessed = json!({});
    unprocessed[name] = json!({ "Keys": keys[1..], "ConsistentRead": true });
    response["UnprocessedKeys"] = unprocessed;
    response
}

/// Reports all keys as unprocessed.
fn none(request: &Json, mut response: Json) -> Json {
    response["Responses"] = json!({});
    response["UnprocessedKeys"] = request["RequestItems"].clone();
    response
}

#[tokio::test]
async fn unprocessed_keys_are_requested_again() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    for sk in ["A", "B", "C"] {
        put(&direct, sk, Item::new()).await;
    }
    let keys = [key("C"), key("A"), key("B")];
    proxy.script([Action::Rewrite(only_the_first), Action::Rewrite(none), Action::Rewrite(only_the_first)]);
    let rows = table.batch_get(&keys, Consistency::Strong).await.expect("all rows");
    let found: Vec<_> =
        rows.into_iter().map(|row| row.expect("the row exists").key().expect("a key")).collect();
    assert_eq!(found, keys);
    let requested = |request: &proxy::Request| {
        request.body["RequestItems"][direct.name()]["Keys"].as_array().map(Vec::len)
    };
    assert_eq!(proxy.seen().iter().map(requested).collect::<Vec<_>>(), [Some(3), Some(2), Some(2), Some(1)]);

    // The limit of attempts applies to consecutive attempts without progress.
    let mut slow = vec![Action::Rewrite(none); ATTEMPTS as usize - 1];
    slow.push(Action::Rewrite(only_the_first));
    proxy.script([slow.clone(), slow].concat());
    let rows = table.batch_get(&keys, Consistency::Strong).await.expect("all rows");
    assert_eq!(rows.iter().flatten().count(), 3);

    proxy.script(vec![Action::Rewrite(none); 20]);
    let error = table.batch_get(&keys, Consistency::Strong).await.expect_err("always throttled");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("3 of 3 left"), "{error}");
    assert_eq!(proxy.seen().len(), ATTEMPTS as usize);
}

/// A model of the rows in these tests.
#[derive(Model, Debug)]
struct Row {
    #[model(pk)]
    pk: String,
    #[model(sk)]
    sk: String,
}

#[tokio::test]
async fn reads_request_the_given_consistency() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    // DynamoDB Local is always consistent, so the test inspects the requests.
    let requests = || {
        let consistent = |request: proxy::Request| {
            let batch = &request.body["RequestItems"][direct.name()]["ConsistentRead"];
            let consistent = request.body["ConsistentRead"].as_bool().or(batch.as_bool()).unwrap_or(false);
            (request.operation, consistent)
        };
        let seen: Vec<_> = proxy.seen().into_iter().map(consistent).collect();
        proxy.script([]);
        seen
    };
    let request = |operation: &str, consistent: bool| (operation.to_owned(), consistent);
    let keys = [key("META")];
    for (consistency, consistent) in [(Consistency::Strong, true), (Consistency::Eventual, false)] {
        assert_eq!(table.get(&keys[0], consistency).await.expect("a response"), None);
        assert_eq!(table.batch_get(&keys, consistency).await.expect("a response"), [None]);
        assert_eq!(requests(), [request("GetItem", consistent), request("BatchGetItem", consistent)]);
    }
    for (query, consistent) in [(Query::of("CACHE#1"), true), (Query::of("CACHE#1").eventual(), false)] {
        assert_eq!(table.query(&query).await.expect("a response"), Page::default());
        assert_eq!(requests(), [request("Query", consistent)]);
    }
    assert_eq!(table.scan(&Scan::new()).await.expect("a response"), Page::default());
    assert_eq!(requests(), [request("Scan", true)]);
    assert!(table.rows::<Row>().get(&keys[0]).await.expect("a response").is_none());
    assert!(table.rows::<Row>().get_eventual(&keys[0]).await.expect("a response").is_none());
    assert_eq!(requests(), [request("GetItem", true), request("GetItem", false)]);
}
