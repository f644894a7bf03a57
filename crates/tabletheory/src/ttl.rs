//! Expiry by `ttl`. Only the deletion of rows reads it: a row that is deleted early costs a render, never correctness.

use std::time::Duration;

use crate::backend::TTL_OLDEST;
use crate::clock::Timestamp;
use crate::item::{Item, TTL};
use crate::value::Value;

/// The range of `ttl` values that have expired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expired {
    pub(crate) after: i64,
    pub(crate) until: i64,
}

impl Expired {
    /// Matches rows that expired at least `lag` ago, except those so old that their `ttl` must be a mistake.
    pub(crate) fn at(now: Timestamp, lag: Duration) -> Self {
        Expired { after: (now - TTL_OLDEST).seconds(), until: (now - lag).seconds() }
    }

    pub(crate) fn includes(&self, item: &Item) -> bool {
        of(item).is_some_and(|ttl| self.after < ttl && ttl <= self.until)
    }
}

/// Returns when a row expires. A row whose `ttl` is not a whole number never does.
pub(crate) fn of(item: &Item) -> Option<i64> {
    item.get(TTL).and_then(Value::as_i64)
}
