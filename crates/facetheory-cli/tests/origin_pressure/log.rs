//! The log while every request fails.

use crate::support::origin::ScriptedResponse;
use crate::support::print;
use crate::support::site::Site;

const REQUESTS: usize = 300;

#[test]
fn an_origin_that_fails_for_every_request_does_not_fill_the_log() {
    let site = Site::start_with("default = \"pass\"\n", &["--no-access-log"]);
    site.origin.respond("/broken", ScriptedResponse::raw("no HTTP\r\n\r\n").then_close());
    let before = site.gateway.log().lines().count();
    for _ in 0..REQUESTS {
        assert_eq!(site.get("/broken").status, 502);
    }
    let lines = site.gateway.log().lines().count() - before;
    print(&format!("{REQUESTS} failed requests: {lines} lines in the log"));
    assert!((1..REQUESTS / 2).contains(&lines), "{lines} lines");
}
