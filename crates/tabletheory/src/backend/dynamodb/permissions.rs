//! Tests the permissions that a process needs to use a table, without writing anything.

use super::DynamoTable;
use crate::attr::Attr;
use crate::error::{Error, Result};
use crate::item::{Item, Key, PK};
use crate::query::{Consistency, Query, Scan};
use crate::table::Table as _;
use crate::txn::{Txn, Write};
use crate::update::Update;

/// Whether an IAM action on a table is allowed.
///
/// ```no_run
/// # async fn example(table: tabletheory::DynamoTable) {
/// for permission in table.probe_permissions().await {
///     println!("{}: {}", permission.action, if permission.result.is_ok() { "allowed" } else { "denied" });
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Permission {
    /// The IAM action, such as `dynamodb:GetItem`.
    pub action: &'static str,
    /// Success, or why the request failed.
    pub result: Result<()>,
}

impl DynamoTable {
    /// Tests each action of [`Purpose::Data`](crate::dynamodb::Purpose::Data) with a request that changes nothing: reads of a
    /// row that does not exist, and writes whose condition is false.
    ///
    /// ```no_run
    /// # async fn example(table: tabletheory::DynamoTable) {
    /// assert!(table.probe_permissions().await.iter().all(|permission| permission.result.is_ok()));
    /// # }
    /// ```
    pub async fn probe_permissions(&self) -> Vec<Permission> {
        // A partition with 128 random bits contains no row.
        let pk = format!("CHECK#{:016x}{:016x}", self.random.next_u64(), self.random.next_u64());
        let key = Key::new(pk.clone(), "CHECK");
        let exists = Attr::<String>::new(PK).exists();
        let touch = Update::new([Attr::<i64>::new("checked").set(1)]);
        let write = async |write: Write| {
            let refused = self.commit(&Txn::from(write.when(exists.clone()))).await?;
            if refused.is_done() {
                return Err(Error::invalid("a write was applied although its condition is false"));
            }
            Ok(())
        };
        let strong = Consistency::Strong;
        let results = [
            ("dynamodb:GetItem", self.get(&key, strong).await.map(drop)),
            ("dynamodb:BatchGetItem", self.batch_get(std::slice::from_ref(&key), strong).await.map(drop)),
            ("dynamodb:Query", self.query(&Query::of(pk)).await.map(drop)),
            ("dynamodb:Scan", self.scan(&Scan::new().limit(1)).await.map(drop)),
            ("dynamodb:PutItem", write(Write::put(key.clone(), Item::new())).await),
            ("dynamodb:UpdateItem", write(Write::update(key.clone(), touch)).await),
            ("dynamodb:DeleteItem", write(Write::delete(key.clone())).await),
            ("dynamodb:ConditionCheckItem", write(Write::check(key, exists.clone())).await),
        ];
        results.into_iter().map(|(action, result)| Permission { action, result }).collect()
    }
}
