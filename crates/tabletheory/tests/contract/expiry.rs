//! Expired rows: deleted by a sweep, or by the table itself.

use std::time::Duration;

use tabletheory::{Item, Value};

use crate::fixture::{Fixture, item, sks};

pub(crate) async fn a_sweep_deletes_exactly_the_rows_that_expired_counts(t: &Fixture) {
    let now = t.table.clock().now().seconds();
    let expiring = |seconds: i64| item([("ttl", Value::from(now + seconds))]);
    for (sk, item) in [("past", expiring(-1000)), ("lately", expiring(-10)), ("future", expiring(1000))] {
        t.put(sk, item).await;
    }
    t.put("forever", Item::new()).await;
    let lag = Duration::from_secs(100);
    let expected = t.table.expired(lag).await.expect("a count");
    if t.expires_by_itself {
        // DynamoDB deletes expired rows at any time, so there is nothing to sweep.
        assert_eq!((expected, t.table.sweep(lag).await.expect("a sweep")), (0, 0));
        let mut left = sks(&t.rows().await);
        left.retain(|sk| sk != "past" && sk != "lately");
        assert_eq!(left, ["forever", "future"]);
        return;
    }
    assert_eq!(expected, 1);
    assert_eq!(sks(&t.rows().await), ["forever", "future", "lately", "past"], "counting deletes nothing");
    assert_eq!(t.table.sweep(lag).await.expect("a sweep"), expected);
    assert_eq!(sks(&t.rows().await), ["forever", "future", "lately"]);
    assert_eq!(t.table.expired(lag).await.expect("a count"), 0);
}
