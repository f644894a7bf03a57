//! A shutdown that is announced: `/readyz` reports it while new connections are still served.

use super::CONFIG;
use super::support::client::Connection;
use super::support::site::{Site, get};
use super::support::wait_for;

/// No test waits that long.
const LONG_LAME_DUCK: &str = "[timeouts]\nlame_duck = \"1h\"\n";

fn wait_until_stopping(site: &Site) {
    wait_for("the shutdown is reported", || {
        let ready = site.gateway.admin_get("/readyz");
        (ready.status == 503 && ready.text().contains("\"stopping\"")).then_some(())
    });
}

#[test]
fn new_connections_are_served_during_the_lame_duck_period_and_a_second_signal_ends_it() {
    let Site { gateway, origin, directory } = {
        let site = Site::start(&format!("{CONFIG}{LONG_LAME_DUCK}"));
        let mut open = site.gateway.connect();
        site.gateway.signal("TERM");
        wait_until_stopping(&site);
        assert_eq!(site.get("/cached/a").status, 200, "a new connection");
        open.send(get("/cached/a", ""));
        let response = open.response();
        assert_eq!(
            (response.status, response.header("connection")),
            (200, None),
            "the connection stays open"
        );
        site
    };
    let address = gateway.address;
    gateway.signal("TERM");
    gateway.wait_for_exit();
    assert!(Connection::try_open(address).is_none(), "nobody listens any more");
    drop((origin, directory));
}

#[test]
fn a_shutdown_without_a_lame_duck_period_closes_the_listener_and_answers_open_connections() {
    let site = Site::start(CONFIG);
    assert_eq!(site.get("/cached/a").status, 200);
    let gate = crate::support::origin::Gate::default();
    site.origin.respond("/slow", crate::support::origin::ScriptedResponse::page(&[], "slow").after(&gate));
    let mut client = site.gateway.connect();
    client.send(get("/slow", ""));
    wait_for("the request", || (!site.origin.requests_for("/slow").is_empty()).then_some(()));
    site.gateway.signal("TERM");
    wait_until_stopping(&site);
    wait_for("the listener closes", || Connection::try_open(site.gateway.address).is_none().then_some(()));
    gate.open();
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    client.assert_closed();
    let Site { gateway, .. } = site;
    gateway.wait_for_exit();
}
