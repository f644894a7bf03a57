//! The stores of a gateway: a directory, or servers.

use std::path::Path;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use tabletheory::{DynamoSettings, DynamoTable, Random as _, SystemRandom};

use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::site::{Site, with_long_timeouts};
use crate::support::store::server_variable;

/// Directives of clients count, as in a cache that follows RFC 9111 to the letter.
pub(crate) const OBEY: &str = "client_cache_control = \"obey\"\n";

/// The region; local servers accept any name.
const REGION: &str = "us-east-1";

/// A gateway on SQLite and files, with this configuration.
pub(crate) fn embedded(config: &str) -> Site {
    Site::start(&format!("{OBEY}{config}"))
}

/// A gateway on DynamoDB and S3, with this configuration and a new table.
pub(crate) fn on_servers(config: &str) -> Site {
    Servers::new().site(config)
}

/// A table and a bucket on servers, which several gateways may share.
pub(crate) struct Servers {
    table: String,
    bodies: String,
    environment: Vec<(&'static str, String)>,
}

impl Servers {
    /// Creates the table.
    pub(crate) fn new() -> Servers {
        let name = format!("facetheory-shared-{:x}", SystemRandom.next_u64());
        let environment = vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT")),
            ("AWS_ENDPOINT_URL_S3", server_variable("FACETHEORY_TEST_S3_ENDPOINT")),
            ("AWS_ACCESS_KEY_ID", server_variable("AWS_ACCESS_KEY_ID")),
            ("AWS_SECRET_ACCESS_KEY", server_variable("AWS_SECRET_ACCESS_KEY")),
            ("AWS_REGION", REGION.to_owned()),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(create_table(&name));
        let bodies = format!("s3://{}/{name}", server_variable("FACETHEORY_TEST_S3_BUCKET"));
        Servers { table: format!("dynamodb:{name}"), bodies, environment }
    }

    /// A gateway with this configuration in front of a new origin.
    pub(crate) fn site(&self, config: &str) -> Site {
        let directory = tempfile::tempdir().expect("a directory");
        let origin = Origin::start();
        let gateway = self.gateway(directory.path(), &origin, config);
        Site { gateway, origin, directory }
    }

    /// A gateway with this configuration and [long timeouts](with_long_timeouts), in front of an origin that others may
    /// share.
    pub(crate) fn gateway(&self, directory: &Path, origin: &Origin, config: &str) -> Gateway {
        let place = ["--table", &self.table, "--bodies", &self.bodies];
        let config = with_long_timeouts(&format!("{OBEY}{config}"));
        let started = Gateway::try_start_in(&self.environment, directory, origin.address, &config, &place);
        started.unwrap_or_else(|refused| panic!("the gateway does not start: {}", refused.errors))
    }
}

async fn create_table(name: &str) {
    // DynamoDB Local separates tables by access key.
    let (key, secret) = (server_variable("AWS_ACCESS_KEY_ID"), server_variable("AWS_SECRET_ACCESS_KEY"));
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .credentials_provider(Credentials::new(key, secret, None, None, "tests"));
    let settings = DynamoSettings::default().endpoint(server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    let table = DynamoTable::new(&Client::from_conf(config.build()), name, settings).expect("a table");
    table.create_table_if_missing().await.expect("the table is created");
}
