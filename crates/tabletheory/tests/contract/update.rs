//! Updates.

use tabletheory::{Attr, Item, Kind, Number, Set, Update, Value, Write};

use crate::fixture::{Fixture, item};

const A: Attr<Value> = Attr::new("a");
const B: Attr<Value> = Attr::new("b");
const C: Attr<Value> = Attr::new("c");
const D: Attr<Value> = Attr::new("d");

async fn update(t: &Fixture, sk: &str, update: Update) {
    let commit = t.commit([Write::update(t.key(sk), update)]).await;
    assert!(commit.expect("a valid update").is_done());
}

fn strings(members: &[&str]) -> Value {
    Set::new(members.iter().map(ToString::to_string)).expect("a set").into()
}

pub(crate) async fn all_changes_of_an_update_are_applied(t: &Fixture) {
    let list = |values: &[i64]| Value::L(values.iter().map(|n| (*n).into()).collect());
    t.put("META", item([("a", 1.into()), ("b", list(&[1])), ("c", strings(&["x"])), ("keep", true.into())]))
        .await;
    let every_kind = Update::new([
        A.add(2),
        B.append([2, 3]),
        C.add(strings(&["x", "y"])),
        D.set_if_absent("first"),
        Attr::<Value>::new("e").set(Value::Null),
        Attr::<Value>::new("f").remove(),
    ]);
    update(t, "META", every_kind.clone()).await;
    let expected = item([
        ("a", 3.into()),
        ("b", list(&[1, 2, 3])),
        ("c", strings(&["x", "y"])),
        ("d", "first".into()),
        ("e", Value::Null),
        ("keep", true.into()),
    ]);
    assert_eq!(t.get("META").await, Some(t.stored("META", expected)));
    update(t, "META", Update::new([A.remove(), B.set("gone"), D.set_if_absent("second")])).await;
    let expected = item([
        ("b", "gone".into()),
        ("c", strings(&["x", "y"])),
        ("d", "first".into()),
        ("e", Value::Null),
        ("keep", true.into()),
    ]);
    assert_eq!(t.get("META").await, Some(t.stored("META", expected)));
}

pub(crate) async fn an_update_creates_a_missing_row(t: &Fixture) {
    update(t, "add", Update::new([A.add(5)])).await;
    update(t, "remove", Update::new([A.remove()])).await;
    update(t, "append", Update::new([A.append(["x"])])).await;
    update(t, "set", Update::new([A.set_if_absent(1)])).await;
    assert_eq!(t.get("add").await, Some(t.stored("add", item([("a", 5.into())]))));
    assert_eq!(t.get("remove").await, Some(t.stored("remove", Item::new())));
    assert_eq!(t.get("append").await, Some(t.stored("append", item([("a", Value::L(vec!["x".into()]))]))));
    assert_eq!(t.get("set").await, Some(t.stored("set", item([("a", 1.into())]))));
}

pub(crate) async fn sums_of_numbers_are_exact(t: &Fixture) {
    let number = |text: &str| Value::N(text.parse::<Number>().expect(text));
    let sums = "
        0.1 + 0.2 = 0.3
        1 + -1 = 0
        1.5 + 1.50 = 3
        99999999999999999999999999999999999999 + 1 = 1E38
        1E38 + 10 = 100000000000000000000000000000000000010
        -1E-130 + 2E-130 = 1E-130";
    for sum in sums.trim().lines() {
        let parts: Vec<&str> = sum.split_whitespace().collect();
        let [before, "+", added, "=", after] = parts[..] else { panic!("{sum} is not a sum") };
        t.put("META", item([("a", number(before))])).await;
        update(t, "META", Update::new([A.add(number(added))])).await;
        let row = t.get("META").await.expect("the row exists");
        assert_eq!(row.get("a"), Some(&number(after)), "{before} + {added}");
    }
}

pub(crate) async fn adding_to_a_set_is_a_union(t: &Fixture) {
    let numbers = |members: &[i64]| -> Value {
        Set::new(members.iter().map(|n| Number::from(*n))).expect("a set").into()
    };
    let bytes =
        |members: &[u8]| -> Value { Set::new(members.iter().map(|b| vec![*b])).expect("a set").into() };
    for (first, second, both) in [
        (strings(&["x"]), strings(&["x", "y"]), strings(&["x", "y"])),
        (numbers(&[1, 2]), numbers(&[2, 30]), numbers(&[1, 2, 30])),
        (bytes(&[1]), bytes(&[255, 1]), bytes(&[1, 255])),
    ] {
        t.put("META", Item::new()).await;
        update(t, "META", Update::new([A.add(first)])).await;
        update(t, "META", Update::new([A.add(second)])).await;
        assert_eq!(t.get("META").await, Some(t.stored("META", item([("a", both)]))));
    }
}

pub(crate) async fn an_impossible_change_is_an_error_and_changes_nothing(t: &Fixture) {
    let number = |text: &str| Value::N(text.parse::<Number>().expect(text));
    for (before, change) in [
        (Value::from("text"), A.add(1)),
        (Value::Null, A.add(1)),
        (1.into(), A.add(strings(&["x"]))),
        (strings(&["x"]), A.add(1)),
        ("text".into(), A.append(["x"])),
        (Value::Null, A.append(["x"])),
        (number("1E100"), A.add(1)),
        (number("9E125"), A.add(number("9E125"))),
        (number("1.5E-130"), A.add(number("-1E-130"))),
    ] {
        t.put("META", item([("a", before.clone())])).await;
        let row = t.get("META").await;
        for writes in [
            vec![Write::update(t.key("META"), Update::new([change.clone()]))],
            vec![
                Write::put(t.key("other"), Item::new()),
                Write::update(t.key("META"), Update::new([change.clone()])),
            ],
        ] {
            let error = t.commit(writes).await.expect_err("an impossible change");
            assert_eq!(error.kind(), Kind::Invalid, "{before} {change:?}: {error}");
        }
        assert_eq!(t.get("META").await, row);
        assert_eq!(t.get("other").await, None);
    }
}
