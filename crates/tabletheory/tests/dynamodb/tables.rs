//! Tables themselves: missing, made, misshapen; and how they are reached.

use super::*;

#[tokio::test]
async fn a_table_that_is_missing_is_named_by_every_operation() {
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
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains("`tabletheory-test-missing`"), "{error}");
        assert!(error.to_string().contains("does not exist"), "{error}");
        assert!(error.to_string().contains("create_table_if_missing"), "{error}");
    }
}

#[tokio::test]
async fn many_may_make_a_table_at_once() {
    let name = new_name();
    let makers: Vec<_> = (0..6)
        .map(|_| {
            let table = table_at(support::dynamodb_endpoint(), &name);
            tokio::spawn(async move { table.create_table_if_missing().await })
        })
        .collect();
    let mut made = 0;
    for maker in makers {
        let creation = maker.await.expect("no panic").expect("racing is no error");
        made += usize::from(creation == Creation::Created);
    }
    assert_eq!(made, 1);
    let table = table_at(support::dynamodb_endpoint(), &name);
    assert_eq!(table.verify().await.expect("up"), []);
    assert_eq!(table.create_table_if_missing().await.expect("up"), Creation::AlreadyThere);
    let description = table.describe().await.expect("up");
    assert_eq!((description.status.as_str(), description.rows), ("ACTIVE", 0));
    assert_eq!(description.ttl.as_deref(), Some("ttl"));
    table.delete_table_and_all_rows().await.expect("up");
    table.delete_table_and_all_rows().await.expect("that there is none is no error");
    assert_eq!(table.describe().await.expect_err("it is gone").kind(), Kind::Invalid);
}

#[tokio::test]
async fn a_table_of_another_shape_is_left_alone_and_its_problems_are_named() {
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
        .expect("up");
    let table = table_at(&endpoint, &name);
    assert_eq!(table.create_table_if_missing().await.expect("up"), Creation::AlreadyThere);
    let id = KeyPart { role: Role::Partition, name: "id".into(), type_name: "N".into() };
    assert_eq!(
        table.verify().await.expect("up"),
        [Problem::WrongPartitionKey(id), Problem::NoSortKey, Problem::TtlOff]
    );
    table.delete_table_and_all_rows().await.expect("up");
}

/// The environment of a process cannot be changed while tests run in it, so a test runs itself in another.
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
        // Where a machine is AWS's own, they lead to credentials as well.
        .env_remove("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        .env_remove("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        .env_remove("AWS_WEB_IDENTITY_TOKEN_FILE")
        .envs(environment.iter().copied())
        .status()
        .await
        .expect("it runs");
    assert!(status.success());
}

#[tokio::test]
async fn connecting_reads_the_environment() {
    if let Ok(name) = std::env::var(INNER) {
        let table = DynamoTable::connect(name, DynamoSettings::default()).await.expect("it is all there");
        assert_eq!(number(&table, "META", "version").await, Some(1));
        return;
    }
    let table = new_table().await;
    put(&table, "META", numbered(1)).await;
    let keys = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];
    run_again("tables::connecting_reads_the_environment", table.name(), &keys).await;
}

#[tokio::test]
async fn without_credentials_one_is_told_what_to_set() {
    if let Ok(name) = std::env::var(INNER) {
        let table = DynamoTable::connect(name, DynamoSettings::default()).await.expect("nothing is sent");
        let error = failed(&table, Write::update(key("META"), Update::new([HITS.add(1)]))).await;
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("set AWS_ACCESS_KEY_ID"), "{error}");
        return;
    }
    run_again("tables::without_credentials_one_is_told_what_to_set", "pages", &[]).await;
}

#[tokio::test]
async fn without_certificates_one_is_told_what_to_install() {
    if let Ok(name) = std::env::var(INNER) {
        let error = DynamoTable::connect(name, DynamoSettings::default()).await.expect_err("none there");
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("ca-certificates"), "{error}");
        return;
    }
    let nowhere = [("SSL_CERT_FILE", "none"), ("SSL_CERT_DIR", "none")];
    run_again("tables::without_certificates_one_is_told_what_to_install", "pages", &nowhere).await;
}
