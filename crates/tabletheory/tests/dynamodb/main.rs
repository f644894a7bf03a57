//! Tests of the DynamoDB backend with DynamoDB Local: operations, and errors.

mod faults;
mod observer;
mod pages;
#[path = "../support/proxy.rs"]
mod proxy;
mod rows;
#[path = "../support/mod.rs"]
mod support;
mod tables;

use std::error::Error as _;
use std::ops::Deref;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use proxy::{Action, Proxy};
use serde_json::{Value as Json, json};
use support::dynamodb_client;
use tabletheory::dynamodb::{Creation, KeyPart, Problem};
use tabletheory::{
    Acquire, Attr, Backoff, ClientToken, Commit, Cond, Consistency, Cursor, DynamoSettings, DynamoTable,
    Error, Item, Key, Kind, LeaseManager, Model, Page, Query, Random, Scan, SystemRandom, Table, TableExt,
    Txn, Update, Value, Write,
};

const PK: Attr<String> = Attr::new("pk");
const VERSION: Attr<i64> = Attr::new("version");
const HITS: Attr<i64> = Attr::new("hits");

/// Number of attempts of the tables in these tests.
const ATTEMPTS: u32 = 4;

/// Settings with short delays between attempts.
fn settings(endpoint: impl Into<String>) -> DynamoSettings {
    DynamoSettings::default()
        .endpoint(endpoint)
        .attempts(ATTEMPTS)
        .backoff(Backoff::new(Duration::from_millis(1), Duration::from_millis(5)))
}

fn table_at(endpoint: impl Into<String>, name: &str) -> DynamoTable {
    DynamoTable::new(&dynamodb_client(), name, settings(endpoint)).expect("valid name and settings")
}

fn new_name() -> String {
    format!("tabletheory-test-{:016x}", SystemRandom.next_u64())
}

/// Creates a table for one test.
async fn new_table() -> TestTable {
    let table = table_at(support::dynamodb_endpoint(), &new_name());
    assert_eq!(table.create_table_if_missing().await.expect("a response"), Creation::Created);
    TestTable(table)
}

/// A table that is deleted on drop.
struct TestTable(DynamoTable);

impl Deref for TestTable {
    type Target = DynamoTable;

    fn deref(&self) -> &DynamoTable {
        &self.0
    }
}

impl Drop for TestTable {
    fn drop(&mut self) {
        // Blocking on the runtime of the test is not possible here.
        let name = self.name().to_owned();
        let deletion = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let table = table_at(support::dynamodb_endpoint(), &name);
            runtime.block_on(table.delete_table_and_all_rows()).map_err(std::io::Error::other)
        });
        // A table that is not deleted does no harm.
        let _ = deletion.join();
    }
}

/// Returns the table behind a new proxy.
async fn through_proxy(table: &DynamoTable) -> (DynamoTable, Proxy) {
    let proxy = Proxy::start(&support::dynamodb_endpoint()).await;
    (table_at(proxy.endpoint(), table.name()), proxy)
}

fn key(sk: &str) -> Key {
    Key::new("CACHE#1", sk)
}

fn numbered(version: i64) -> Item {
    Item::from([("version", Value::from(version))])
}

async fn read(table: &DynamoTable, sk: &str) -> Option<Item> {
    table.get(&key(sk), Consistency::Strong).await.expect("a response")
}

async fn number(table: &DynamoTable, sk: &str, name: &str) -> Option<i64> {
    read(table, sk).await.and_then(|row| row.get(name).and_then(Value::as_i64))
}

async fn put(table: &DynamoTable, sk: &str, item: Item) {
    assert!(table.commit(&Write::put(key(sk), item).into()).await.expect("a response").is_done());
}

async fn failed(table: &DynamoTable, txn: impl Into<Txn>) -> Error {
    table.commit(&txn.into()).await.expect_err("a failure")
}

/// A transaction of a new row and a counter.
fn publish() -> Txn {
    Txn::new([
        Write::put(key("VER#1"), numbered(1)).when(PK.absent()),
        Write::update(key("META"), Update::new([HITS.add(1)])),
    ])
}
