//! Puts and deletes.

use std::collections::BTreeMap;

use tabletheory::{Attr, Commit, Item, Number, Set, Value, Write};

use crate::fixture::{Fixture, item};

const PK: Attr<String> = Attr::new("pk");
const N: Attr<i64> = Attr::new("n");

pub(crate) fn one_of_each_type() -> Item {
    item([
        ("string", "é\0\u{10FFFF}\"\\\n".into()),
        ("empty", "".into()),
        ("number", Value::N("-12345678901234567890.123456789012345678".parse().expect("38 digits"))),
        ("tiny", Value::N("1E-130".parse().expect("the smallest"))),
        ("huge", Value::N("9.9E125".parse().expect("a large one"))),
        ("bytes", vec![0_u8, 255, 128].into()),
        ("no bytes", Vec::<u8>::new().into()),
        ("true", true.into()),
        ("null", Value::Null),
        ("list", Value::L(vec![1.into(), "two".into(), Value::L(vec![]), Value::M(BTreeMap::new())])),
        ("map", Value::M(BTreeMap::from([("ключ".to_string(), Value::Bool(false))]))),
        ("strings", Set::new(["b".to_string(), String::new(), "a".to_string()]).expect("a set").into()),
        ("numbers", Set::new([Number::from(2), "-1.5".parse().expect("a number")]).expect("a set").into()),
        ("byte strings", Set::new([vec![200_u8], vec![1], vec![]]).expect("a set").into()),
    ])
}

pub(crate) async fn values_of_every_type_are_stored(t: &Fixture) {
    t.put("META", one_of_each_type()).await;
    assert_eq!(t.get("META").await, Some(t.stored("META", one_of_each_type())));
    assert_eq!(t.rows().await, [t.stored("META", one_of_each_type())]);
}

pub(crate) async fn a_put_replaces_the_whole_row(t: &Fixture) {
    t.put("META", item([("old", 1.into()), ("both", 1.into())])).await;
    t.put("META", item([("new", 2.into()), ("both", 2.into())])).await;
    let row = t.stored("META", item([("new", 2.into()), ("both", 2.into())]));
    assert_eq!(t.get("META").await, Some(row));
}

pub(crate) async fn a_delete_of_an_absent_row_succeeds(t: &Fixture) {
    let delete = || Write::delete(t.key("LOCK"));
    assert_eq!(t.commit([delete()]).await.expect("a delete"), Commit::Done);
    t.put("LOCK", Item::new()).await;
    assert_eq!(t.commit([delete()]).await.expect("a delete"), Commit::Done);
    assert_eq!(t.get("LOCK").await, None);
    // With a condition it does not.
    let refused = t.commit([delete().when(PK.exists())]).await.expect("a delete");
    assert_eq!(refused, Commit::Refused { index: 0, seen: None });
}

pub(crate) async fn a_refused_write_returns_the_stored_row(t: &Fixture) {
    let row = t.stored("META", item([("n", 1.into())]));
    t.put("META", item([("n", 1.into())])).await;
    for write in [
        Write::put(t.key("META"), Item::new()),
        Write::update(t.key("META"), tabletheory::Update::new([N.set(9)])),
        Write::delete(t.key("META")),
        Write::check(t.key("META"), N.lt(5)),
    ] {
        let refused = t.commit([write.when(N.is(2))]).await.expect("a refusal is not an error");
        assert_eq!(refused, Commit::Refused { index: 0, seen: Some(row.clone()) });
    }
    assert_eq!(t.get("META").await, Some(row));
}

pub(crate) async fn rows_of_the_maximum_size_are_stored(t: &Fixture) {
    // 400 KB: the names `pk`, `sk` and `a`, and their values.
    let key = t.key("META");
    let room = 400 * 1024 - "pk".len() - key.pk.len() - "sk".len() - key.sk.len() - "a".len();
    t.put("META", item([("a", "x".repeat(room).into())])).await;
    let row = t.get("META").await.expect("the row exists");
    assert_eq!(row.get("a").and_then(Value::as_str).map(str::len), Some(room));
    // One byte more is rejected, also by an update.
    let grow = tabletheory::Update::new([Attr::<String>::new("b").set("")]);
    let error = t.commit([Write::update(key, grow)]).await.expect_err("too large");
    assert_eq!(error.kind(), tabletheory::Kind::Invalid);
    assert_eq!(t.get("META").await, Some(row));
}

pub(crate) async fn the_sizes_of_all_types_match_the_limit_exactly(t: &Fixture) {
    let key = t.key("META");
    let empty = "pk".len() + key.pk.len() + "sk".len() + key.sk.len();
    let numbers = Set::new([Number::from(12), Number::from(-3)]).expect("a set");
    let strings = Set::new(["a".to_string(), "bc".to_string()]).expect("a set");
    let bytes = Set::new([vec![1_u8], vec![2, 3]]).expect("a set");
    // A list or map counts 3, plus 1 for each member, plus the sizes of the members.
    for (value, size) in [
        (Value::Null, 1),
        (true.into(), 1),
        (vec![0_u8; 5].into(), 5),
        (Value::N("-12.5".parse().expect("a number")), 4),
        (Value::L(vec![]), 3),
        (Value::L(vec!["ab".into(), Value::Null]), 3 + (1 + 2) + (1 + 1)),
        (Value::M(BTreeMap::from([("name".to_string(), Value::Null)])), 3 + (1 + 4 + 1)),
        (numbers.into(), 2 + 3),
        (strings.into(), 1 + 2),
        (bytes.into(), 1 + 2),
    ] {
        let room = 400 * 1024 - empty - ("v".len() + size) - "a".len();
        let put = |room: usize| {
            Write::put(key.clone(), item([("v", value.clone()), ("a", "x".repeat(room).into())]))
        };
        assert!(t.commit([put(room)]).await.expect("it fits").is_done(), "{value}");
        let error = t.commit([put(room + 1)]).await.expect_err("one byte too much");
        assert!(error.to_string().ends_with("the item has 409601 bytes; the limit is 409600"), "{error}");
    }
}
