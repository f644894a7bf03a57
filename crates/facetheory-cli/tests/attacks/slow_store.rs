//! Stores that do not respond.

use std::net::TcpListener;

use crate::assertions::PAGES;
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::site::get;
use crate::support::wait_for;

/// Starts a gateway whose store accepts connections but never responds, and checks its response and its log.
fn assert_times_out(table: &str, bodies: &str, logged: &str) {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", silent.local_addr().expect("an address"));
    let environment = [
        ("AWS_ENDPOINT_URL_DYNAMODB", endpoint.clone()),
        ("AWS_ENDPOINT_URL_S3", endpoint),
        ("AWS_ACCESS_KEY_ID", "nobody".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "nothing".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let config = format!("{PAGES}\n[timeouts]\ntable = \"110ms\"\nbodies = \"120ms\"\n");
    let place = ["--table", table, "--bodies", bodies];
    let gateway = Gateway::try_start_in(&environment, directory.path(), origin.address, &config, &place);
    let gateway = gateway.expect("the gateway starts");
    let response = gateway.exchange(get("/page", ""));
    assert_eq!((response.status, &*response.text()), (200, "<p>/page, render 1</p>"));
    wait_for("the error is logged", || gateway.log().contains(logged).then_some(()));
}

#[test]
fn an_unresponsive_table_times_out_as_configured() {
    assert_times_out("dynamodb:pages", "memory:", "the table did not respond within 110ms");
}

#[test]
fn an_unresponsive_body_store_times_out_as_configured() {
    assert_times_out("memory:", "s3://bucket/isr", "the object storage did not respond within 120ms");
}
