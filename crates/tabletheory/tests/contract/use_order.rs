//! The order in which rows were last used.

use std::time::Duration;

use tabletheory::{Attr, Item, TableUsage, Update, Value, Write};

use crate::fixture::{Fixture, item, sks};

const USED_AT: Attr<i64> = Attr::new("used_at");

async fn usage(t: &Fixture) -> TableUsage {
    t.table.usage().await.expect("a reading").expect("an order of use")
}

pub(crate) async fn rows_are_found_in_the_order_of_their_last_use(t: &Fixture) {
    for (sk, used_at) in [("b", 20), ("a", 30), ("c", 10)] {
        t.put(sk, item([("used_at", Value::from(used_at))])).await;
    }
    t.put("never used", Item::new()).await;
    t.put("a text", item([("used_at", Value::from("10"))])).await;
    if t.table.usage().await.expect("a reading").is_none() {
        // DynamoDB has no such order.
        assert!(t.table.least_recently_used(10).await.expect("a reading").is_empty());
        return;
    }
    let order = async || sks(&t.table.least_recently_used(10).await.expect("a reading"));
    assert_eq!(order().await, ["c", "b", "a"]);
    assert_eq!(sks(&t.table.least_recently_used(2).await.expect("a reading")), ["c", "b"]);
    assert_eq!(usage(t).await.used_rows, 3);
    let commit = async |write: Write| assert!(t.commit([write]).await.expect("a commit").is_done());
    commit(Write::update(t.key("c"), Update::new([USED_AT.set(40)]))).await;
    assert_eq!(order().await, ["b", "a", "c"], "an update moves the row");
    commit(Write::update(t.key("b"), Update::new([USED_AT.remove()]))).await;
    commit(Write::update(t.key("never used"), Update::new([USED_AT.set(5)]))).await;
    commit(Write::delete(t.key("a"))).await;
    assert_eq!(order().await, ["never used", "c"]);
    assert_eq!(usage(t).await.used_rows, 2);
}

pub(crate) async fn expired_rows_that_were_used_are_found_before_they_are_deleted(t: &Fixture) {
    let now = t.table.clock().now().seconds();
    let row = |ttl: i64| item([("ttl", Value::from(now + ttl)), ("used_at", Value::from(now))]);
    for (sk, item) in
        [("later", row(1000)), ("second", row(-100)), ("first", row(-200)), ("recent", row(-10))]
    {
        t.put(sk, item).await;
    }
    t.put("lock", item([("ttl", Value::from(now - 300))])).await;
    if t.table.usage().await.expect("a reading").is_none() {
        return;
    }
    let lag = Duration::from_secs(50);
    let found = async |limit| sks(&t.table.expired_used(lag, limit).await.expect("a reading"));
    assert_eq!(found(10).await, ["first", "second"]);
    assert_eq!(found(1).await, ["first"]);
    let before = usage(t).await.used_rows;
    assert_eq!(t.table.sweep(lag).await.expect("a sweep"), 3);
    assert_eq!(usage(t).await.used_rows, before - 2, "a sweep counts too");
}
