//! Client tokens: committing the same attempt again.

use tabletheory::{Attr, Commit, Item, Kind, Txn, Update, Write};

use crate::fixture::{Fixture, item};

const PK: Attr<String> = Attr::new("pk");
const N: Attr<i64> = Attr::new("n");

pub(crate) async fn a_repeated_token_is_not_applied_again(t: &Fixture) {
    for (name, writes) in [
        ("one", vec![Write::update(t.key("count"), Update::new([N.add(1)]))]),
        (
            "two",
            vec![
                Write::update(t.key("count"), Update::new([N.add(1)])),
                Write::put(t.key("new"), Item::new()).when(PK.absent()),
            ],
        ),
    ] {
        let txn = Txn::new(writes).with_token(t.token(name));
        for _ in 0..3 {
            assert_eq!(t.table.commit(&txn).await.expect("a repeat"), Commit::Done, "{name}");
        }
    }
    let count = t.get("count").await.expect("it is there");
    assert_eq!(count.get("n"), Some(&2.into()), "each transaction was applied once");
}

pub(crate) async fn a_token_with_other_writes_is_an_error(t: &Fixture) {
    let put =
        |n: i64| Txn::new([Write::put(t.key("META"), item([("n", n.into())]))]).with_token(t.token("x"));
    assert!(t.table.commit(&put(1)).await.expect("the first").is_done());
    let error = t.table.commit(&put(2)).await.expect_err("the token was used");
    assert_eq!(error.kind(), Kind::Unknown);
    assert_eq!(t.get("META").await, Some(t.stored("META", item([("n", 1.into())]))));
}

pub(crate) async fn a_token_with_another_condition_is_an_error(t: &Fixture) {
    let put = |cond| Txn::from(Write::put(t.key("META"), Item::new()).when(cond)).with_token(t.token("x"));
    assert!(t.table.commit(&put(PK.absent())).await.expect("the first").is_done());
    // Its writes are the same, but it asks for something else, so it is not the same attempt.
    let error = t.table.commit(&put(PK.exists())).await.expect_err("the token was used");
    assert_eq!(error.kind(), Kind::Unknown);
}

pub(crate) async fn a_refused_token_may_be_tried_again(t: &Fixture) {
    let txn = Txn::new([Write::update(t.key("META"), Update::new([N.add(1)])).when(PK.exists())])
        .with_token(t.token("x"));
    assert!(t.table.commit(&txn).await.expect("a refusal is no error").is_refused());
    t.put("META", item([("n", 1.into())])).await;
    assert!(t.table.commit(&txn).await.expect("the row is there now").is_done());
    assert!(t.table.commit(&txn).await.expect("a repeat").is_done());
    assert_eq!(t.get("META").await, Some(t.stored("META", item([("n", 2.into())]))));
}
