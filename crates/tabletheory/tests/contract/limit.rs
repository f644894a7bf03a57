//! Invalid calls: every backend rejects them with the same message before it writes anything.

use std::collections::BTreeMap;

use tabletheory::{
    Attr, ClientToken, Cond, Consistency, Cursor, Error, Item, Key, Kind, Number, Query, Scan, Set, Txn,
    Update, Value, Write,
};

use crate::fixture::{Fixture, item};

const A: Attr<Value> = Attr::new("a");
const PK: Attr<String> = Attr::new("pk");

/// Lists nested to this depth.
fn nested(levels: usize) -> Value {
    (1..levels).fold(Value::L(vec![]), |inner, _| Value::L(vec![inner]))
}

/// Maps nested to this depth.
fn nested_maps(levels: usize) -> Value {
    let around = |inner| Value::M(BTreeMap::from([("m".to_string(), inner)]));
    (1..levels).fold(Value::M(BTreeMap::new()), |inner, _| around(inner))
}

fn negated(times: usize) -> Cond {
    (0..times).fold(A.exists(), |cond, _| !cond)
}

/// Invalid transactions with their error messages.
fn invalid_transactions(t: &Fixture) -> Vec<(Txn, String)> {
    let key = || t.key("META");
    let put = |value: Value| Txn::from(Write::put(key(), item([("a", value)])));
    let update = |changes: Vec<tabletheory::Change>| Txn::from(Write::update(key(), Update::new(changes)));
    let when = |cond: Cond| Txn::from(Write::delete(key()).when(cond));
    let of_key = |key: Key| Txn::from(Write::delete(key));
    let meta = format!("write 0 (META of {})", t.pk("p"));
    let on_a = format!("{meta}: the condition on `a`");
    let long = "x".repeat(300_000);
    vec![
        (Txn::new([]), "the transaction has no writes".into()),
        (
            Txn::new((0..101).map(|n| Write::delete(t.key(&n.to_string())))),
            "the transaction has 101 writes; the limit is 100".into(),
        ),
        (
            Txn::new([Write::check(key(), A.exists()), Write::delete(t.key("LOCK")), Write::delete(key())]),
            format!(
                "writes 0 and 2 both name META of {}; a transaction may name a row once, \
                 so put the condition on the write itself",
                t.pk("p")
            ),
        ),
        (
            Txn::new((0..15).map(|n| Write::put(t.key(&n.to_string()), item([("a", long.as_str().into())])))),
            format!(
                "the transaction has {} bytes; the limit is 4194304",
                15 * (300_000 + "pkska".len() + t.pk("p").len()) + 20
            ),
        ),
        // Keys.
        (of_key(Key::new("", "META")), "write 0 (META of ): the partition key is empty".into()),
        (of_key(Key::new("p", "")), "write 0 ( of p): the sort key is empty".into()),
        (
            of_key(Key::new("p".repeat(2049), "META")),
            format!(
                "write 0 (META of {}…): the partition key has 2049 bytes; the limit is 2048",
                "p".repeat(80)
            ),
        ),
        (
            of_key(Key::new("p", "é".repeat(513))),
            format!("write 0 ({}… of p): the sort key has 1026 bytes; the limit is 1024", "é".repeat(80)),
        ),
        (
            Txn::from(Write::put(key(), item([("pk", "another".into())]))),
            format!("{meta}: the item has another `pk` than the key of the write"),
        ),
        (
            Txn::from(Write::put(key(), item([("sk", 1.into())]))),
            format!("{meta}: the item has another `sk` than the key of the write"),
        ),
        // Items.
        (
            put("x".repeat(409_600).into()),
            format!("{meta}: the item has {} bytes; the limit is 409600", 409_609 + t.pk("p").len()),
        ),
        (
            Txn::from(Write::put(key(), item([("", 1.into())]))),
            format!("{meta}: an attribute's name is empty"),
        ),
        (
            Txn::from(Write::put(key(), Item::from([("n".repeat(256), Value::from(1))]))),
            format!("{meta}: an attribute's name has 256 bytes; the limit is 255"),
        ),
        (put(nested(32)), format!("{meta}: `a`: lists and maps are nested deeper than 32 levels")),
        (put(nested(500)), format!("{meta}: `a`: lists and maps are nested deeper than 32 levels")),
        (put(nested_maps(32)), format!("{meta}: `a`: lists and maps are nested deeper than 32 levels")),
        // Updates.
        (update(vec![]), format!("{meta}: the update changes nothing")),
        (update(vec![A.set(1), A.remove()]), format!("{meta}: the update changes `a` twice")),
        (
            update(vec![Attr::<Value>::new("pk").set("x")]),
            format!(
                "{meta}: the update changes the key attribute `pk`; \
                 put a new row and delete the old one instead"
            ),
        ),
        (
            update(vec![Attr::<Value>::new("sk").remove()]),
            format!(
                "{meta}: the update changes the key attribute `sk`; \
                 put a new row and delete the old one instead"
            ),
        ),
        (update(vec![A.add("text")]), format!("{meta}: `a`: ADD takes N, SS, NS or BS, not S")),
        (update(vec![A.add(Value::L(vec![]))]), format!("{meta}: `a`: ADD takes N, SS, NS or BS, not L")),
        (
            update((0..81).map(|n| Attr::<i64>::named(n.to_string()).set(n)).collect()),
            format!("{meta}: the update has 81 changes; the limit is 80"),
        ),
        (
            update(vec![A.set("x".repeat(409_600))]),
            format!("{meta}: the item has 409601 bytes; the limit is 409600"),
        ),
        (
            update(vec![A.append([nested(31)])]),
            format!("{meta}: `a`: lists and maps are nested deeper than 32 levels"),
        ),
        (update(vec![Attr::<i64>::new("").set(1)]), format!("{meta}: an attribute's name is empty")),
        // Conditions.
        (when(A.lt(true)), format!("{on_a}: < takes S, N or B, not BOOL")),
        (when(A.ge(Value::Null)), format!("{on_a}: >= takes S, N or B, not NULL")),
        (when(A.between(1, Value::L(vec![]))), format!("{on_a}: BETWEEN takes S, N or B, not L")),
        (when(A.between(1, "2")), format!("{on_a}: BETWEEN has bounds of two types, N and S")),
        (
            when(A.between("b", "a")),
            format!("{on_a}: BETWEEN has a lower bound that is greater than its upper bound"),
        ),
        (when(A.begins_with(1)), format!("{on_a}: begins_with takes S or B, not N")),
        (when(A.is_in(Vec::<Value>::new())), format!("{on_a}: IN has no values")),
        (when(A.is_in(0..91)), format!("{meta}: the condition has more than 90 terms")),
        (when(Cond::any((0..90).map(|n| A.is(n)))), format!("{meta}: the condition has more than 90 terms")),
        (when(Cond::all([])), format!("{meta}: an AND or OR has no conditions")),
        (when(A.exists().and(!Cond::any([]))), format!("{meta}: an AND or OR has no conditions")),
        (when(negated(32)), format!("{meta}: the condition is nested deeper than 32 levels")),
        (when(negated(300)), format!("{meta}: the condition is nested deeper than 32 levels")),
        (when(Attr::<i64>::new("").is(1)), format!("{meta}: an attribute's name is empty")),
        (when(A.is(nested(40))), format!("{on_a}: lists and maps are nested deeper than 32 levels")),
        (when(A.is_in([nested(40)])), format!("{on_a}: lists and maps are nested deeper than 32 levels")),
        (
            when(Cond::any((0..4).map(|_| A.is(long.as_str())))),
            format!("{meta}: the condition has 1200229 bytes; the limit is 1048576"),
        ),
    ]
}

pub(crate) async fn invalid_transactions_are_rejected_with_a_reason(t: &Fixture) {
    let cases = invalid_transactions(t);
    assert!(cases.len() >= 40, "{} invalid transactions", cases.len());
    for (txn, reason) in cases {
        // A valid write in the same transaction must not be applied either.
        let valid = Write::put(t.key("valid"), Item::new()).when(PK.absent());
        let mut combined: Vec<Write> = txn.writes().to_vec();
        if (1..100).contains(&combined.len()) {
            combined.push(valid);
        }
        for txn in [txn.clone(), Txn::new(combined)] {
            let error = t.table.commit(&txn).await.expect_err(&reason);
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            assert!(has_message(&error, &reason), "{error}\n  instead of\n{reason}");
        }
        assert_eq!(t.rows().await, [], "{reason}: nothing was written");
    }
}

/// Ignores the digits of the transaction's size, which includes the additional valid write.
fn has_message(error: &Error, reason: &str) -> bool {
    let digits = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    error.to_string() == reason
        || (reason.starts_with("the transaction has") && digits(&error.to_string()) == digits(reason))
}

pub(crate) async fn invalid_reads_are_rejected_with_a_reason(t: &Fixture) {
    let is_rejected = |error: Error, reason: &str| {
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert_eq!(error.to_string(), reason);
    };
    for (key, reason) in [
        (Key::new("", "META"), "the partition key is empty"),
        (Key::new("p", ""), "the sort key is empty"),
        (Key::new("p".repeat(2049), "META"), "the partition key has 2049 bytes; the limit is 2048"),
        (Key::new("p", "s".repeat(1025)), "the sort key has 1025 bytes; the limit is 1024"),
    ] {
        is_rejected(t.table.get(&key, Consistency::Strong).await.expect_err(reason), reason);
        let keys = [t.key("valid"), key.clone()];
        is_rejected(t.table.batch_get(&keys, Consistency::Strong).await.expect_err(reason), reason);
        let scan = Scan::new().after(Cursor::after(key));
        is_rejected(t.table.scan(&scan).await.expect_err(reason), reason);
    }
    let of = || Query::of(t.pk("p"));
    let elsewhere = Cursor::after(Key::new("elsewhere", "META"));
    for (query, reason) in [
        (Query::of(""), "the partition key is empty"),
        (Query::of("p".repeat(2049)), "the partition key has 2049 bytes; the limit is 2048"),
        (of().limit(0), "the limit is 0 rows; it must be at least 1"),
        (of().sk_is(""), "the sort key is empty"),
        (of().begins_with(""), "the sort key is empty"),
        (of().sk_ge("s".repeat(1025)), "the sort key has 1025 bytes; the limit is 1024"),
        (of().sk_between("b", "a"), "BETWEEN has a lower bound that is greater than its upper bound"),
        (of().after(elsewhere), "the cursor belongs to another query"),
        (of().begins_with("VER#").after(Cursor::after(t.key("META"))), "the cursor belongs to another query"),
    ] {
        is_rejected(t.table.query(&query).await.expect_err(reason), reason);
    }
    is_rejected(
        t.table.scan(&Scan::new().limit(0)).await.expect_err("no rows"),
        "the limit is 0 rows; it must be at least 1",
    );
}

/// The limits must be neither stricter than documented nor laxer than those of DynamoDB.
pub(crate) async fn calls_exactly_at_a_limit_are_accepted(t: &Fixture) {
    let key = || t.key("META");
    let put = |value: Value| Write::put(key(), item([("a", value)]));
    let when = |cond: Cond| Write::delete(key()).when(cond);
    let long = |pk: &str| format!("{pk}{}", "p".repeat(2048 - pk.len()));
    for write in [
        Write::delete(Key::new(long(&t.pk("p")), "META")),
        Write::delete(t.key(&"s".repeat(1024))),
        Write::put(key(), Item::from([("n".repeat(255), Value::Null)])),
        put(nested(31)),
        put(nested_maps(31)),
        Write::update(key(), Update::new([Attr::<Value>::new("list").append([nested(30)])])),
    ] {
        assert!(t.commit([write.clone()]).await.expect("within the limits").is_done(), "{write:?}");
    }
    for cond in [negated(30), negated(31), A.between(1, 1), A.is_in(0..90), A.is(nested(31))] {
        let _either = t.commit([when(cond.clone())]).await.unwrap_or_else(|error| panic!("{cond}: {error}"));
    }
    let one = Query::of(t.pk("p")).sk_between("META", "META");
    assert!(t.table.query(&one).await.expect("a page").next.is_none());
}

/// Eleven rows that exceed the size limit of a transaction by this many bytes.
fn four_megabytes(t: &Fixture, excess: usize) -> Vec<Write> {
    let row = |index: usize, room: usize| {
        Write::put(t.key(&format!("{index:02}")), item([("a", "x".repeat(room).into())]))
    };
    let names = "pk".len() + t.pk("p").len() + "sk".len() + 2 + "a".len();
    let mut writes: Vec<Write> = (0..10).map(|index| row(index, 400_000 - names)).collect();
    writes.push(row(10, 4 * 1024 * 1024 - 4_000_000 - names + excess));
    writes
}

pub(crate) async fn the_size_limit_of_a_transaction_is_exact(t: &Fixture) {
    let error = t.commit(four_megabytes(t, 1)).await.expect_err("one byte too much");
    assert_eq!(error.to_string(), "the transaction has 4194305 bytes; the limit is 4194304");
    // Conditions count too.
    let mut conditional = four_megabytes(t, 0);
    conditional[0] = conditional[0].clone().when(PK.absent());
    let error = t.commit(conditional).await.expect_err("no room for a condition");
    assert!(error.to_string().starts_with("the transaction has 41943"), "{error}");
    assert_eq!(t.rows().await, []);
    assert!(t.commit(four_megabytes(t, 0)).await.expect("it fits").is_done());
}

#[test]
fn invalid_values_cannot_be_constructed() {
    for (result, reason) in [
        ("1".repeat(39).parse::<Number>().map(drop), "a number has more than 38 significant digits"),
        (
            "1E126".parse::<Number>().map(drop),
            "a number is past the largest one, 9.9999999999999999999999999999999999999E+125",
        ),
        ("1E-131".parse::<Number>().map(drop), "a number is closer to zero than the smallest one, 1E-130"),
        ("one".parse::<Number>().map(drop), "\"one\" is not a number"),
        (Number::try_from(f64::INFINITY).map(drop), "inf cannot be stored: a number must be finite"),
        (Set::<String>::new([]).map(drop), "a set is empty; leave the attribute out instead"),
        (Set::new(["a".to_string(), "a".to_string()]).map(drop), "a set has the same member twice"),
        (
            Set::new([Number::from(1), "1.0".parse().expect("one")]).map(drop),
            "a set has the same member twice",
        ),
        (ClientToken::new("").map(drop), "a client token has 0 bytes; it must have 1 to 36"),
        (ClientToken::new("t".repeat(37)).map(drop), "a client token has 37 bytes; it must have 1 to 36"),
        ("%%%".parse::<Cursor>().map(drop), "invalid cursor: pass the `next` of a page unchanged"),
        ("AAAA".parse::<Cursor>().map(drop), "invalid cursor: pass the `next` of a page unchanged"),
    ] {
        let error = result.expect_err(reason);
        assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Invalid, reason));
    }
}
