//! Where several gateways keep the same pages.

use std::path::Path;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use facetheory::protocol::Lock;
use tabletheory::{DynamoSettings, DynamoTable, Random as _, Scan, SystemRandom, Table};

/// A table and bodies that any number of gateways may use.
pub(crate) struct Store {
    /// The address of the table, as on the command line.
    pub(crate) table: String,
    /// The address of the bodies, as on the command line.
    pub(crate) bodies: String,
    /// What tells a gateway how to reach them.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// The variable that says where DynamoDB is.
const DYNAMODB: &str = "AWS_ENDPOINT_URL_DYNAMODB";
const REGION: &str = "us-east-1";

impl Store {
    /// DynamoDB and S3, as `scripts/local-aws start` has started them, with a table of its own.
    pub(crate) fn on_servers() -> Store {
        let store = Store::at(&setting("FACETHEORY_TEST_DYNAMODB_ENDPOINT"), &s3_endpoint());
        store.make_table();
        store
    }

    /// DynamoDB and S3 at these addresses; the table has a name of its own, and is yet to be made.
    pub(crate) fn at(dynamodb: &str, s3: &str) -> Store {
        let name = format!("facetheory-gateways-{:x}", SystemRandom.next_u64());
        Store {
            bodies: format!("s3://{}/{name}", setting("FACETHEORY_TEST_S3_BUCKET")),
            table: format!("dynamodb:{name}"),
            environment: vec![
                (DYNAMODB, dynamodb.to_owned()),
                ("AWS_ENDPOINT_URL_S3", s3.to_owned()),
                ("AWS_ACCESS_KEY_ID", setting("AWS_ACCESS_KEY_ID")),
                ("AWS_SECRET_ACCESS_KEY", setting("AWS_SECRET_ACCESS_KEY")),
                ("AWS_REGION", REGION.to_owned()),
            ],
        }
    }

    /// One SQLite file and bodies in files.
    pub(crate) fn in_directory(directory: &Path) -> Store {
        let place = directory.display();
        Store {
            table: format!("sqlite:{place}/table.db"),
            bodies: format!("file:{place}/bodies"),
            environment: vec![],
        }
    }

    /// Makes the table, where it does not make itself.
    pub(crate) fn make_table(&self) {
        if self.table.starts_with("dynamodb:") {
            runtime().block_on(async {
                self.dynamo_table().create_table_if_missing().await.expect("a table");
            });
        }
    }

    /// All leases that the table has, also those that have run out.
    pub(crate) fn locks(&self) -> Vec<Lock> {
        runtime().block_on(async {
            let table = self.open().await;
            let (mut locks, mut scan) = (Vec::new(), Scan::new());
            loop {
                let page = table.scan(&scan).await.expect("rows");
                let of_lock = |item: &&tabletheory::Item| {
                    item.get("sk").and_then(|sk| sk.as_str()).is_some_and(|sk| sk == "LOCK")
                };
                locks.extend(page.items.iter().filter(of_lock).map(|item| Lock::read(item).expect("a lock")));
                match page.next {
                    Some(next) => scan = Scan::new().after(next),
                    None => return locks,
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

    /// What a test says of DynamoDB is in no environment but that of its gateways.
    fn dynamo_table(&self) -> DynamoTable {
        let said = |sought: &str| {
            let found = self.environment.iter().find(|(name, _)| *name == sought);
            found.map(|(_, value)| value.clone()).expect("it is said")
        };
        let (id, secret) = (said("AWS_ACCESS_KEY_ID"), said("AWS_SECRET_ACCESS_KEY"));
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .credentials_provider(Credentials::new(id, secret, None, None, "tests"));
        let name = self.table.trim_start_matches("dynamodb:");
        let settings = DynamoSettings::default().endpoint(said(DYNAMODB));
        DynamoTable::new(&Client::from_conf(config.build()), name, settings).expect("a table")
    }
}

/// Where the S3 is that all tests share.
pub(crate) fn s3_endpoint() -> String {
    setting("FACETHEORY_TEST_S3_ENDPOINT")
}

/// A connection belongs to the runtime that made it, so every question has its own.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A setting of the servers: from the environment, or from `scripts/local-aws start`.
///
/// # Panics
/// When there is none: a test that cannot run must not look as if it had passed.
fn setting(name: &str) -> String {
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
