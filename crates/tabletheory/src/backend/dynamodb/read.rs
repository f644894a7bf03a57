//! The operations of a table: reads of single rows, batches, partitions and the whole table; commits are in `commit`.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use aws_sdk_dynamodb::types::KeysAndAttributes;

use super::DynamoTable;
use super::convert::{Attributes, from_key, to_key, to_row};
use super::expression::{self, Expression};
use super::failure::Failure;
use super::retry::Idempotency;
use crate::clock::Clock;
use crate::cond::Comparison;
use crate::error::{Error, Result};
use crate::item::{Item, Key};
use crate::query::{Consistency, Cursor, Page, Query, Scan, Sort};
use crate::table::Table;
use crate::txn::{Commit, Txn};

/// DynamoDB's limit for keys in one request.
const MAX_BATCH: usize = 100;

#[async_trait]
impl Table for DynamoTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        key.check()?;
        let request = self
            .client
            .get_item()
            .table_name(&self.label.table)
            .set_key(Some(from_key(key)))
            .consistent_read(consistency == Consistency::Strong);
        let output = send!(self, Idempotency::Read, request, output => output)?.result;
        output.item.map(to_row).transpose()
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        keys.iter().try_for_each(Key::check)?;
        // DynamoDB rejects duplicate keys.
        let mut seen = HashSet::with_capacity(keys.len());
        let distinct: Vec<&Key> = keys.iter().filter(|key| seen.insert(*key)).collect();
        let mut found = HashMap::with_capacity(distinct.len());
        for batch in distinct.chunks(MAX_BATCH) {
            let keys = batch.iter().map(|key| from_key(key)).collect();
            self.get_batch(keys, consistency, &mut found).await?;
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        query.check()?;
        if is_past_the_end(query) {
            return Ok(Page::default());
        }
        let Expression { condition, names, values, .. } = expression::of_query(&query.pk, &query.sort);
        let request = self
            .client
            .query()
            .table_name(&self.label.table)
            .set_key_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .set_exclusive_start_key(query.after.as_ref().map(|cursor| from_key(&cursor.0)))
            .set_limit(query.limit.map(row_limit))
            .scan_index_forward(!query.backward)
            .consistent_read(query.consistency == Consistency::Strong);
        let output = send!(self, Idempotency::Read, request, output => output)?.result;
        page(output.items, output.last_evaluated_key)
    }

    /// Uses strong reads: garbage collection that misses a row would delete objects that the row refers to.
    async fn scan(&self, scan: &Scan) -> Result<Page> {
        scan.check()?;
        let request = self
            .client
            .scan()
            .table_name(&self.label.table)
            .set_exclusive_start_key(scan.after.as_ref().map(|cursor| from_key(&cursor.0)))
            .set_limit(scan.limit.map(row_limit))
            .consistent_read(true);
        let output = send!(self, Idempotency::Read, request, output => output)?.result;
        page(output.items, output.last_evaluated_key)
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        txn.check()?;
        self.commit_checked(txn).await
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
}

impl DynamoTable {
    /// Reads up to a hundred rows. DynamoDB may leave some unprocessed, because of throttling or because the response is
    /// full; these are requested again while there is progress.
    async fn get_batch(
        &self,
        mut keys: Vec<Attributes>,
        consistency: Consistency,
        found: &mut HashMap<Key, Item>,
    ) -> Result<()> {
        let mut failed_attempts = 0;
        loop {
            let requested = keys.len();
            let (items, unprocessed) = self.get_batch_once(keys, consistency).await?;
            for item in items {
                let item = to_row(item)?;
                found.insert(item.key()?, item);
            }
            if unprocessed.is_empty() {
                return Ok(());
            }
            // With at least one row per request there are at most a hundred requests.
            failed_attempts = if unprocessed.len() < requested { 0 } else { failed_attempts + 1 };
            if failed_attempts >= self.settings.attempts {
                return Err(Error::unavailable(format!(
                    "{} returned no rows in {failed_attempts} attempts, with {} of {requested} left; \
                     try again later, or raise its limits",
                    self.label,
                    unprocessed.len()
                )));
            }
            tokio::time::sleep(self.settings.backoff.delay(failed_attempts, &*self.random)).await;
            keys = unprocessed;
        }
    }

    /// Returns the rows that were read, and the keys that were not processed.
    async fn get_batch_once(
        &self,
        keys: Vec<Attributes>,
        consistency: Consistency,
    ) -> Result<(Vec<Attributes>, Vec<Attributes>)> {
        let keys = KeysAndAttributes::builder()
            .set_keys(Some(keys))
            .consistent_read(consistency == Consistency::Strong)
            .build()
            .map_err(|cause| Error::invalid("the keys cannot be sent").caused_by(cause))?;
        let request = self.client.batch_get_item().request_items(&self.label.table, keys);
        let output = send!(self, Idempotency::Read, request, output => output)?.result;
        // The request names one table, so the response has one too.
        let items = output.responses.unwrap_or_default().into_values().flatten().collect();
        let unprocessed =
            output.unprocessed_keys.unwrap_or_default().into_values().flat_map(|keys| keys.keys).collect();
        Ok((items, unprocessed))
    }
}

fn page(items: Option<Vec<Attributes>>, last: Option<Attributes>) -> Result<Page> {
    let items = items.unwrap_or_default().into_iter().map(to_row).collect::<Result<_>>()?;
    let last = last.filter(|key| !key.is_empty()).map(to_key).transpose()?;
    Ok(Page { items, next: last.map(Cursor::after) })
}

fn row_limit(rows: usize) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}

/// Whether the cursor is at the last sort key that can match. No row can follow, and DynamoDB rejects such a start key,
/// although the cursor is valid: it may have been created from a row.
fn is_past_the_end(query: &Query) -> bool {
    let Some(Cursor(Key { sk, .. })) = &query.after else { return false };
    match &query.sort {
        Sort::Compare(Comparison::Equal, _) => true,
        Sort::Compare(Comparison::LessOrEqual, high) => !query.backward && sk == high,
        Sort::Compare(Comparison::GreaterOrEqual, low) => query.backward && sk == low,
        Sort::Between(low, high) => sk == if query.backward { low } else { high },
        Sort::All | Sort::Compare(..) | Sort::BeginsWith(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_beyond_the_range_of_dynamodb_becomes_the_maximum() {
        assert_eq!(row_limit(1), 1);
        assert_eq!(row_limit(usize::MAX), i32::MAX);
    }

    #[test]
    fn no_row_follows_the_last_sort_key_that_can_match() {
        let at = |query: Query, sk: &str| query.after(Cursor::after(Key::new("a", sk)));
        let all = || Query::of("a");
        assert!(is_past_the_end(&at(all().sk_between("b", "d"), "d")));
        assert!(!is_past_the_end(&at(all().sk_between("b", "d"), "c")));
        assert!(!is_past_the_end(&at(all().sk_between("b", "d"), "b")));
        assert!(is_past_the_end(&at(all().sk_between("b", "d").backward(), "b")));
        assert!(!is_past_the_end(&at(all().sk_between("b", "d").backward(), "d")));
        assert!(is_past_the_end(&at(all().sk_le("d"), "d")));
        assert!(!is_past_the_end(&at(all().sk_le("d").backward(), "d")));
        assert!(is_past_the_end(&at(all().sk_ge("d").backward(), "d")));
        assert!(!is_past_the_end(&at(all().sk_ge("d"), "d")));
        assert!(is_past_the_end(&at(all().sk_is("d"), "d")));
        assert!(!is_past_the_end(&at(all(), "d")));
        assert!(!is_past_the_end(&all().sk_between("b", "d")));
    }
}
