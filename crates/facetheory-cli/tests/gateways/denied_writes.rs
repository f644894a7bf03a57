//! A table that denies writes, under load: how often the gateway tries, and what it logs.

use crate::meter::Meter;
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::print;
use crate::support::site::{LONG_TIMEOUTS, get};
use crate::support::store::{Store, s3_endpoint, server_variable};

/// Each request is for another page, so none is served from memory.
const REQUESTS: usize = 300;
/// The gateway tries a store that has failed again after a tenth of a second, and then once a second. A busy machine needs seconds
/// for all requests.
const FEW: usize = REQUESTS / 4;

#[test]
fn while_the_table_denies_writes_the_gateway_tries_now_and_then_and_logs_few_lines() {
    let (store, origin) = (Store::on_servers(), Origin::start());
    let table = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    let directory = tempfile::tempdir().expect("a directory");
    let proxied = store.through(&table.endpoint(), &s3_endpoint());
    let config = format!("[routes]\n\"/**\" = {{ isr = \"1h\" }}\n{LONG_TIMEOUTS}");
    let gateway = Gateway::start_on(&proxied, directory.path(), origin.address, &config);
    table.deny(&["PutItem", "UpdateItem", "TransactWriteItems", "BatchWriteItem"]);
    let lines_before = gateway.log().lines().count();
    table.take();
    for number in 0..REQUESTS {
        let response = gateway.exchange(get(&format!("/page/{number}"), ""));
        assert_eq!((response.status, response.state()), (200, "bypass"), "{}", response.text());
    }
    let is_write = |operation: &str| {
        operation.contains("Put") || operation.contains("Write") || operation.contains("Update")
    };
    let writes = table.take().iter().filter(|call| is_write(&call.operation)).count();
    let lines = gateway.log().lines().count() - lines_before;
    print(&format!(
        "{REQUESTS} requests while the table denies writes: {writes} writes were tried, {lines} lines in the log"
    ));
    assert!((1..=FEW).contains(&writes), "{writes} writes");
    assert!((1..=FEW).contains(&lines), "{lines} lines");
}
