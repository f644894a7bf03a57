//! Observed requests, and the set-up and permissions of a table, with responses that DynamoDB Local never sends.

use super::*;
use parking_lot::Mutex;
use std::sync::Arc;
use tabletheory::dynamodb::{
    Feature, Observation, Observer, RequestOutcome, SetupStep, TableSetup, error_code,
};

#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Observation>>);

impl Observer for Seen {
    fn observe(&self, request: &Observation) {
        self.0.lock().push(*request);
    }
}

impl Seen {
    /// Operation, attempt and outcome of each request since the last call.
    fn take(&self) -> Vec<(&'static str, u32, RequestOutcome)> {
        self.0.lock().drain(..).map(|seen| (seen.operation, seen.attempt, seen.outcome)).collect()
    }
}

/// A table behind a proxy, and what its observer sees.
async fn observed() -> (TestTable, Proxy, DynamoTable, Arc<Seen>) {
    let real = new_table().await;
    let proxy = Proxy::start(&support::dynamodb_endpoint()).await;
    let seen = Arc::new(Seen::default());
    let table = table_at(proxy.endpoint(), real.name()).with_observer(seen.clone());
    (real, proxy, table, seen)
}

#[tokio::test]
async fn each_request_is_observed_with_its_outcome_and_its_capacity() {
    use RequestOutcome::{Failed, Ok, Throttled};
    let (_real, proxy, table, seen) = observed().await;
    let throttled = || Action::error(400, "ThrottlingException");
    proxy.script([throttled(), Action::error(500, "InternalServerError")]);
    table.get(&key("META"), Consistency::Strong).await.expect("a response");
    assert_eq!(seen.take(), [("GetItem", 1, Throttled), ("GetItem", 2, Failed), ("GetItem", 3, Ok)]);

    proxy.script([
        Action::cancelled(&["ThrottlingError", "None"]),
        Action::cancelled(&["TransactionConflict", "None"]),
    ]);
    let refused = Write::delete(key("LOCK")).when(PK.exists());
    let txn = Txn::new([Write::put(key("META"), numbered(1)), refused]);
    assert!(!table.commit(&txn).await.expect("a response").is_done());
    let operation = "TransactWriteItems";
    assert_eq!(seen.take(), [(operation, 1, Throttled), (operation, 2, Failed), (operation, 3, Ok)]);

    put(&table, "META", numbered(1)).await;
    let units = seen.0.lock().iter().map(|seen| seen.capacity_units).collect::<Vec<_>>();
    assert!(matches!(units.as_slice(), [Some(units)] if *units > 0.0), "{units:?}");
    assert_eq!(proxy.seen().last().expect("a request").body["ReturnConsumedCapacity"], "TOTAL");
}

#[tokio::test]
async fn a_request_that_its_caller_gives_up_is_observed_as_cancelled() {
    let (_real, proxy, table, seen) = observed().await;
    proxy.script([Action::ForwardThenStall]);
    let meta = key("META");
    let get = table.get(&meta, Consistency::Strong);
    let is_sent = async {
        while proxy.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = get => panic!("there is no response"),
        () = is_sent => {}
    }
    assert_eq!(seen.take(), [("GetItem", 1, RequestOutcome::Cancelled)]);
}

#[tokio::test]
async fn capacity_is_not_requested_without_an_observer() {
    let (_real, proxy, table, _seen) = observed().await;
    let plain = table_at(proxy.endpoint(), table.name());
    put(&plain, "META", numbered(1)).await;
    assert!(proxy.seen().iter().all(|request| request.body.get("ReturnConsumedCapacity").is_none()));
}

#[tokio::test]
async fn the_permissions_are_probed_without_writing() {
    let table = new_table().await;
    let permissions = table.probe_permissions().await;
    assert_eq!(permissions.len(), 8);
    assert!(permissions.iter().all(|permission| permission.result.is_ok()), "{permissions:?}");
    assert_eq!(table.scan(&Scan::new()).await.expect("a response"), Page::default());

    let proxy = Proxy::start(&support::dynamodb_endpoint()).await;
    let denied = table_at(proxy.endpoint(), table.name());
    proxy.script((0..8).map(|_| Action::error(400, "AccessDeniedException")));
    for permission in denied.probe_permissions().await {
        let error = permission.result.expect_err(permission.action);
        assert_eq!(error_code(&error), Some("AccessDeniedException"), "{error}");
    }
}

#[tokio::test]
async fn point_in_time_recovery_is_enabled_once_the_backups_of_a_new_table_are_available() {
    fn described(_: &Json, _: Json) -> Json {
        json!({ "ContinuousBackupsDescription": {
            "ContinuousBackupsStatus": "ENABLED",
            "PointInTimeRecoveryDescription": { "PointInTimeRecoveryStatus": "DISABLED" },
        } })
    }
    fn enabled(request: &Json, _: Json) -> Json {
        assert_eq!(request["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true);
        json!({ "ContinuousBackupsDescription": { "ContinuousBackupsStatus": "ENABLED" } })
    }
    let real = new_table().await;
    let proxy = Proxy::start(&support::dynamodb_endpoint()).await;
    let table = table_at(proxy.endpoint(), real.name());
    // DescribeTable and DescribeTimeToLive, twice.
    let describe = [const { Action::Pass }; 4];
    let backups = [
        Action::Rewrite(described),
        Action::error(400, "ContinuousBackupsUnavailableException"),
        Action::Rewrite(enabled),
    ];
    proxy.script(describe.into_iter().chain(backups));
    let mut setup = TableSetup::default();
    setup.deletion_protection = false;
    let mut steps = Vec::new();
    table.set_up(&setup, &mut |step| steps.push(step.clone())).await.expect("a table");
    assert_eq!(
        steps,
        [
            SetupStep::AlreadyThere,
            SetupStep::AlreadyEnabled(Feature::Ttl),
            SetupStep::Enabled(Feature::PointInTimeRecovery),
        ]
    );
}
