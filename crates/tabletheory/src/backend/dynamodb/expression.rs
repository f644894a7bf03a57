//! Expressions with placeholders, as DynamoDB takes them.
//!
//! Every name and every value is a placeholder, so that none is parsed as syntax or as a reserved word. Equal input gives
//! equal placeholders, because a transaction that is sent again with its client token must be identical.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::cond::{Comparison, Cond, Test};
use crate::expression::{self, Notation};
use crate::item::{PK, SK};
use crate::query::Sort;
use crate::update::Update;
use crate::value::Value;

/// The expressions of one write or query, and the meaning of their placeholders.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Expression {
    pub(super) update: Option<String>,
    /// The condition, or a query's key condition.
    pub(super) condition: Option<String>,
    /// `None` if there are no names: DynamoDB rejects an empty map.
    pub(super) names: Option<HashMap<String, String>>,
    /// `None` if there are no values: DynamoDB rejects an empty map.
    pub(super) values: Option<HashMap<String, AttributeValue>>,
}

/// Compiles the update and the condition of a write, which must be within the limits.
pub(super) fn of_write(update: Option<&Update>, cond: Option<&Cond>) -> Expression {
    let mut placeholders = Placeholders::default();
    // The update comes first: it is the longer text, so it gets the shorter placeholders.
    let update = update.map(|update| expression::of_update(update, &mut placeholders));
    let condition = cond.map(|cond| expression::of_cond(cond, &mut placeholders));
    placeholders.finish(update, condition)
}

/// Compiles the key condition of a query.
pub(super) fn of_query(pk: &str, sort: &Sort) -> Expression {
    let mut placeholders = Placeholders::default();
    let is_in_partition = Cond::test(PK.into(), Test::Compare(Comparison::Equal, pk.into()));
    let restricted = |test| is_in_partition.clone().and(Cond::test(SK.into(), test));
    let cond = match sort {
        Sort::All => is_in_partition,
        Sort::Compare(comparison, sk) => restricted(Test::Compare(*comparison, sk.as_str().into())),
        Sort::Between(low, high) => restricted(Test::Between(low.as_str().into(), high.as_str().into())),
        Sort::BeginsWith(prefix) => restricted(Test::BeginsWith(prefix.as_str().into())),
    };
    let condition = expression::of_cond(&cond, &mut placeholders);
    placeholders.finish(None, Some(condition))
}

/// Placeholder of the empty list to which the first append appends; short, because it may occur eighty times.
const EMPTY_LIST: &str = ":e";

/// Assigns placeholders: one per distinct name, and a new one for each value.
#[derive(Default)]
struct Placeholders {
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
    value_count: usize,
}

impl Notation for Placeholders {
    fn name(&mut self, name: &str) -> String {
        let next = format!("#n{}", self.names.len());
        self.names.entry(name.to_owned()).or_insert(next).clone()
    }

    fn value(&mut self, value: &Value) -> String {
        let placeholder = format!(":v{}", self.value_count);
        self.value_count += 1;
        self.values.insert(placeholder.clone(), value.clone().into());
        placeholder
    }

    fn empty_list(&mut self) -> String {
        self.values.insert(EMPTY_LIST.to_owned(), AttributeValue::L(Vec::new()));
        EMPTY_LIST.to_owned()
    }
}

impl Placeholders {
    fn finish(self, update: Option<String>, condition: Option<String>) -> Expression {
        let names: HashMap<String, String> =
            self.names.into_iter().map(|(name, placeholder)| (placeholder, name)).collect();
        Expression {
            update,
            condition,
            names: (!names.is_empty()).then_some(names),
            values: (!self.values.is_empty()).then_some(self.values),
        }
    }
}

#[cfg(test)]
mod tests;
