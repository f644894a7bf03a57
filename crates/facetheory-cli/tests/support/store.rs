//! Stores that several gateways share.

use std::path::Path;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use facetheory::protocol::Lock;
use tabletheory::{DynamoSettings, DynamoTable, Item, Random as _, Scan, SystemRandom, Table, Txn};
use tempfile::TempDir;

/// A table and a body store that any number of gateways may use.
pub(crate) struct Store {
    /// The address of the table, as on the command line.
    pub(crate) table: String,
    /// The address of the bodies, as on the command line.
    pub(crate) bodies: String,
    /// Environment variables that a gateway needs to reach them.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The directory of an embedded store, which is deleted with it.
    directory: Option<TempDir>,
}

/// The variable with the endpoint of DynamoDB.
const DYNAMODB: &str = "AWS_ENDPOINT_URL_DYNAMODB";
/// The variable with the endpoint of S3.
const S3: &str = "AWS_ENDPOINT_URL_S3";
const REGION: &str = "us-east-1";

impl Store {
    /// A new table in DynamoDB, and bodies in S3, on the servers of `scripts/local-aws start`.
    pub(crate) fn on_servers() -> Store {
        let store = Store::at(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"), &s3_endpoint());
        store.create_table();
        store
    }

    /// DynamoDB and S3 at these endpoints; the table has a new name and is not created yet.
    pub(crate) fn at(dynamodb: &str, s3: &str) -> Store {
        let name = format!("facetheory-gateways-{:x}", SystemRandom.next_u64());
        Store {
            bodies: format!("s3://{}/{name}", server_variable("FACETHEORY_TEST_S3_BUCKET")),
            table: format!("dynamodb:{name}"),
            environment: vec![
                (DYNAMODB, dynamodb.to_owned()),
                (S3, s3.to_owned()),
                ("AWS_ACCESS_KEY_ID", server_variable("AWS_ACCESS_KEY_ID")),
                ("AWS_SECRET_ACCESS_KEY", server_variable("AWS_SECRET_ACCESS_KEY")),
                ("AWS_REGION", REGION.to_owned()),
            ],
            directory: None,
        }
    }

    /// Returns a store with this table and these bodies at other endpoints.
    pub(crate) fn through(&self, dynamodb: &str, s3: &str) -> Store {
        let environment = self.environment.iter().map(|(name, value)| match *name {
            DYNAMODB => (DYNAMODB, dynamodb.to_owned()),
            S3 => (S3, s3.to_owned()),
            name => (name, value.clone()),
        });
        Store {
            table: self.table.clone(),
            bodies: self.bodies.clone(),
            environment: environment.collect(),
            directory: None,
        }
    }

    /// One SQLite file and bodies in files, in a temporary directory.
    pub(crate) fn embedded() -> Store {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::in_directory(directory.path());
        Store { directory: Some(directory), ..store }
    }

    /// The table of these servers, and bodies in files in a temporary directory.
    pub(crate) fn with_bodies_in_files(self) -> Store {
        let Store { bodies, directory, .. } = Store::embedded();
        Store { bodies, directory, ..self }
    }

    /// One SQLite file and bodies in files.
    pub(crate) fn in_directory(directory: &Path) -> Store {
        let path = directory.display();
        Store {
            table: format!("sqlite:{path}/table.db"),
            bodies: format!("file:{path}/bodies"),
            environment: vec![],
            directory: None,
        }
    }

    /// Creates the table in DynamoDB; SQLite creates its own.
    pub(crate) fn create_table(&self) {
        if self.table.starts_with("dynamodb:") {
            runtime().block_on(async {
                self.dynamo_table().create_table_if_missing().await.expect("a table");
            });
        }
    }

    /// Creates the table in DynamoDB with this partition key and no sort key.
    pub(crate) fn create_table_with_key(&self, name: &str) {
        let key = KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Hash).build();
        let attribute = AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(ScalarAttributeType::S)
            .build();
        let request = self
            .client()
            .create_table()
            .table_name(self.table.trim_start_matches("dynamodb:"))
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(key.expect("a key"))
            .attribute_definitions(attribute.expect("an attribute"));
        runtime().block_on(request.send()).expect("a table");
    }

    /// All leases in the table, including expired ones.
    pub(crate) fn locks(&self) -> Vec<Lock> {
        let is_lock = |row: &&Item| row.key().expect("a key").sk == "LOCK";
        self.rows().iter().filter(is_lock).map(|row| Lock::read(row).expect("a lock")).collect()
    }

    /// Writes rows, as another service does.
    pub(crate) fn commit(&self, txn: &Txn) {
        let commit = runtime().block_on(async { self.open().await.commit(txn).await });
        assert!(commit.expect("a response").is_done(), "the transaction was refused");
    }

    /// Writes rows by many transactions.
    pub(crate) fn commit_all(&self, txns: impl IntoIterator<Item = Txn>) {
        runtime().block_on(async {
            let table = self.open().await;
            for txn in txns {
                assert!(table.commit(&txn).await.expect("a response").is_done(), "a transaction was refused");
            }
        });
    }

    /// All rows of the table.
    pub(crate) fn rows(&self) -> Vec<Item> {
        runtime().block_on(async {
            let table = self.open().await;
            let (mut rows, mut scan) = (Vec::new(), Scan::new());
            loop {
                let page = table.scan(&scan).await.expect("rows");
                rows.extend(page.items);
                match page.next {
                    Some(next) => scan = Scan::new().after(next),
                    None => return rows,
                }
            }
        })
    }

    async fn open(&self) -> Arc<dyn Table> {
        if self.table.starts_with("dynamodb:") {
            return Arc::new(self.dynamo_table());
        }
        tabletheory::open(&self.table).await.expect("the table")
    }

    /// Connects with the variables of the gateways, which are not set in the environment of the test.
    fn dynamo_table(&self) -> DynamoTable {
        let name = self.table.trim_start_matches("dynamodb:");
        DynamoTable::new(&self.client(), name, DynamoSettings::default()).expect("a table")
    }

    fn client(&self) -> Client {
        let variable = |sought: &str| {
            let found = self.environment.iter().find(|(name, _)| *name == sought);
            found.map(|(_, value)| value.clone()).expect("a variable of the gateways")
        };
        let (id, secret) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .endpoint_url(variable(DYNAMODB))
            .credentials_provider(Credentials::new(id, secret, None, None, "tests"));
        Client::from_conf(config.build())
    }
}

/// The endpoint of the S3 server that all tests share.
pub(crate) fn s3_endpoint() -> String {
    server_variable("FACETHEORY_TEST_S3_ENDPOINT")
}

/// A new runtime for each call, since a connection belongs to the runtime that opened it.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A variable with the address or the credentials of a server: from the environment, or from `scripts/local-aws start`.
///
/// # Panics
/// If it is not set: a test that cannot run must not pass.
pub(crate) fn server_variable(name: &str) -> String {
    if let Ok(value) = std::env::var(name) {
        return value;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.local-aws/env");
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    let set = lines.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| *key == name);
    match set {
        Some((_, value)) => value.to_owned(),
        None => panic!("{name} is not set; run `scripts/local-aws start` or `./scripts/test`"),
    }
}
