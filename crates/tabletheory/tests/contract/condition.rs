//! Evaluation of conditions.

use std::collections::BTreeMap;

use tabletheory::{Attr, Cond, Item, Number, Set, Value, Write};

use crate::fixture::Fixture;
use crate::write::one_of_each_type;

fn attr(name: &'static str) -> Attr<Value> {
    Attr::new(name)
}

fn number(text: &str) -> Value {
    Value::N(text.parse().expect(text))
}

fn strings(members: &[&str]) -> Value {
    Set::new(members.iter().map(ToString::to_string)).expect("a set").into()
}

/// Conditions on a row with one attribute of each type, and their results.
fn cases() -> Vec<(Cond, bool)> {
    let n = attr("number");
    let list = Value::L(vec![number("1.0"), "two".into(), Value::L(vec![]), Value::M(BTreeMap::new())]);
    let numbers: Value =
        Set::new(["-1.50".parse::<Number>().expect("a number"), 2.into()]).expect("a set").into();
    let mut cases = vec![
        (attr("string").exists(), true),
        (attr("absent").exists(), false),
        (attr("null").exists(), true),
        (attr("string").absent(), false),
        (attr("absent").absent(), true),
        // Equality is deep, numeric for numbers, and ignores the order of sets.
        (attr("empty").is(""), true),
        (attr("true").is(true), true),
        (attr("true").is(false), false),
        (attr("null").is(Value::Null), true),
        (attr("list").is(list.clone()), true),
        (attr("list").is(Value::L(vec![])), false),
        (attr("map").is(Value::M(BTreeMap::from([("ключ".into(), false.into())]))), true),
        (attr("strings").is(strings(&["a", "", "b"])), true),
        (attr("strings").is(strings(&["a", "b"])), false),
        (attr("numbers").is(numbers), true),
        (attr("bytes").is(vec![0_u8, 255, 128]), true),
        (attr("list").is_not(list), false),
        // Values of different types are never equal.
        (attr("empty").is(Value::Null), false),
        (attr("empty").is_not(Value::Null), true),
        (n.is("-12345678901234567890.123456789012345678"), false),
        (n.is(number("-12345678901234567890.1234567890123456780")), true),
        // Numbers are ordered by value, strings and byte strings by bytes.
        (n.lt(number("-12345678901234567890.123456789012345677")), true),
        (n.gt(number("-12345678901234567890.123456789012345679")), true),
        (n.le(number("0")), true),
        (n.ge(number("0")), false),
        // Comparisons with absent attributes and other types are false, so the negation is true.
        (!attr("string").ge(0), true),
        (!attr("null").gt(0), true),
        (!attr("strings").ge(0), true),
        (!attr("absent").ge(0), true),
        (!attr("number").ge("\0"), true),
        (!attr("empty").ge("\0"), true),
        (!attr("string").ge("\0"), false),
        (attr("tiny").gt(number("0")), true),
        (attr("huge").gt(number("1E125")), true),
        (attr("string").lt("ê"), true),
        (attr("string").gt("\u{7F}"), true),
        (attr("bytes").gt(vec![0_u8, 127]), true),
        (attr("bytes").lt(vec![0_u8, 255, 128, 0]), true),
        (n.between(number("-2E19"), number("0")), true),
        (n.between(number("0"), number("1")), false),
        (attr("empty").between("", "a"), true),
        (n.is_in([number("1"), number("-12345678901234567890.123456789012345678")]), true),
        (n.is_in([Value::from("x"), Value::Null, true.into()]), false),
        // Prefixes and members.
        (attr("string").begins_with("é\0"), true),
        (attr("string").begins_with(""), true),
        (attr("string").begins_with(vec![0xC3_u8]), false),
        (attr("bytes").begins_with(vec![0_u8, 255]), true),
        (attr("string").contains("\"\\"), true),
        (attr("string").contains(""), true),
        (attr("bytes").contains(vec![255_u8, 128]), true),
        (attr("bytes").contains(vec![128_u8, 255]), false),
        (attr("bytes").contains(Vec::<u8>::new()), true),
        (attr("list").contains(number("1.00")), true),
        (attr("list").contains(Value::L(vec![])), true),
        (attr("list").contains("tw"), false),
        (attr("strings").contains("a"), true),
        (attr("strings").contains("c"), false),
        (attr("numbers").contains(number("-1.500")), true),
        (attr("byte strings").contains(vec![200_u8]), true),
        (attr("string").contains(1), false),
        (attr("number").contains(1), false),
        (attr("map").contains("ключ"), false),
        (attr("strings").contains(strings(&["a"])), false),
        // Sizes; strings in UTF-16 units, as in DynamoDB Local.
        (attr("empty").size().is(0), true),
        (attr("string").size().is(7), true),
        (attr("bytes").size().is(3), true),
        (attr("list").size().ge(4), true),
        (attr("map").size().is(1), true),
        (attr("strings").size().lt(4), true),
        (attr("number").size().gt(0), false),
        (attr("number").size().is_not(0), true),
        (attr("true").size().le(9), false),
        (attr("absent").size().lt(9), false),
        (attr("absent").size().is_not(9), true),
    ];
    // Every comparison with an absent attribute or another type is false, except "not equal".
    for other in [attr("absent"), attr("null"), attr("true"), attr("list"), attr("strings")] {
        cases.extend([
            (other.is(1), false),
            (other.is_not(1), true),
            (other.lt(1), false),
            (other.le(1), false),
            (other.gt(1), false),
            (other.ge(1), false),
            (other.between(0, 9), false),
            (other.is_in([1, 2]), false),
            (other.begins_with("a"), false),
        ]);
    }
    cases
}

pub(crate) async fn conditions_have_the_same_result_on_every_backend(t: &Fixture) {
    t.put("META", one_of_each_type()).await;
    let holds = async |cond: Cond| {
        let commit = t.commit([Write::check(t.key("META"), cond)]).await;
        commit.expect("a valid condition").is_done()
    };
    for (cond, expected) in cases() {
        let text = cond.to_string();
        assert_eq!(holds(cond.clone()).await, expected, "{text}");
        assert_eq!(holds(!cond.clone()).await, !expected, "NOT {text}");
        let yes = attr("string").exists();
        assert_eq!(holds(cond.clone().and(yes.clone())).await, expected, "{text} AND true");
        assert_eq!(holds((!yes).or(cond)).await, expected, "false OR {text}");
    }
}

pub(crate) async fn an_absent_row_counts_as_one_without_attributes(t: &Fixture) {
    for (cond, expected) in [
        (attr("pk").absent(), true),
        (attr("pk").exists(), false),
        (attr("pk").is(t.pk("p")), false),
        (attr("a").is_not(1), true),
        (!attr("a").is(1), true),
        (!attr("a").is_not(1), false),
        (attr("a").lt(1), false),
        (!attr("a").contains("x"), true),
        (Cond::all([Cond::any([Cond::all([attr("a").absent()])])]), true),
        (!!attr("a").absent(), true),
    ] {
        for write in
            [Write::check(t.key("absent"), cond.clone()), Write::delete(t.key("absent")).when(cond.clone())]
        {
            let commit = t.commit([write]).await.expect("a valid condition");
            assert_eq!(commit.is_done(), expected, "{cond}");
        }
        let put = Write::put(t.key("new"), Item::new()).when(cond.clone());
        assert_eq!(t.commit([put]).await.expect("a put").is_done(), expected, "{cond}");
        let clean = t.commit([Write::delete(t.key("new"))]).await;
        assert!(clean.expect("a delete").is_done());
    }
}

pub(crate) async fn all_conditions_of_a_write_must_hold(t: &Fixture) {
    t.put("META", Item::from([("n", Value::from(1))])).await;
    let (holds, fails) = (|| attr("pk").exists(), || attr("n").is(2));
    let writes = || {
        [
            Write::check(t.key("META"), holds()),
            Write::update(t.key("META"), tabletheory::Update::new([attr("a").set(1)])).when(holds()),
            Write::put(t.key("META"), Item::new()).when(holds()),
            Write::delete(t.key("META")).when(holds()),
        ]
    };
    let before = t.rows().await;
    for write in writes() {
        for write in [write.clone().when(fails()), write.when(fails()).when(holds())] {
            let commit = t.commit([write.clone()]).await.expect("a refusal is not an error");
            assert!(commit.is_refused(), "{write:?}");
        }
    }
    assert_eq!(t.rows().await, before);
    for write in writes() {
        let commit = t.commit([write.clone().when(attr("n").is_not(2))]).await.expect("both hold");
        assert!(commit.is_done(), "{write:?}");
    }
}
