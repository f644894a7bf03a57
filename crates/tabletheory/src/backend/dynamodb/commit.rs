//! Commits: a single write as one operation, several as a transaction.

use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    CancellationReason, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    Update as UpdateItem,
};

use super::DynamoTable;
use super::convert::{Attributes, from_item, from_key, to_row};
use super::expression::{self, Expression};
use super::failure::{Failure, FailureKind};
use super::retry::{Idempotency, Retried};
use crate::backend::token_reused;
use crate::check::WriteLabel;
use crate::error::{Error, Kind, Result};
use crate::txn::{ClientToken, Commit, Op, Txn, Write};

/// Adds the table and the condition of a write to a builder of the SDK, which has a distinct type for each operation.
macro_rules! conditional {
    ($table:expr, $write:expr, $expression:expr, $builder:expr) => {
        $builder
            .table_name(&$table.label.table)
            .set_condition_expression($expression.condition)
            .set_expression_attribute_names($expression.names)
            .set_expression_attribute_values($expression.values)
            .set_return_values_on_condition_check_failure(return_values($write))
    };
}

/// Sends a single write. A lost response is not followed by a retry: a conditional write could be refused because of its
/// first attempt, and an unconditional one could overwrite later writes of others.
macro_rules! single {
    ($table:expr, $write:expr, $expression:expr, $builder:expr, $error:ident) => {
        send!(
            $table,
            Idempotency::NotIdempotent,
            conditional!($table, $write, $expression, $builder),
            _ => Ok(Commit::Done),
            $error::ConditionalCheckFailedException(refusal) => Ok(refused(0, refusal.item.as_ref())),
        )?
        .result
    };
}

impl DynamoTable {
    pub(super) async fn commit_checked(&self, txn: &Txn) -> Result<Commit> {
        match (txn.writes.as_slice(), &txn.token) {
            // A single write costs half as much as a transaction.
            ([write], None) => self.commit_single(write).await,
            (writes, Some(token)) => self.transact(writes, token).await,
            // The token makes retries of this call idempotent.
            (writes, None) => self.transact(writes, &ClientToken::random(&*self.random)).await,
        }
    }

    async fn commit_single(&self, write: &Write) -> Result<Commit> {
        let mut expression = expression_of(write);
        let update = expression.update.take();
        let key = Some(from_key(&write.key));
        match &write.op {
            Op::Put(item) => {
                let item = Some(from_item(&write.key, item));
                single!(self, write, expression, self.client.put_item().set_item(item), PutItemError)
            }
            Op::Update(_) => {
                let builder = self.client.update_item().set_key(key).set_update_expression(update);
                single!(self, write, expression, builder, UpdateItemError)
            }
            Op::Delete => {
                single!(self, write, expression, self.client.delete_item().set_key(key), DeleteItemError)
            }
            // DynamoDB has no operation for a single check.
            Op::Check => {
                self.transact(std::slice::from_ref(write), &ClientToken::random(&*self.random)).await
            }
        }
    }

    /// Sends a transaction until its outcome is known, or until the limits of the settings are reached.
    ///
    /// A refused retry is not conclusive after a lost response: because of the token the lost attempt was not applied
    /// before, but it may still arrive and find the condition true.
    async fn transact(&self, writes: &[Write], token: &ClientToken) -> Result<Commit> {
        let items = writes.iter().map(|write| self.transact_item(write)).collect::<Result<Vec<_>>>()?;
        let request = self
            .client
            .transact_write_items()
            .set_transact_items(Some(items))
            .client_request_token(token.as_str());
        let only_checks = writes.iter().all(|write| matches!(write.op, Op::Check));
        let idempotency = if only_checks { Idempotency::Read } else { Idempotency::Idempotent };
        let Retried { result, in_doubt } = send!(
            self,
            idempotency,
            request,
            _ => Ok(Commit::Done),
            TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                classify_cancellation(cancelled.cancellation_reasons(), writes)
            }
            TransactWriteItemsError::IdempotentParameterMismatchException(_) => {
                Err(Failure::new(FailureKind::Permanent(Kind::Unknown), token_reused().to_string()))
            }
        )?;
        match result? {
            Commit::Refused { .. } if in_doubt && !only_checks => Err(Error::new(
                Kind::Unknown,
                "a retry was refused, but an earlier attempt got no response and may still be applied; \
                 read the rows back",
            )),
            commit => Ok(commit),
        }
    }

    fn transact_item(&self, write: &Write) -> Result<TransactWriteItem> {
        let mut expression = expression_of(write);
        let update = expression.update.take();
        let key = Some(from_key(&write.key));
        let item = TransactWriteItem::builder();
        let built = match &write.op {
            Op::Put(row) => {
                let builder = Put::builder().set_item(Some(from_item(&write.key, row)));
                conditional!(self, write, expression, builder).build().map(|put| item.put(put))
            }
            Op::Update(_) => {
                let builder = UpdateItem::builder().set_key(key).set_update_expression(update);
                conditional!(self, write, expression, builder).build().map(|update| item.update(update))
            }
            Op::Delete => {
                let builder = Delete::builder().set_key(key);
                conditional!(self, write, expression, builder).build().map(|delete| item.delete(delete))
            }
            Op::Check => {
                let builder = ConditionCheck::builder().set_key(key);
                conditional!(self, write, expression, builder)
                    .build()
                    .map(|check| item.condition_check(check))
            }
        };
        let item = built.map_err(|cause| Error::invalid("a write cannot be sent").caused_by(cause))?;
        Ok(item.build())
    }
}

fn expression_of(write: &Write) -> Expression {
    let update = match &write.op {
        Op::Update(update) => Some(update),
        Op::Put(_) | Op::Delete | Op::Check => None,
    };
    expression::of_write(update, write.cond.as_ref())
}

/// Makes a refusal return the stored row, so that it need not be read again.
fn return_values(write: &Write) -> Option<ReturnValuesOnConditionCheckFailure> {
    write.cond.is_some().then_some(ReturnValuesOnConditionCheckFailure::AllOld)
}

fn refused(index: usize, seen: Option<&Attributes>) -> Result<Commit> {
    let seen = seen.filter(|attributes| !attributes.is_empty()).cloned().map(to_row).transpose()?;
    Ok(Commit::Refused { index, seen })
}

/// Classifies a cancelled transaction, of which nothing was written. If there are several reasons, the first of these
/// decides:
///
/// 1. An impossible write is an error, as on the embedded backends: a false condition must not hide a mistake of the caller.
/// 2. A false condition is a refusal, even beside a conflict or throttling: a retry would not change it. The index is the
///    lowest of the conditions that were found false; a write with a conflict was not evaluated.
/// 3. A transaction in progress with the same token is ambiguous.
/// 4. A conflict or throttling is retried.
/// 5. An unknown reason is permanent.
fn classify_cancellation(
    reasons: &[CancellationReason],
    writes: &[Write],
) -> Result<Result<Commit>, Failure> {
    let first = |codes: &[&str]| {
        let found = |reason: &CancellationReason| reason.code().is_some_and(|code| codes.contains(&code));
        reasons.iter().position(found)
    };
    let describe = |index: usize| {
        let reason = &reasons[index];
        let code = reason.code().unwrap_or_default();
        let detail = reason.message().map_or_else(|| code.to_owned(), |message| format!("{code}: {message}"));
        match writes.get(index) {
            Some(write) => format!("{}: {detail}", WriteLabel { index, key: &write.key }),
            None => detail,
        }
    };
    if let Some(index) = first(&["ValidationError", "ItemCollectionSizeLimitExceeded", "DuplicateItem"]) {
        return Err(Failure::new(FailureKind::Permanent(Kind::Invalid), describe(index)));
    }
    if let Some(index) = first(&["ConditionalCheckFailed"]) {
        return Ok(refused(index, reasons[index].item()));
    }
    if let Some(index) = first(&["TransactionInProgress"]) {
        return Err(Failure::new(FailureKind::Ambiguous, describe(index)));
    }
    if let Some(index) = first(&["ThrottlingError", "ProvisionedThroughputExceeded"]) {
        return Err(Failure::throttled(describe(index)));
    }
    if let Some(index) = first(&["TransactionConflict"]) {
        return Err(Failure::new(FailureKind::NotApplied, describe(index)));
    }
    let unknown = reasons.iter().position(|reason| !matches!(reason.code(), None | Some("None")));
    let reason = unknown.map_or_else(|| "DynamoDB gave no reason".to_owned(), describe);
    Err(Failure::new(
        FailureKind::Permanent(Kind::Unavailable),
        format!("the transaction was cancelled: {reason}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Item, Key};
    use aws_sdk_dynamodb::types::AttributeValue;

    fn classify(codes: &[&str]) -> Result<Result<Commit>, Failure> {
        let reason = |code: &&str| CancellationReason::builder().code(*code).build();
        let reasons: Vec<_> = codes.iter().map(reason).collect();
        let writes: Vec<_> =
            (0..codes.len()).map(|index| Write::delete(Key::new("a", index.to_string()))).collect();
        classify_cancellation(&reasons, &writes)
    }

    #[test]
    fn a_refusal_takes_precedence_over_a_conflict_and_an_invalid_write_over_both() {
        for (codes, index) in [
            (vec!["None", "ConditionalCheckFailed", "ConditionalCheckFailed"], 1),
            (vec!["TransactionConflict", "None", "ConditionalCheckFailed"], 2),
            (vec!["ConditionalCheckFailed", "ThrottlingError"], 0),
            (vec!["ConditionalCheckFailed", "TransactionInProgress"], 0),
        ] {
            let commit = classify(&codes).expect("a result").expect("a readable row");
            assert_eq!(commit, Commit::Refused { index, seen: None }, "{codes:?}");
        }
        let failure = classify(&["ConditionalCheckFailed", "ValidationError"]).expect_err("an invalid write");
        assert_eq!(failure.kind, FailureKind::Permanent(Kind::Invalid));
        assert_eq!(failure.message(), "write 1 (1 of a): ValidationError");
    }

    #[test]
    fn conflicts_and_throttling_are_retried_and_unknown_reasons_are_not() {
        for (codes, kind) in [
            (vec!["None", "TransactionConflict"], FailureKind::NotApplied),
            (vec!["ThrottlingError"], FailureKind::NotApplied),
            (vec!["ProvisionedThroughputExceeded", "None"], FailureKind::NotApplied),
            (vec!["TransactionConflict", "TransactionInProgress"], FailureKind::Ambiguous),
            (vec!["None", "AccessDenied"], FailureKind::Permanent(Kind::Unavailable)),
            (vec![], FailureKind::Permanent(Kind::Unavailable)),
        ] {
            assert_eq!(classify(&codes).expect_err("a failure").kind, kind, "{codes:?}");
        }
    }

    #[test]
    fn a_refusal_returns_the_row_and_a_damaged_row_is_an_error() {
        let refusal = |value| {
            CancellationReason::builder().code("ConditionalCheckFailed").item("version", value).build()
        };
        let writes = [Write::delete(Key::new("a", "b"))];
        let seen = Some(Item::from([("version", 3.into())]));
        let commit =
            classify_cancellation(&[refusal(AttributeValue::N("3".into()))], &writes).expect("a result");
        assert_eq!(commit.expect("a readable row"), Commit::Refused { index: 0, seen });
        let damaged =
            classify_cancellation(&[refusal(AttributeValue::N("x".into()))], &writes).expect("a result");
        assert_eq!(damaged.expect_err("a damaged row").kind(), Kind::Corrupt);
    }
}
