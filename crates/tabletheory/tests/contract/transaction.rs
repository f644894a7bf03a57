//! Transactions of several writes.

use tabletheory::{Attr, Commit, Item, Kind, Update, Write};

use crate::fixture::{Fixture, item};

const PK: Attr<String> = Attr::new("pk");
const N: Attr<i64> = Attr::new("n");

pub(crate) async fn all_writes_of_a_transaction_are_applied(t: &Fixture) {
    t.put("updated", item([("n", 1.into())])).await;
    t.put("deleted", Item::new()).await;
    t.put("checked", Item::new()).await;
    let commit = t
        .commit([
            Write::put(t.key("put"), item([("n", 7.into())])).when(PK.absent()),
            Write::update(t.key("updated"), Update::new([N.add(1)])).when(N.is(1)),
            Write::delete(t.key("deleted")).when(PK.exists()),
            Write::check(t.key("checked"), PK.exists()),
        ])
        .await;
    assert_eq!(commit.expect("all conditions hold"), Commit::Done);
    assert_eq!(
        t.rows().await,
        [
            t.stored("checked", Item::new()),
            t.stored("put", item([("n", 7.into())])),
            t.stored("updated", item([("n", 2.into())])),
        ]
    );
}

pub(crate) async fn one_false_condition_refuses_all_writes(t: &Fixture) {
    t.put("updated", item([("n", 1.into())])).await;
    t.put("deleted", Item::new()).await;
    let before = t.rows().await;
    let commit = t
        .commit([
            Write::put(t.key("put"), Item::new()),
            Write::update(t.key("updated"), Update::new([N.add(1)])),
            Write::delete(t.key("deleted")),
            Write::check(t.key("lock"), PK.exists()),
        ])
        .await;
    assert_eq!(commit.expect("a refusal is not an error"), Commit::Refused { index: 3, seen: None });
    assert_eq!(t.rows().await, before);
}

pub(crate) async fn the_first_false_condition_is_reported(t: &Fixture) {
    t.put("a", item([("n", 1.into())])).await;
    t.put("b", item([("n", 2.into())])).await;
    let commit = t
        .commit([
            Write::put(t.key("c"), Item::new()),
            Write::delete(t.key("b")).when(N.is(9)),
            Write::delete(t.key("a")).when(N.is(9)),
        ])
        .await;
    let seen = Some(t.stored("b", item([("n", 2.into())])));
    assert_eq!(commit.expect("a refusal is not an error"), Commit::Refused { index: 1, seen });
}

pub(crate) async fn an_impossible_write_takes_precedence_over_a_refusal(t: &Fixture) {
    t.put("text", item([("n", "one".into())])).await;
    let before = t.rows().await;
    let refused = || Write::check(t.key("absent"), PK.exists());
    let impossible = || Write::update(t.key("text"), Update::new([N.add(1)]));
    for writes in [[refused(), impossible()], [impossible(), refused()]] {
        let error = t.commit(writes).await.expect_err("adding a number to a string");
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
    // A refused write is not evaluated.
    let commit = t.commit([impossible().when(PK.absent())]).await.expect("a refusal is not an error");
    assert!(commit.is_refused());
    assert_eq!(t.rows().await, before);
}

pub(crate) async fn the_error_of_an_impossible_write_names_it(t: &Fixture) {
    let text = |length: usize| "x".repeat(length);
    t.put("large", item([("a", text(300_000).into())])).await;
    let grow = Update::new([Attr::<String>::new("b").set(text(200_000))]);
    let writes = [Write::delete(t.key("other")), Write::update(t.key("large"), grow)];
    let error = t.commit(writes).await.expect_err("the row would be too large");
    let named = format!("write 1 (large of {}): ", t.pk("p"));
    assert!(error.to_string().starts_with(&named), "{error}");
}

pub(crate) async fn a_transaction_may_have_a_hundred_writes(t: &Fixture) {
    let write = |index: usize| Write::put(t.key(&format!("{index:03}")), Item::new());
    assert!(t.commit((0..100).map(write)).await.expect("a hundred").is_done());
    assert_eq!(t.rows().await.len(), 100);
}
