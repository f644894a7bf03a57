//! Client tokens: committing a transaction again.

use tabletheory::{Attr, Commit, Item, Kind, Txn, Update, Write};

use crate::fixture::{Fixture, item};

const PK: Attr<String> = Attr::new("pk");
const N: Attr<i64> = Attr::new("n");

pub(crate) async fn a_transaction_with_a_used_token_is_not_applied_again(t: &Fixture) {
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
    let count = t.get("count").await.expect("the row exists");
    assert_eq!(count.get("n"), Some(&2.into()), "each transaction is applied once");
}

pub(crate) async fn reusing_a_token_for_other_writes_is_an_error(t: &Fixture) {
    let put =
        |n: i64| Txn::new([Write::put(t.key("META"), item([("n", n.into())]))]).with_token(t.token("x"));
    assert!(t.table.commit(&put(1)).await.expect("the first").is_done());
    let error = t.table.commit(&put(2)).await.expect_err("the token was used");
    assert_eq!(error.kind(), Kind::Unknown);
    assert_eq!(t.get("META").await, Some(t.stored("META", item([("n", 1.into())]))));
}

pub(crate) async fn reusing_a_token_for_another_condition_is_an_error(t: &Fixture) {
    let put = |cond| Txn::from(Write::put(t.key("META"), Item::new()).when(cond)).with_token(t.token("x"));
    assert!(t.table.commit(&put(PK.absent())).await.expect("the first").is_done());
    // Conditions are part of the transaction.
    let error = t.table.commit(&put(PK.exists())).await.expect_err("the token was used");
    assert_eq!(error.kind(), Kind::Unknown);
}

pub(crate) async fn the_token_of_a_refused_transaction_may_be_reused(t: &Fixture) {
    let txn = Txn::new([Write::update(t.key("META"), Update::new([N.add(1)])).when(PK.exists())])
        .with_token(t.token("x"));
    assert!(t.table.commit(&txn).await.expect("a refusal is not an error").is_refused());
    t.put("META", item([("n", 1.into())])).await;
    assert!(t.table.commit(&txn).await.expect("the row exists now").is_done());
    assert!(t.table.commit(&txn).await.expect("a repeat").is_done());
    assert_eq!(t.get("META").await, Some(t.stored("META", item([("n", 2.into())]))));
}
