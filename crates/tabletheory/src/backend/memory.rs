//! The table in memory, for tests, simulations and examples.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{PageBuilder, TOKEN_WINDOW, token_reused};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::cond::Comparison;
use crate::error::{Error, Result};
use crate::eval::{Effect, evaluate};
use crate::item::{Item, Key};
use crate::query::{Consistency, Page, Query, Scan, Sort};
use crate::table::Table;
use crate::ttl;
use crate::txn::{ClientToken, Commit, Txn};
use crate::use_order::{self, TableUsage};

/// A table in the memory of the process.
///
/// ```
/// use tabletheory::{Consistency, Key, MemoryTable, Table};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// let table = MemoryTable::new();
/// assert_eq!(table.get(&Key::new("CACHE#1", "META"), Consistency::Strong).await?, None);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MemoryTable {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<Key, Item>,
    tokens: HashMap<ClientToken, ([u8; 32], Timestamp)>,
}

impl MemoryTable {
    /// Creates an empty table with the system clock.
    ///
    /// ```
    /// let table = tabletheory::MemoryTable::new();
    /// ```
    #[must_use]
    pub fn new() -> Self {
        MemoryTable::with_clock(Arc::new(SystemClock))
    }

    /// Creates an empty table with this clock.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tabletheory::{ManualClock, MemoryTable, Table, Timestamp};
    ///
    /// let table = MemoryTable::with_clock(Arc::new(ManualClock::at(Timestamp::from_seconds(9))));
    /// assert_eq!(table.clock().now().seconds(), 9);
    /// ```
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        MemoryTable { state: Mutex::default(), clock }
    }

    /// Damages the row with this key, as a bit that flips on a disk does, for tests and simulations. Returns whether there is
    /// such a row.
    ///
    /// ```
    /// use tabletheory::{Consistency, Item, Key, MemoryTable, Table, Txn, Write};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// let (table, key) = (MemoryTable::new(), Key::new("CACHE#1", "META"));
    /// assert!(!table.damage(&key));
    /// assert!(table.commit(&Txn::from(Write::put(key.clone(), Item::new()))).await?.is_done());
    /// assert!(table.damage(&key));
    /// assert!(table.get(&key, Consistency::Strong).await?.expect("a row").is_damaged());
    /// # Ok(()) }
    /// ```
    pub fn damage(&self, key: &Key) -> bool {
        let mut state = self.state.lock();
        let row = state.rows.get_mut(key);
        row.map(|row| *row = Item::damaged(key)).is_some()
    }
}

impl Default for MemoryTable {
    fn default() -> Self {
        MemoryTable::new()
    }
}

#[async_trait]
impl Table for MemoryTable {
    async fn get(&self, key: &Key, _: Consistency) -> Result<Option<Item>> {
        key.check()?;
        Ok(self.state.lock().rows.get(key).cloned())
    }

    async fn batch_get(&self, keys: &[Key], _: Consistency) -> Result<Vec<Option<Item>>> {
        keys.iter().try_for_each(Key::check)?;
        let state = self.state.lock();
        Ok(keys.iter().map(|key| state.rows.get(key).cloned()).collect())
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        query.check()?;
        let mut page = PageBuilder::new(query.limit);
        let state = self.state.lock();
        let partition = state
            .rows
            .range(partition_bounds(query))
            .filter(|(key, _)| query.sort.matches(&key.sk))
            .map(|(_, item)| item);
        let mut rows: Box<dyn Iterator<Item = &Item>> =
            if query.backward { Box::new(partition.rev()) } else { Box::new(partition) };
        while let Some(item) = rows.next()
            && page.push(item.clone())?
        {}
        Ok(page.finish())
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        scan.check()?;
        let mut page = PageBuilder::new(scan.limit);
        let state = self.state.lock();
        let from = scan.after.as_ref().map_or(Bound::Unbounded, |cursor| Bound::Excluded(&cursor.0));
        let mut rows = state.rows.range((from, Bound::Unbounded));
        while let Some((_, item)) = rows.next()
            && page.push(item.clone())?
        {}
        Ok(page.finish())
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        txn.check()?;
        let now = self.clock.now();
        let mut state = self.state.lock();
        if let Some(token) = &txn.token {
            state.tokens.retain(|_, (_, at)| *at + TOKEN_WINDOW > now);
            match state.tokens.get(token) {
                Some((digest, _)) if *digest == txn.digest() => return Ok(Commit::Done),
                Some(_) => return Err(token_reused()),
                None => {}
            }
        }
        match evaluate::<Error>(txn, |key| Ok(state.rows.get(key).cloned()))? {
            Effect::Refuse { index, seen } => Ok(Commit::Refused { index, seen }),
            Effect::Apply(rows) => {
                for (key, after) in rows {
                    match after {
                        Some(Cow::Borrowed(item)) => state.rows.insert(key.clone(), item.stored_at(key)),
                        Some(Cow::Owned(item)) => state.rows.insert(key.clone(), item),
                        None => state.rows.remove(key),
                    };
                }
                if let Some(token) = &txn.token {
                    state.tokens.insert(token.clone(), (txn.digest(), now));
                }
                Ok(Commit::Done)
            }
        }
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    async fn expired(&self, lag: Duration) -> Result<u64> {
        let expired = ttl::Expired::at(self.clock.now(), lag);
        Ok(self.state.lock().rows.values().filter(|item| expired.includes(item)).count() as u64)
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        let expired = ttl::Expired::at(self.clock.now(), lag);
        let mut state = self.state.lock();
        let before = state.rows.len();
        state.rows.retain(|_, item| !expired.includes(item));
        Ok((before - state.rows.len()) as u64)
    }

    async fn least_recently_used(&self, limit: usize) -> Result<Vec<Item>> {
        let state = self.state.lock();
        let used = state.rows.iter().filter_map(|(key, item)| Some((use_order::of(item)?, key, item)));
        let mut used: Vec<_> = used.collect();
        used.sort_by_key(|(at, key, _)| (*at, *key));
        Ok(used.into_iter().take(limit).map(|(.., item)| item.clone()).collect())
    }

    async fn expired_used(&self, lag: Duration, limit: usize) -> Result<Vec<Item>> {
        let expired = ttl::Expired::at(self.clock.now(), lag);
        let state = self.state.lock();
        let is_found = |item: &&Item| use_order::of(item).is_some() && expired.includes(item);
        let mut found: Vec<Item> = state.rows.values().filter(is_found).cloned().collect();
        found.sort_by_key(ttl::of);
        found.truncate(limit);
        Ok(found)
    }

    async fn usage(&self) -> Result<Option<TableUsage>> {
        let used_rows = self.state.lock().rows.values().filter_map(use_order::of).count() as u64;
        Ok(Some(TableUsage { used_rows, file: None }))
    }
}

/// Returns a range of the map that includes all rows of a query.
fn partition_bounds(query: &Query) -> (Bound<Key>, Bound<Key>) {
    let at = |sk: &str| Key::new(query.pk.clone(), sk);
    let mut low = Bound::Included(match &query.sort {
        Sort::All | Sort::Compare(Comparison::Less | Comparison::LessOrEqual, _) => at(""),
        Sort::Compare(_, sk) | Sort::Between(sk, _) | Sort::BeginsWith(sk) => at(sk),
    });
    // There is no string between a partition key and the same key with a NUL byte appended.
    let mut high = Bound::Excluded(Key::new(format!("{}\0", query.pk), ""));
    if let Some(cursor) = &query.after {
        let bound = Bound::Excluded(cursor.0.clone());
        if query.backward { high = bound } else { low = bound }
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Attr;
    use crate::clock::ManualClock;
    use crate::txn::Write;
    use crate::update::Update;

    #[tokio::test]
    async fn a_token_is_remembered_for_exactly_ten_minutes() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_000_000)));
        let table = MemoryTable::with_clock(clock.clone());
        let key = Key::new("p", "count");
        let add_one = Write::update(key.clone(), Update::new([Attr::<i64>::new("n").add(1)]));
        let once = Txn::from(add_one).with_token(ClientToken::new("attempt-1").expect("a token"));
        for (later, expected) in [(0, 1), (599, 1), (2, 2)] {
            clock.advance(Duration::from_secs(later));
            assert!(table.commit(&once).await.expect("a commit").is_done());
            let row = table.get(&key, Consistency::Strong).await.expect("a get").expect("the row exists");
            assert_eq!(row.get("n"), Some(&expected.into()));
        }
    }
}
