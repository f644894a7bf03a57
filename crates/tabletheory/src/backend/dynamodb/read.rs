//! Reading: one row, several, a partition, everything.

use std::collections::{HashMap, HashSet};

use aws_sdk_dynamodb::types::KeysAndAttributes;

use super::DynamoTable;
use super::convert::{Attributes, from_key, to_item, to_key};
use super::expression::{self, Expression};
use super::failure::Failure;
use super::retry::Repeat;
use crate::error::{Error, Result};
use crate::item::{Item, Key};
use crate::query::{Consistency, Cursor, Page, Query, Scan, Sort};

/// The most keys that DynamoDB takes in one call.
const MAX_BATCH: usize = 100;

impl DynamoTable {
    pub(super) async fn get_checked(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        let request = self
            .client
            .get_item()
            .table_name(&self.place.table)
            .set_key(Some(from_key(key)))
            .consistent_read(consistency == Consistency::Strong);
        let attempt =
            || async { request.clone().send().await.map_err(|error| Failure::of(error, &self.place)) };
        self.persist(Repeat::Read, attempt).await?.item.map(to_item).transpose()
    }

    pub(super) async fn batch_get_checked(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<Vec<Option<Item>>> {
        // DynamoDB refuses a key that is named twice, so each is asked for once and handed out where it is wanted.
        let mut named = HashSet::with_capacity(keys.len());
        let distinct: Vec<&Key> = keys.iter().filter(|key| named.insert(*key)).collect();
        let mut found = HashMap::with_capacity(distinct.len());
        for batch in distinct.chunks(MAX_BATCH) {
            let wanted = batch.iter().map(|key| from_key(key)).collect();
            self.batch(wanted, consistency, &mut found).await?;
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    /// Reads up to a hundred rows. DynamoDB may leave some for another call, because it is busy or because
    /// the answer is full: those are asked for again, as long as that helps.
    async fn batch(
        &self,
        mut wanted: Vec<Attributes>,
        consistency: Consistency,
        found: &mut HashMap<Key, Item>,
    ) -> Result<()> {
        let mut in_vain = 0;
        loop {
            let asked = wanted.len();
            let (items, left) = self.batch_once(wanted, consistency).await?;
            for item in items {
                let item = to_item(item)?;
                found.insert(item.key()?, item);
            }
            if left.is_empty() {
                return Ok(());
            }
            // Whoever gets at least one row each time needs at most a hundred calls.
            in_vain = if left.len() < asked { 0 } else { in_vain + 1 };
            if in_vain >= self.settings.attempts {
                return Err(Error::unavailable(format!(
                    "{} left {} of {asked} rows unread in {in_vain} attempts; try again later, or raise its limits",
                    self.place,
                    left.len()
                )));
            }
            tokio::time::sleep(self.settings.backoff.delay(in_vain, &*self.random)).await;
            wanted = left;
        }
    }

    /// One call: the rows that were read, and the keys that were not.
    async fn batch_once(
        &self,
        wanted: Vec<Attributes>,
        consistency: Consistency,
    ) -> Result<(Vec<Attributes>, Vec<Attributes>)> {
        let keys = KeysAndAttributes::builder()
            .set_keys(Some(wanted))
            .consistent_read(consistency == Consistency::Strong)
            .build()
            .map_err(|cause| Error::invalid("a key has no form on DynamoDB").caused_by(cause))?;
        let request = self.client.batch_get_item().request_items(&self.place.table, keys);
        let attempt =
            || async { request.clone().send().await.map_err(|error| Failure::of(error, &self.place)) };
        let answer = self.persist(Repeat::Read, attempt).await?;
        // There is one table in the question, so whatever name it has in the answer, it is that one.
        let items = answer.responses.unwrap_or_default().into_values().flatten().collect();
        let left =
            answer.unprocessed_keys.unwrap_or_default().into_values().flat_map(|keys| keys.keys).collect();
        Ok((items, left))
    }

    pub(super) async fn query_checked(&self, query: &Query) -> Result<Page> {
        if is_past_the_end(query) {
            return Ok(Page::default());
        }
        let Expression { condition, names, values, .. } = expression::of_query(&query.pk, &query.sort);
        let request = self
            .client
            .query()
            .table_name(&self.place.table)
            .set_key_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .set_exclusive_start_key(query.after.as_ref().map(|cursor| from_key(&cursor.0)))
            .set_limit(query.limit.map(row_limit))
            .scan_index_forward(!query.backward)
            .consistent_read(query.consistency == Consistency::Strong);
        let attempt =
            || async { request.clone().send().await.map_err(|error| Failure::of(error, &self.place)) };
        let answer = self.persist(Repeat::Read, attempt).await?;
        page(answer.items, answer.last_evaluated_key)
    }

    /// Scans read strongly: maintenance that does not see a row would collect what the row names.
    pub(super) async fn scan_checked(&self, scan: &Scan) -> Result<Page> {
        let request = self
            .client
            .scan()
            .table_name(&self.place.table)
            .set_exclusive_start_key(scan.after.as_ref().map(|cursor| from_key(&cursor.0)))
            .set_limit(scan.limit.map(row_limit))
            .consistent_read(true);
        let attempt =
            || async { request.clone().send().await.map_err(|error| Failure::of(error, &self.place)) };
        let answer = self.persist(Repeat::Read, attempt).await?;
        page(answer.items, answer.last_evaluated_key)
    }
}

fn page(items: Option<Vec<Attributes>>, last: Option<Attributes>) -> Result<Page> {
    let items = items.unwrap_or_default().into_iter().map(to_item).collect::<Result<_>>()?;
    let last = last.filter(|key| !key.is_empty()).map(to_key).transpose()?;
    Ok(Page { items, next: last.map(Cursor::after) })
}

fn row_limit(rows: usize) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}

/// Whether the cursor stands on the last sort key that could fit. Nothing can follow, and DynamoDB refuses such
/// a start, although the cursor is a good one: it may be made from a row.
fn is_past_the_end(query: &Query) -> bool {
    let Some(Cursor(Key { sk, .. })) = &query.after else { return false };
    match &query.sort {
        Sort::Is(_) => true,
        Sort::Le(high) => !query.backward && sk == high,
        Sort::Ge(low) => query.backward && sk == low,
        Sort::Between(low, high) => sk == if query.backward { low } else { high },
        Sort::All | Sort::Lt(_) | Sort::Gt(_) | Sort::BeginsWith(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_dynamodb_cannot_count_is_the_greatest_that_it_can() {
        assert_eq!(row_limit(1), 1);
        assert_eq!(row_limit(usize::MAX), i32::MAX);
    }

    #[test]
    fn nothing_follows_the_last_key_that_could_fit() {
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
