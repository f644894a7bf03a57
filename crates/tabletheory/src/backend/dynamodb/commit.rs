//! Committing: one write as a call of its own, several as a transaction.

use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    CancellationReason, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    Update as UpdateItem,
};

use super::DynamoTable;
use super::convert::{Attributes, from_item, from_key, to_item};
use super::expression::{self, Expression};
use super::failure::{Failure, Verdict};
use super::retry::{Repeat, Settled};
use crate::backend::token_reused;
use crate::error::{Error, Kind, Result};
use crate::limit::Place;
use crate::txn::{ClientToken, Commit, Op, Txn, Write};

/// Sends a single write under its condition. The SDK has a type of its own for each kind of call and of error,
/// alike in everything that matters here.
macro_rules! single {
    ($table:expr, $write:expr, $expression:expr, $request:expr, $error:ident) => {{
        let Expression { condition, names, values, .. } = $expression;
        let request = $request
            .table_name(&$table.place.table)
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .set_return_values_on_condition_check_failure(seen_by($write));
        let attempt = || async {
            match request.clone().send().await {
                Ok(_) => Ok(Ok(Commit::Done)),
                Err(error) => match error.as_service_error() {
                    Some($error::ConditionalCheckFailedException(refusal)) => {
                        Ok(refused(0, refusal.item.as_ref()))
                    }
                    _ => Err(Failure::of(error, &$table.place)),
                },
            }
        };
        $table.persist(Repeat::Never, attempt).await?
    }};
}

impl DynamoTable {
    /// A single call without an answer is not repeated, whatever it writes: with a condition it could be refused
    /// because of itself, and without one it could undo what somebody else has written since.
    pub(super) async fn commit_checked(&self, txn: &Txn) -> Result<Commit> {
        match (txn.writes.as_slice(), &txn.token) {
            // A single call costs half of a transaction. One with a token is a transaction, because only
            // those know tokens; a lone check is one, because there is no call for it.
            ([write], None) => match &write.op {
                Op::Put(item) => self.put(write, from_item(&write.key, item)).await,
                Op::Update(_) => self.update(write).await,
                Op::Delete => self.delete(write).await,
                Op::Check => self.transact(&txn.writes, &ClientToken::random(&*self.random)).await,
            },
            (writes, Some(token)) => self.transact(writes, token).await,
            // A token of our own, kept over our attempts, makes the repeats of this call harmless.
            (writes, None) => self.transact(writes, &ClientToken::random(&*self.random)).await,
        }
    }

    async fn put(&self, write: &Write, item: Attributes) -> Result<Commit> {
        let request = self.client.put_item().set_item(Some(item));
        single!(self, write, expression_of(write), request, PutItemError)
    }

    async fn update(&self, write: &Write) -> Result<Commit> {
        let expression = expression_of(write);
        let request = self
            .client
            .update_item()
            .set_key(Some(from_key(&write.key)))
            .set_update_expression(expression.update.clone());
        single!(self, write, expression, request, UpdateItemError)
    }

    async fn delete(&self, write: &Write) -> Result<Commit> {
        let request = self.client.delete_item().set_key(Some(from_key(&write.key)));
        single!(self, write, expression_of(write), request, DeleteItemError)
    }

    /// Sends a transaction until its outcome is known, or patience ends.
    ///
    /// A refusal that answers a repeat is not the last word: because of the token the lost attempt was not
    /// applied before it, but it may still be on its way, and find the condition true when it arrives.
    async fn transact(&self, writes: &[Write], token: &ClientToken) -> Result<Commit> {
        let items = writes.iter().map(|write| self.transact_item(write)).collect::<Result<Vec<_>>>()?;
        let request = self
            .client
            .transact_write_items()
            .set_transact_items(Some(items))
            .client_request_token(token.as_str());
        let attempt = || async {
            match request.clone().send().await {
                Ok(_) => Ok(Ok(Commit::Done)),
                Err(error) => match error.as_service_error() {
                    Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                        judge(cancelled.cancellation_reasons(), writes)
                    }
                    Some(TransactWriteItemsError::IdempotentParameterMismatchException(_)) => {
                        Err(Failure::new(Verdict::Final(Kind::Unknown), token_reused().to_string()))
                    }
                    _ => Err(Failure::of(error, &self.place)),
                },
            }
        };
        let only_checks = writes.iter().all(|write| matches!(write.op, Op::Check));
        let repeat = if only_checks { Repeat::Read } else { Repeat::Harmless };
        let Settled { answer, in_doubt } = self.settle(repeat, attempt).await?;
        match answer? {
            Commit::Refused { .. } if in_doubt && !only_checks => Err(Error::new(
                Kind::Unknown,
                "a repetition was refused, but an earlier attempt had no answer and may still arrive; \
                 read the rows back",
            )),
            commit => Ok(commit),
        }
    }

    fn transact_item(&self, write: &Write) -> Result<TransactWriteItem> {
        let Expression { update, condition, names, values } = expression_of(write);
        let table = &self.place.table;
        let key = || Some(from_key(&write.key));
        let item = TransactWriteItem::builder();
        let built = match &write.op {
            Op::Put(row) => Put::builder()
                .table_name(table)
                .set_item(Some(from_item(&write.key, row)))
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .set_return_values_on_condition_check_failure(seen_by(write))
                .build()
                .map(|put| item.put(put)),
            Op::Update(_) => UpdateItem::builder()
                .table_name(table)
                .set_key(key())
                .set_update_expression(update)
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .set_return_values_on_condition_check_failure(seen_by(write))
                .build()
                .map(|update| item.update(update)),
            Op::Delete => Delete::builder()
                .table_name(table)
                .set_key(key())
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .set_return_values_on_condition_check_failure(seen_by(write))
                .build()
                .map(|delete| item.delete(delete)),
            Op::Check => ConditionCheck::builder()
                .table_name(table)
                .set_key(key())
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .set_return_values_on_condition_check_failure(seen_by(write))
                .build()
                .map(|check| item.condition_check(check)),
        };
        let built =
            built.map_err(|cause| Error::invalid("a write has no form on DynamoDB").caused_by(cause))?;
        Ok(built.build())
    }
}

fn expression_of(write: &Write) -> Expression {
    let update = match &write.op {
        Op::Update(update) => Some(update),
        Op::Put(_) | Op::Delete | Op::Check => None,
    };
    expression::of_write(update, write.cond.as_ref())
}

/// With a refusal comes the row that refused, so that nobody has to read it again.
fn seen_by(write: &Write) -> Option<ReturnValuesOnConditionCheckFailure> {
    write.cond.is_some().then_some(ReturnValuesOnConditionCheckFailure::AllOld)
}

fn refused(index: usize, seen: Option<&Attributes>) -> Result<Commit> {
    let seen = seen.filter(|attributes| !attributes.is_empty()).cloned().map(to_item).transpose()?;
    Ok(Commit::Refused { index, seen })
}

/// Reads why a transaction was cancelled. Nothing of it was written, whatever the reasons; of several,
/// the first of these decides:
///
/// 1. A write that can never be done is an error, as it is on the embedded backends: the caller's mistake
///    does not hide behind a condition that happened to be false.
/// 2. A false condition is a refusal, even beside a conflict or a throttle: trying again would ask a question
///    that has been answered. Its index is the lowest among the conditions that were found false; one that
///    met a conflict was not evaluated.
/// 3. A transaction that is still going on under the same token leaves the outcome open.
/// 4. A conflict or a throttle is tried again.
/// 5. A reason that is not known to this version is final: nothing was written, and nobody knows whether a
///    repeat would fare better.
fn judge(reasons: &[CancellationReason], writes: &[Write]) -> Result<Result<Commit>, Failure> {
    let first = |codes: &[&str]| {
        let found = |reason: &CancellationReason| reason.code().is_some_and(|code| codes.contains(&code));
        reasons.iter().position(found)
    };
    let say = |index: usize| {
        let reason = &reasons[index];
        let code = reason.code().unwrap_or_default();
        let said = reason.message().map_or_else(|| code.to_owned(), |message| format!("{code}: {message}"));
        match writes.get(index) {
            Some(write) => format!("{}: {said}", Place { index, key: &write.key }),
            None => said,
        }
    };
    if let Some(index) = first(&["ValidationError", "ItemCollectionSizeLimitExceeded", "DuplicateItem"]) {
        return Err(Failure::new(Verdict::Final(Kind::Invalid), say(index)));
    }
    if let Some(index) = first(&["ConditionalCheckFailed"]) {
        return Ok(refused(index, reasons[index].item()));
    }
    if let Some(index) = first(&["TransactionInProgress"]) {
        return Err(Failure::new(Verdict::Ambiguous, say(index)));
    }
    if let Some(index) = first(&["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]) {
        return Err(Failure::new(Verdict::NotApplied, say(index)));
    }
    let unknown = reasons.iter().position(|reason| !matches!(reason.code(), None | Some("None")));
    let why = unknown.map_or_else(|| "DynamoDB gave no reason".to_owned(), say);
    Err(Failure::new(Verdict::Final(Kind::Unavailable), format!("the transaction was cancelled: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Item, Key};
    use aws_sdk_dynamodb::types::AttributeValue;

    fn judged(codes: &[&str]) -> Result<Result<Commit>, Failure> {
        let reason = |code: &&str| CancellationReason::builder().code(*code).build();
        let reasons: Vec<_> = codes.iter().map(reason).collect();
        let writes: Vec<_> =
            (0..codes.len()).map(|index| Write::delete(Key::new("a", index.to_string()))).collect();
        judge(&reasons, &writes)
    }

    #[test]
    fn a_refusal_wins_over_a_conflict_and_a_mistake_over_both() {
        for (codes, index) in [
            (vec!["None", "ConditionalCheckFailed", "ConditionalCheckFailed"], 1),
            (vec!["TransactionConflict", "None", "ConditionalCheckFailed"], 2),
            (vec!["ConditionalCheckFailed", "ThrottlingError"], 0),
            (vec!["ConditionalCheckFailed", "TransactionInProgress"], 0),
        ] {
            let commit = judged(&codes).expect("it is an answer").expect("it is readable");
            assert_eq!(commit, Commit::Refused { index, seen: None }, "{codes:?}");
        }
        let mistake = judged(&["ConditionalCheckFailed", "ValidationError"]).expect_err("it is a mistake");
        assert_eq!(mistake.verdict, Verdict::Final(Kind::Invalid));
        assert_eq!(mistake.message(), "write 1 (1 of a): ValidationError");
    }

    #[test]
    fn what_passes_is_tried_again_and_what_is_strange_is_not() {
        for (codes, verdict) in [
            (vec!["None", "TransactionConflict"], Verdict::NotApplied),
            (vec!["ThrottlingError"], Verdict::NotApplied),
            (vec!["ProvisionedThroughputExceeded", "None"], Verdict::NotApplied),
            (vec!["TransactionConflict", "TransactionInProgress"], Verdict::Ambiguous),
            (vec!["None", "AccessDenied"], Verdict::Final(Kind::Unavailable)),
            (vec![], Verdict::Final(Kind::Unavailable)),
        ] {
            assert_eq!(judged(&codes).expect_err("it failed").verdict, verdict, "{codes:?}");
        }
    }

    #[test]
    fn a_refusal_brings_the_row_and_a_damaged_row_is_an_error() {
        let refusal = |value| {
            CancellationReason::builder().code("ConditionalCheckFailed").item("version", value).build()
        };
        let writes = [Write::delete(Key::new("a", "b"))];
        let seen = Some(Item::from([("version", 3.into())]));
        let commit = judge(&[refusal(AttributeValue::N("3".into()))], &writes).expect("it is an answer");
        assert_eq!(commit.expect("it is readable"), Commit::Refused { index: 0, seen });
        let damaged = judge(&[refusal(AttributeValue::N("x".into()))], &writes).expect("it is an answer");
        assert_eq!(damaged.expect_err("it is damaged").kind(), Kind::Corrupt);
    }
}
