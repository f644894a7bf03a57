//! Writes: single rows, transactions, refusals, limits and tokens.

use super::*;

#[tokio::test]
async fn a_row_is_put_read_updated_and_deleted() {
    let table = new_table().await;
    assert_eq!(read(&table, "META").await, None);
    put(&table, "META", numbered(1)).await;
    let expected = Item::from([("pk", Value::from("CACHE#1")), ("sk", "META".into()), ("version", 1.into())]);
    assert_eq!(read(&table, "META").await, Some(expected.clone()));
    assert_eq!(table.get(&key("META"), Consistency::Eventual).await.expect("a response"), Some(expected));

    let change = Update::new([
        VERSION.add(2),
        Attr::<Vec<String>>::new("log").append(["one"]),
        Attr::<String>::new("size").set_if_absent("a reserved word as the name"),
    ]);
    let update = Write::update(key("META"), change).when(VERSION.is(1));
    assert!(table.commit(&update.into()).await.expect("a response").is_done());
    let row = read(&table, "META").await.expect("the row exists");
    assert_eq!(row.get("version"), Some(&3.into()));
    assert_eq!(row.get("log"), Some(&Value::L(vec!["one".into()])));

    assert!(table.commit(&Write::delete(key("META")).into()).await.expect("a response").is_done());
    assert_eq!(read(&table, "META").await, None);
}

#[tokio::test]
async fn a_refusal_returns_the_stored_row() {
    let table = new_table().await;
    put(&table, "META", numbered(7)).await;
    let seen = read(&table, "META").await;
    let refused = |index| Commit::Refused { index, seen: seen.clone() };
    let is_false = || VERSION.is(8);
    for write in [
        Write::put(key("META"), numbered(9)).when(is_false()),
        Write::update(key("META"), Update::new([VERSION.set(9)])).when(is_false()),
        Write::delete(key("META")).when(is_false()),
        Write::check(key("META"), is_false()),
    ] {
        assert_eq!(table.commit(&write.clone().into()).await.expect("a response"), refused(0), "{write:?}");
        let txn = Txn::new([Write::put(key("OTHER"), Item::new()), write]);
        assert_eq!(table.commit(&txn).await.expect("a response"), refused(1));
    }
    assert_eq!(read(&table, "META").await, seen);
    assert_eq!(read(&table, "OTHER").await, None);

    let absent = Write::check(key("NONE"), PK.exists());
    let nothing = Commit::Refused { index: 0, seen: None };
    assert_eq!(table.commit(&absent.into()).await.expect("a response"), nothing);
    let exists = Write::check(key("META"), VERSION.is(7));
    assert!(table.commit(&exists.into()).await.expect("a response").is_done());
}

#[tokio::test]
async fn the_longest_expressions_are_accepted() {
    let table = new_table().await;
    let appends = (0..tabletheory::limit::MAX_CHANGES)
        .map(|index| Attr::<Vec<String>>::named(format!("list{index}")).append(["x"]));
    // One term is the connective.
    let absent = (1..tabletheory::limit::MAX_TERMS)
        .map(|index| Attr::<String>::named(format!("test{index}")).absent());
    let write = Write::update(key("META"), Update::new(appends)).when(Cond::all(absent));
    assert!(table.commit(&write.clone().into()).await.expect("within the limits").is_done());
    let txn = Txn::from(write).with_token(ClientToken::random(&SystemRandom));
    assert!(table.commit(&txn).await.expect("within the limits").is_done());
    let row = read(&table, "META").await.expect("the row exists");
    assert_eq!(row.get("list79"), Some(&Value::L(vec!["x".into(), "x".into()])));
}

#[tokio::test]
async fn the_error_of_an_impossible_update_names_the_write() {
    let table = new_table().await;
    put(&table, "META", Item::from([("version", "a string".into())])).await;
    let add = || Write::update(key("META"), Update::new([VERSION.add(1)]));
    assert_eq!(failed(&table, add()).await.kind(), Kind::Invalid);
    let two = Txn::new([Write::delete(key("OTHER")), add()]);
    assert_eq!(failed(&table, two).await.kind(), Kind::Invalid);

    put(&table, "LARGE", Item::from([("body", "x".repeat(300_000).into())])).await;
    let grow =
        Write::update(key("LARGE"), Update::new([Attr::<String>::new("more").set("x".repeat(200_000))]));
    let error = failed(&table, Txn::new([Write::delete(key("OTHER")), grow.clone()])).await;
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().starts_with("write 1 (LARGE of CACHE#1): "), "{error}");
    assert_eq!(failed(&table, grow).await.kind(), Kind::Invalid);
}

#[tokio::test]
async fn a_token_prevents_a_second_application_and_reuse_for_other_writes() {
    let table = new_table().await;
    let token = ClientToken::random(&SystemRandom);
    let hit =
        |by| Txn::from(Write::update(key("META"), Update::new([HITS.add(by)]))).with_token(token.clone());
    assert!(table.commit(&hit(1)).await.expect("a response").is_done());
    assert!(table.commit(&hit(1)).await.expect("a response").is_done());
    assert_eq!(number(&table, "META", "hits").await, Some(1));
    let error = failed(&table, hit(2)).await;
    assert_eq!(error.kind(), Kind::Unknown);
    assert!(error.to_string().starts_with("the client token was used"), "{error}");
}
