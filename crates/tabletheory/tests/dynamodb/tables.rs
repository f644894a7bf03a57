//! Creation and verification of tables, and configuration from the environment.

use super::*;

#[tokio::test]
async fn every_operation_on_a_missing_table_names_it() {
    let table = table_at(support::dynamodb_endpoint(), "tabletheory-test-missing");
    let errors = [
        table.get(&key("META"), Consistency::Strong).await.expect_err("missing"),
        table.batch_get(&[key("META")], Consistency::Strong).await.expect_err("missing"),
        table.query(&Query::of("CACHE#1")).await.expect_err("missing"),
        table.scan(&Scan::new()).await.expect_err("missing"),
        failed(&table, Write::delete(key("META"))).await,
        failed(&table, publish()).await,
        table.describe().await.expect_err("missing"),
        table.verify().await.expect_err("missing"),
    ];
    for error in errors {
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.to_string().contains("`tabletheory-test-missing`"), "{error}");
        assert!(error.to_string().contains("does not exist"), "{error}");
        assert!(error.to_string().contains("create_table_if_missing"), "{error}");
    }
}

#[tokio::test]
async fn concurrent_creations_of_a_table_succeed() {
    let name = new_name();
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let table = table_at(support::dynamodb_endpoint(), &name);
            tokio::spawn(async move { table.create_table_if_missing().await })
        })
        .collect();
    let mut created = 0;
    for task in tasks {
        let creation = task.await.expect("no panic").expect("a race is not an error");
        created += usize::from(creation == Creation::Created);
    }
    assert_eq!(created, 1);
    let table = table_at(support::dynamodb_endpoint(), &name);
    assert_eq!(table.verify().await.expect("a response"), []);
    assert_eq!(table.create_table_if_missing().await.expect("a response"), Creation::AlreadyThere);
    let description = table.describe().await.expect("a response");
    assert_eq!((description.status.as_str(), description.rows), ("ACTIVE", 0));
    assert_eq!(description.ttl.as_deref(), Some("ttl"));
    table.delete_table_and_all_rows().await.expect("a response");
    table.delete_table_and_all_rows().await.expect("deleting twice is not an error");
    assert_eq!(table.describe().await.expect_err("deleted").kind(), Kind::Unavailable);
}

#[tokio::test]
async fn a_table_with_other_keys_is_not_changed_and_its_problems_are_reported() {
    let name = new_name();
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let attribute =
        AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::N);
    let endpoint = support::dynamodb_endpoint();
    let config = dynamodb_client().config().to_builder().endpoint_url(&endpoint).build();
    Client::from_conf(config)
        .create_table()
        .table_name(&name)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key.build().expect("a key"))
        .attribute_definitions(attribute.build().expect("an attribute"))
        .send()
        .await
        .expect("a response");
    let table = table_at(&endpoint, &name);
    assert_eq!(table.create_table_if_missing().await.expect("a response"), Creation::AlreadyThere);
    let id = KeyPart { name: "id".into(), type_name: "N".into() };
    assert_eq!(
        table.verify().await.expect("a response"),
        [Problem::WrongPartitionKey(id), Problem::NoSortKey, Problem::TtlOff]
    );
    table.delete_table_and_all_rows().await.expect("a response");
}

/// Set in the child process: changing the environment of this process would affect other tests, so a test runs itself again.
const INNER: &str = "TABLETHEORY_TEST_TABLE";

async fn run_again(test: &str, table: &str, environment: &[(&str, &str)]) {
    let status = tokio::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", test])
        .env_remove("AWS_PROFILE")
        .env("AWS_CONFIG_FILE", "none")
        .env("AWS_SHARED_CREDENTIALS_FILE", "none")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_ENDPOINT_URL_DYNAMODB", support::dynamodb_endpoint())
        .env("AWS_REGION", "us-east-1")
        .env(INNER, table)
        .env_remove("AWS_ACCESS_KEY_ID")
        .env_remove("AWS_SECRET_ACCESS_KEY")
        .env_remove("AWS_SESSION_TOKEN")
        // Sources of credentials on machines of AWS.
        .env_remove("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        .env_remove("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        .env_remove("AWS_WEB_IDENTITY_TOKEN_FILE")
        .envs(environment.iter().copied())
        .status()
        .await
        .expect("a child process");
    assert!(status.success());
}

#[tokio::test]
async fn connecting_reads_the_environment() {
    if let Ok(name) = std::env::var(INNER) {
        let table =
            DynamoTable::connect(name, DynamoSettings::default()).await.expect("a complete environment");
        assert_eq!(number(&table, "META", "version").await, Some(1));
        return;
    }
    let table = new_table().await;
    put(&table, "META", numbered(1)).await;
    let keys = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];
    run_again("tables::connecting_reads_the_environment", table.name(), &keys).await;
}

#[tokio::test]
async fn the_error_of_missing_credentials_says_what_to_set() {
    if let Ok(name) = std::env::var(INNER) {
        let table = DynamoTable::connect(name, DynamoSettings::default()).await.expect("no request is sent");
        let error = failed(&table, Write::update(key("META"), Update::new([HITS.add(1)]))).await;
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("set AWS_ACCESS_KEY_ID"), "{error}");
        return;
    }
    run_again("tables::the_error_of_missing_credentials_says_what_to_set", "pages", &[]).await;
}

#[tokio::test]
async fn the_error_of_missing_certificates_says_what_to_install() {
    if let Ok(name) = std::env::var(INNER) {
        let error = DynamoTable::connect(name, DynamoSettings::default()).await.expect_err("no certificates");
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("ca-certificates"), "{error}");
        return;
    }
    let missing = [("SSL_CERT_FILE", "none"), ("SSL_CERT_DIR", "none")];
    run_again("tables::the_error_of_missing_certificates_says_what_to_install", "pages", &missing).await;
}
