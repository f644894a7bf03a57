//! Every DynamoDB operation that this crate calls, in one list, with the IAM actions that it needs.
//!
//! `send!` accepts only requests of this list, so no call can be missing from it.

use aws_sdk_dynamodb::operation::*;
use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity};

/// A DynamoDB operation that a [`DynamoTable`](crate::DynamoTable) calls.
///
/// ```
/// use tabletheory::dynamodb::{OPERATIONS, Purpose};
///
/// let query = OPERATIONS.iter().find(|operation| operation.name == "Query").unwrap();
/// assert_eq!((query.purpose, query.actions), (Purpose::Data, ["dynamodb:Query"].as_slice()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// The name of the operation in the API of DynamoDB.
    pub name: &'static str,
    /// The IAM actions that it needs. A transaction needs the actions of the writes in it.
    pub actions: &'static [&'static str],
    /// The callers of the operation.
    pub purpose: Purpose,
}

/// The callers of an [`Operation`], which decides who needs its permission.
///
/// ```
/// assert_ne!(tabletheory::dynamodb::Purpose::Data, tabletheory::dynamodb::Purpose::Manage);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Reads and writes of rows: every process that uses the table.
    Data,
    /// Descriptions of the table: a process that verifies it.
    Inspect,
    /// Creating, changing and deleting the table: an operator.
    Manage,
}

/// A request of the SDK.
pub(super) trait Request {
    const OPERATION: Operation;

    /// Makes the response contain the consumed capacity, if the operation consumes any. That costs nothing.
    fn count_capacity(self) -> Self;
}

/// A response of the SDK.
pub(super) trait Response {
    /// The consumed capacity units, if the response contains them.
    fn units(&self) -> Option<f64>;
}

/// The capacity of an operation: of its one table, of a list of tables, or none.
macro_rules! capacity {
    (request none, $request:expr) => {
        $request
    };
    (request $any:ident, $request:expr) => {
        $request.return_consumed_capacity(ReturnConsumedCapacity::Total)
    };
    (response none, $response:expr) => {
        None
    };
    (response one, $response:expr) => {
        $response.consumed_capacity().and_then(ConsumedCapacity::capacity_units)
    };
    (response many, $response:expr) => {
        $response
            .consumed_capacity()
            .iter()
            .filter_map(ConsumedCapacity::capacity_units)
            .reduce(|sum, units| sum + units)
    };
}

/// The name of the operation of a request.
pub(super) fn name_of<R: Request>(_: &R) -> &'static str {
    R::OPERATION.name
}

macro_rules! operations {
    ($($module:ident::{$builder:ident, $output:ident}: $name:literal, $purpose:ident, $capacity:ident, [$($action:literal),+];)+) => {
        /// All operations that a [`DynamoTable`](crate::DynamoTable) calls.
        ///
        /// ```
        /// assert!(tabletheory::dynamodb::OPERATIONS.iter().any(|operation| operation.name == "TransactWriteItems"));
        /// ```
        pub const OPERATIONS: &[Operation] = &[$($module::builders::$builder::OPERATION),+];

        $(
            impl Request for $module::builders::$builder {
                const OPERATION: Operation =
                    Operation { name: $name, actions: &[$(concat!("dynamodb:", $action)),+], purpose: Purpose::$purpose };

                fn count_capacity(self) -> Self {
                    capacity!(request $capacity, self)
                }
            }

            impl Response for $module::$output {
                fn units(&self) -> Option<f64> {
                    capacity!(response $capacity, self)
                }
            }
        )+
    };
}

operations! {
    get_item::{GetItemFluentBuilder, GetItemOutput}: "GetItem", Data, one, ["GetItem"];
    batch_get_item::{BatchGetItemFluentBuilder, BatchGetItemOutput}: "BatchGetItem", Data, many, ["BatchGetItem"];
    query::{QueryFluentBuilder, QueryOutput}: "Query", Data, one, ["Query"];
    scan::{ScanFluentBuilder, ScanOutput}: "Scan", Data, one, ["Scan"];
    put_item::{PutItemFluentBuilder, PutItemOutput}: "PutItem", Data, one, ["PutItem"];
    update_item::{UpdateItemFluentBuilder, UpdateItemOutput}: "UpdateItem", Data, one, ["UpdateItem"];
    delete_item::{DeleteItemFluentBuilder, DeleteItemOutput}: "DeleteItem", Data, one, ["DeleteItem"];
    transact_write_items::{TransactWriteItemsFluentBuilder, TransactWriteItemsOutput}: "TransactWriteItems", Data, many,
        ["PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"];
    describe_table::{DescribeTableFluentBuilder, DescribeTableOutput}: "DescribeTable", Inspect, none, ["DescribeTable"];
    describe_time_to_live::{DescribeTimeToLiveFluentBuilder, DescribeTimeToLiveOutput}: "DescribeTimeToLive", Inspect, none,
        ["DescribeTimeToLive"];
    describe_continuous_backups::{DescribeContinuousBackupsFluentBuilder, DescribeContinuousBackupsOutput}:
        "DescribeContinuousBackups", Inspect, none, ["DescribeContinuousBackups"];
    create_table::{CreateTableFluentBuilder, CreateTableOutput}: "CreateTable", Manage, none, ["CreateTable"];
    update_table::{UpdateTableFluentBuilder, UpdateTableOutput}: "UpdateTable", Manage, none, ["UpdateTable"];
    update_time_to_live::{UpdateTimeToLiveFluentBuilder, UpdateTimeToLiveOutput}: "UpdateTimeToLive", Manage, none,
        ["UpdateTimeToLive"];
    update_continuous_backups::{UpdateContinuousBackupsFluentBuilder, UpdateContinuousBackupsOutput}:
        "UpdateContinuousBackups", Manage, none, ["UpdateContinuousBackups"];
    delete_table::{DeleteTableFluentBuilder, DeleteTableOutput}: "DeleteTable", Manage, none, ["DeleteTable"];
}
