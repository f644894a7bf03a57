//! The table on DynamoDB, against a real server: what it does, and what it says when things go wrong.

mod faults;
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
use tabletheory::dynamodb::{Creation, KeyPart, Problem, Role};
use tabletheory::{
    Attr, Backoff, ClientToken, Commit, Cond, Consistency, Cursor, DynamoSettings, DynamoTable, Error, Item,
    Key, Kind, Model, Page, Query, Random, Scan, SystemRandom, Table, TableExt, Txn, Update, Value, Write,
};

const PK: Attr<String> = Attr::new("pk");
const VERSION: Attr<i64> = Attr::new("version");
const HITS: Attr<i64> = Attr::new("hits");

/// How many attempts the tables of these tests make.
const ATTEMPTS: u32 = 4;

/// Settings that give up within a moment.
fn settings(endpoint: impl Into<String>) -> DynamoSettings {
    DynamoSettings::default()
        .endpoint(endpoint)
        .attempts(ATTEMPTS)
        .backoff(Backoff::new(Duration::from_millis(1), Duration::from_millis(5)))
}

fn table_at(endpoint: impl Into<String>, name: &str) -> DynamoTable {
    DynamoTable::new(&dynamodb_client(), name, settings(endpoint)).expect("name and settings are right")
}

fn new_name() -> String {
    format!("tabletheory-test-{:016x}", SystemRandom.next_u64())
}

/// A table of its own, directly at the server.
async fn new_table() -> TestTable {
    let table = table_at(support::dynamodb_endpoint(), &new_name());
    assert_eq!(table.create_table_if_missing().await.expect("the server is up"), Creation::Created);
    TestTable(table)
}

/// A table that is deleted when its test ends.
struct TestTable(DynamoTable);

impl Deref for TestTable {
    type Target = DynamoTable;

    fn deref(&self) -> &DynamoTable {
        &self.0
    }
}

impl Drop for TestTable {
    fn drop(&mut self) {
        // The test's own runtime cannot be waited for from within it.
        let name = self.name().to_owned();
        let deletion = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let table = table_at(support::dynamodb_endpoint(), &name);
            runtime.block_on(table.delete_table_and_all_rows()).map_err(std::io::Error::other)
        });
        // A table that stays is in nobody's way.
        let _ = deletion.join();
    }
}

/// The same table through a proxy.
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
    table.get(&key(sk), Consistency::Strong).await.expect("the server is up")
}

async fn number(table: &DynamoTable, sk: &str, name: &str) -> Option<i64> {
    read(table, sk).await.and_then(|row| row.get(name).and_then(Value::as_i64))
}

async fn put(table: &DynamoTable, sk: &str, item: Item) {
    assert!(table.commit(&Write::put(key(sk), item).into()).await.expect("the server is up").is_done());
}

async fn failed(table: &DynamoTable, txn: impl Into<Txn>) -> Error {
    table.commit(&txn.into()).await.expect_err("it must fail")
}

/// Two writes: a new row, and one hit more.
fn publish() -> Txn {
    Txn::new([
        Write::put(key("VER#1"), numbered(1)).when(PK.absent()),
        Write::update(key("META"), Update::new([HITS.add(1)])),
    ])
}
