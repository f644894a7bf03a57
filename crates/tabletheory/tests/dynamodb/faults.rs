//! Failures between client and server, and their errors.

use super::*;

fn tokens(proxy: &Proxy) -> Vec<String> {
    let token = |request: &proxy::Request| request.body["ClientRequestToken"].as_str().map(str::to_owned);
    proxy.seen().iter().filter_map(token).collect()
}

#[tokio::test]
async fn a_conflict_is_retried_with_the_same_token() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    let conflict = Action::cancelled(&["None", "TransactionConflict"]);
    proxy.script([conflict.clone(), conflict]);
    assert!(table.commit(&publish()).await.expect("the third attempt").is_done());
    assert_eq!(number(&direct, "META", "hits").await, Some(1));
    let tokens = tokens(&proxy);
    assert_eq!(tokens.len(), 3);
    assert!(tokens.iter().all(|token| *token == tokens[0]));
    // Another commit has another token.
    proxy.script([]);
    assert!(table.commit(&publish()).await.expect("a response").is_refused());
    assert_ne!(self::tokens(&proxy)[0], tokens[0]);
}

#[tokio::test]
async fn a_refusal_beside_a_conflict_is_not_retried() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    proxy.script([Action::cancelled(&["TransactionConflict", "ConditionalCheckFailed"])]);
    let refused = Commit::Refused { index: 1, seen: None };
    assert_eq!(table.commit(&publish()).await.expect("a result"), refused);
    assert_eq!(proxy.seen().len(), 1);
}

#[tokio::test]
async fn a_throttled_write_is_retried_up_to_the_limit_and_not_applied() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    let put = || Txn::from(Write::put(key("META"), numbered(1)).when(PK.absent()));
    for throttled in [
        Action::error(400, "ThrottlingException"),
        Action::error(400, "ProvisionedThroughputExceededException"),
        Action::error(400, "RequestLimitExceeded"),
        Action::error(400, "TransactionConflictException"),
    ] {
        for txn in [put(), publish()] {
            proxy.script(vec![throttled.clone(); 20]);
            let error = failed(&table, txn).await;
            assert_eq!(error.kind(), Kind::Unavailable);
            assert!(error.to_string().contains("is busy"), "{error}");
            assert_eq!(proxy.seen().len(), ATTEMPTS as usize);
        }
    }
    assert!(direct.scan(&Scan::new()).await.expect("a response").items.is_empty());
    // A conditional write that was certainly not applied is retried.
    proxy.script([Action::error(400, "ThrottlingException")]);
    assert!(table.commit(&put()).await.expect("the second attempt").is_done());
}

#[tokio::test]
async fn a_transaction_whose_response_is_lost_is_applied_once() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    proxy.script([Action::ForwardThenDrop, Action::error(500, "InternalServerError")]);
    assert!(table.commit(&publish()).await.expect("a retry with the token").is_done());
    assert_eq!(number(&direct, "META", "hits").await, Some(1));
    assert_eq!(proxy.operations(), ["TransactWriteItems"; 3]);
}

#[tokio::test]
async fn a_refused_retry_of_a_lost_transaction_has_an_unknown_outcome() {
    let direct = new_table().await;
    put(&direct, "VER#1", numbered(5)).await;
    let (table, proxy) = through_proxy(&direct).await;
    proxy.script([Action::DropBefore]);
    // The lost request may still arrive, after the condition has become true.
    let error = table.commit(&publish()).await.expect_err("an unknown outcome");
    assert_eq!(error.kind(), Kind::Unknown);
    assert!(error.to_string().contains("may still be applied"), "{error}");
    assert_eq!(proxy.seen().len(), 2);
}

#[tokio::test]
async fn a_conditional_write_whose_response_is_lost_is_unknown_and_not_refused() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    proxy.script([Action::ForwardThenDrop]);
    let error = failed(&table, Write::put(key("LOCK"), numbered(1)).when(PK.absent())).await;
    assert_eq!(error.kind(), Kind::Unknown);
    assert!(error.to_string().contains("read the rows back"), "{error}");
    assert_eq!(proxy.operations(), ["PutItem"]);
    assert_eq!(number(&direct, "LOCK", "version").await, Some(1));

    for (lost, written) in [(Action::DropBefore, None), (Action::ForwardThenDrop, Some(1))] {
        proxy.script([lost]);
        let error = failed(&table, Write::update(key("META"), Update::new([HITS.add(1)]))).await;
        assert_eq!(error.kind(), Kind::Unknown);
        assert_eq!(number(&direct, "META", "hits").await, written);
    }
}

#[tokio::test]
async fn a_single_write_without_a_response_is_not_retried() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    for write in [
        Write::put(key("META"), numbered(1)),
        Write::update(key("META"), Update::new([VERSION.set(2), HITS.remove()])),
        Write::delete(key("META")),
    ] {
        // A retry could overwrite later writes of others.
        proxy.script([Action::ForwardThenDrop]);
        assert_eq!(failed(&table, write).await.kind(), Kind::Unknown);
        assert_eq!(proxy.seen().len(), 1);
    }
}

#[tokio::test]
async fn the_outcome_is_unknown_if_every_response_is_lost() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    proxy.script(vec![Action::ForwardThenDrop; 20]);
    assert_eq!(failed(&table, publish()).await.kind(), Kind::Unknown);
    assert_eq!(proxy.seen().len(), ATTEMPTS as usize);
    assert_eq!(number(&direct, "META", "hits").await, Some(1));
    // A read is not ambiguous.
    proxy.script(vec![Action::ForwardThenDrop; 20]);
    let error = table.get(&key("META"), Consistency::Strong).await.expect_err("no response");
    assert_eq!(error.kind(), Kind::Unavailable);
    // Neither is a single check, although it is sent as a transaction.
    proxy.script(vec![Action::ForwardThenDrop; 20]);
    assert_eq!(failed(&table, Write::check(key("META"), PK.exists())).await.kind(), Kind::Unavailable);
    assert_eq!(proxy.operations(), ["TransactWriteItems"; ATTEMPTS as usize]);
}

#[tokio::test]
async fn the_outcome_stays_unknown_if_retries_after_a_lost_response_fail() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    for later in ["ThrottlingException", "AccessDeniedException", "TransactionInProgressException"] {
        let mut script = vec![Action::ForwardThenDrop];
        script.extend(vec![Action::error(400, later); 20]);
        proxy.script(script);
        assert_eq!(failed(&table, publish()).await.kind(), Kind::Unknown, "{later}");
    }
    // Another transaction in progress with the same token may still succeed.
    proxy.script(vec![Action::error(400, "TransactionInProgressException"); 20]);
    assert_eq!(failed(&table, publish()).await.kind(), Kind::Unknown);
    assert_eq!(proxy.seen().len(), ATTEMPTS as usize);
}

#[tokio::test]
async fn a_stalled_response_times_out() {
    /// Enough attempts for a server that pauses for seconds.
    const MANY: u32 = 30;
    let direct = new_table().await;
    let proxy = Proxy::start(&support::dynamodb_endpoint()).await;
    let open = |settings: DynamoSettings| {
        DynamoTable::new(&dynamodb_client(), direct.name(), settings).expect("valid name and settings")
    };
    let settings = || settings(proxy.endpoint()).attempts(MANY);
    let table = open(settings().attempt_timeout(Duration::from_millis(500)));
    put(&direct, "META", numbered(1)).await;
    proxy.script([Action::ForwardThenStall]);
    assert!(table.get(&key("META"), Consistency::Strong).await.expect("a later attempt").is_some());
    assert!(proxy.seen().len() > 1);

    proxy.script([Action::ForwardThenStall]);
    assert!(table.commit(&publish()).await.expect("a retry with the token").is_done());
    assert_eq!(number(&direct, "META", "hits").await, Some(1));

    proxy.script([Action::ForwardThenStall]);
    let error = failed(&table, Write::put(key("LOCK"), numbered(1)).when(PK.absent())).await;
    assert_eq!(error.kind(), Kind::Unknown);
    assert!(error.to_string().contains("did not respond in time"), "{error}");

    let short = open(settings().operation_timeout(Duration::from_millis(300)));
    proxy.script([Action::ForwardThenStall]);
    assert_eq!(failed(&short, publish()).await.kind(), Kind::Unknown);
    proxy.script([Action::ForwardThenStall]);
    let error = short.get(&key("META"), Consistency::Strong).await.expect_err("no response");
    assert_eq!(error.kind(), Kind::Unavailable);
}

#[tokio::test]
async fn the_error_of_a_failed_connection_says_what_to_do() {
    // A bound port on which nothing listens.
    let port = tokio::net::TcpSocket::new_v4().expect("a socket");
    port.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = port.local_addr().expect("a bound port");
    let table = table_at(format!("http://{address}"), "pages");
    // Nothing was sent, so the error is `Unavailable` even for a write that is not idempotent.
    let error = failed(&table, Write::update(key("META"), Update::new([HITS.add(1)]))).await;
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(
        error.to_string(),
        format!(
            "cannot connect to table `pages` at http://{address}; \
             check that it is up and that the endpoint and the region are right"
        )
    );
    assert!(error.source().is_some());
    let error = table.get(&key("META"), Consistency::Strong).await.expect_err("no connection");
    assert_eq!(error.kind(), Kind::Unavailable);
}

#[tokio::test]
async fn a_request_that_cannot_be_signed_was_never_sent() {
    let proxy = Proxy::start(&support::dynamodb_endpoint()).await;
    let config =
        Config::builder().behavior_version(BehaviorVersion::latest()).region(Region::new("us-east-1"));
    let no_credentials = Client::from_conf(config.build());
    let table = DynamoTable::new(&no_credentials, "pages", settings(proxy.endpoint()))
        .expect("valid name and settings");
    let error = failed(&table, Write::update(key("META"), Update::new([HITS.add(1)]))).await;
    assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
    assert!(proxy.seen().is_empty());
}

#[tokio::test]
async fn the_errors_of_rejected_credentials_say_what_to_do() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    for (code, advice) in [
        ("AccessDeniedException", "grant this identity"),
        ("UnrecognizedClientException", "check the access key"),
        ("InvalidSignatureException", "this machine's clock"),
        ("ExpiredTokenException", "the session token"),
    ] {
        proxy.script([Action::error(400, code)]);
        let error = failed(&table, publish()).await;
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.to_string().contains(advice), "{error}");
        assert_eq!(proxy.seen().len(), 1, "not retried");
    }
}

#[tokio::test]
async fn a_lease_is_acquired_by_one_put_and_a_lost_response_is_read_back() {
    let direct = new_table().await;
    let (table, proxy) = through_proxy(&direct).await;
    let leases = LeaseManager::new(std::sync::Arc::new(table));
    let granted = async |what: &str| match leases.acquire(&key("LOCK")).await.expect(what) {
        Acquire::Granted(lease) => lease,
        Acquire::Held { .. } => panic!("{what}: the lease is free"),
    };
    let tokens = || {
        let token =
            |request: &proxy::Request| request.body["Item"]["lease_token"]["S"].as_str().map(str::to_owned);
        proxy.seen().iter().filter_map(token).collect::<Vec<_>>()
    };

    proxy.script([]);
    let lease = granted("no fault").await;
    assert_eq!(proxy.operations(), ["PutItem"], "half the write units of a transaction");
    assert_eq!(proxy.seen()[0].body["ReturnValuesOnConditionCheckFailure"], "ALL_OLD");
    assert!(matches!(leases.acquire(&key("LOCK")).await, Ok(Acquire::Held { .. })));
    assert_eq!(proxy.operations(), ["PutItem", "PutItem"], "the refusal contains the expiry");
    leases.release(&lease).await.expect("a release");

    // The put is applied, and its response is lost. It is not sent again.
    proxy.script([Action::ForwardThenDrop]);
    let lease = granted("an applied put").await;
    assert_eq!(proxy.operations(), ["PutItem", "GetItem"]);
    assert_eq!(tokens(), [lease.token()]);
    leases.release(&lease).await.expect("a release");

    // The put does not arrive. The next one has another token.
    proxy.script([Action::DropBefore]);
    let lease = granted("a lost put").await;
    assert_eq!(proxy.operations(), ["PutItem", "GetItem", "PutItem"]);
    let sent = tokens();
    assert_ne!(sent[0], sent[1]);
    assert_eq!(sent[1], lease.token());

    // A throttled put was certainly not applied, so it is sent again with its token.
    leases.release(&lease).await.expect("a release");
    proxy.script([Action::error(400, "ThrottlingException")]);
    granted("a throttled put").await;
    assert_eq!(proxy.operations(), ["PutItem", "PutItem"]);
    let sent = tokens();
    assert_eq!(sent[0], sent[1]);
}
