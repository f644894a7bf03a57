//! Routes in `facetheory.toml` that follow the origin.

use crate::helpers::{first_then, numbered, origin_requests};
use crate::stores::embedded;
use crate::support::client::Connection;
use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;
use crate::support::wait_for;

/// The texts of two consecutive responses for a path.
fn texts<const COUNT: usize>(site: &Site, path: &str) -> [String; COUNT] {
    [(); COUNT].map(|()| site.get(path).text())
}

#[test]
fn a_path_without_a_rule_follows_the_origin() {
    let site = embedded("[routes]\n\"/blog/**\" = { isr = \"60s\" }\n");
    numbered(&site, "/kept", &["Cache-Control: max-age=3600"]);
    numbered(&site, "/not", &[]);
    assert_eq!(texts(&site, "/kept"), ["response 1", "response 1"]);
    assert_eq!(texts(&site, "/not"), ["response 1", "response 2"]);
}

#[test]
fn a_rule_may_follow_the_origin() {
    let site = embedded(
        "[routes]\n\"/**\" = { isr = \"60s\" }\n\"/own/**\" = { cache = \"origin\" }\n\"/own/not/**\" = { isr = \"60s\" }\n",
    );
    for path in ["/page", "/own/page", "/own/not/page"] {
        numbered(&site, path, &[]);
    }
    assert_eq!(texts(&site, "/page"), ["response 1", "response 1"], "the interval of the rule counts");
    assert_eq!(texts(&site, "/own/page"), ["response 1", "response 2"], "the origin gives no lifetime");
    assert_eq!(texts(&site, "/own/not/page"), ["response 1", "response 1"]);
    numbered(&site, "/own/told", &["Cache-Control: max-age=3600"]);
    assert_eq!(texts(&site, "/own/told"), ["response 1", "response 1"]);
    assert_eq!(site.get("/own/told").header("cache-control"), Some("max-age=3600"));
}

#[test]
fn isr_false_forwards_a_path_whatever_the_origin_says() {
    let site = embedded("[routes]\n\"/pass/**\" = false\n");
    numbered(&site, "/pass/page", &["Cache-Control: max-age=3600"]);
    assert_eq!(texts(&site, "/pass/page"), ["response 1", "response 2"]);
}

#[test]
fn paths_without_a_rule_are_forwarded_if_configured() {
    let site = embedded("default = \"pass\"\n[routes]\n\"/own/**\" = { cache = \"origin\" }\n");
    for (path, second) in [("/page", "response 2"), ("/own/page", "response 1")] {
        numbered(&site, path, &["Cache-Control: max-age=3600"]);
        assert_eq!(texts(&site, path), ["response 1", second], "{path}");
    }
}

#[test]
fn cache_control_that_forbids_caching_wins_over_a_rule_unless_ignored() {
    let site = embedded(
        "[routes]\n\"/rule/**\" = { isr = \"60s\" }\n\"/over/**\" = { isr = \"60s\", ignore_origin_cache_control = true }\n",
    );
    for (index, control) in ["no-store", "private", "private, max-age=0", "no-cache"].iter().enumerate() {
        let control = format!("Cache-Control: {control}");
        let (rule, over) = (format!("/rule/{index}"), format!("/over/{index}"));
        numbered(&site, &rule, &[&control]);
        numbered(&site, &over, &[&control]);
        assert_eq!(texts(&site, &rule), ["response 1", "response 2"], "{control}");
        assert_eq!(texts(&site, &over), ["response 1", "response 1"], "{control}");
    }
    // A response with a cookie is private, whatever the rule says.
    numbered(&site, "/over/cookie", &["Set-Cookie: session=1"]);
    assert_eq!(texts(&site, "/over/cookie"), ["response 1", "response 2"]);
}

#[test]
fn a_page_that_the_origin_repeatedly_refuses_is_dropped() {
    let site = embedded("[routes]\n\"/**\" = { isr = \"1s\" }\n");
    let denied = ScriptedResponse::with("403 Forbidden", &[], "no longer public");
    first_then(&site, "/page", ScriptedResponse::page(&[], "public"), denied);
    assert_eq!(site.get("/page").text(), "public");
    wait_for("the cached page is dropped", || (site.get("/page").status == 403).then_some(()));
    assert_eq!(site.get("/page").text(), "no longer public");
}

#[test]
fn a_private_response_is_fetched_with_the_complete_request() {
    let site = embedded("[routes]\n\"/**\" = { isr = \"60s\" }\n");
    site.origin.script("/api", |request| match request.header("x-api-key") {
        Some("right") => ScriptedResponse::page(&["Cache-Control: private"], "yours"),
        _ => ScriptedResponse::with("401 Unauthorized", &[], "who are you?"),
    });
    for _ in 0..2 {
        assert_eq!(site.get_with("/api", "X-Api-Key: right\r\n").text(), "yours");
        assert_eq!(site.get("/api").status, 401);
    }
}

#[test]
fn the_interval_of_a_rule_wins_over_max_age() {
    let site = embedded("[routes]\n\"/rule/**\" = { isr = \"1h\" }\n");
    for (index, control) in
        ["s-maxage=1", "s-maxage=86400", "max-age=1", "public, s-maxage=5, max-age=9"].into_iter().enumerate()
    {
        let path = format!("/rule/{index}");
        numbered(&site, &path, &[&format!("Cache-Control: {control}")]);
        let reported = site.get(&path).header("cache-control").map(str::to_owned);
        assert_eq!(reported.as_deref(), Some("public, max-age=0, s-maxage=3600"), "{control}");
    }
    numbered(&site, "/rule/never", &["Cache-Control: s-maxage=0"]);
    assert_eq!(texts(&site, "/rule/never"), ["response 1", "response 2"], "it forbids caching");
}

#[test]
fn tags_of_the_origin_are_forwarded_unless_stripped() {
    let lines = ["Cache-Control: max-age=3600", "Surrogate-Key: news front", "Cache-Tag: sport, today"];
    for (config, expected) in [("", true), ("strip_tags = true\n", false)] {
        let site = embedded(config);
        numbered(&site, "/tagged", &lines);
        numbered(&site, "/not", &["Cache-Control: no-store", "Surrogate-Key: news"]);
        for _ in 0..2 {
            let response = site.get("/tagged");
            assert_eq!(response.text(), "response 1");
            let sent = ["surrogate-key", "cache-tag"].map(|name| response.header(name).is_some());
            assert_eq!(sent, [expected; 2], "{config}");
        }
        assert_eq!(site.get("/not").header("surrogate-key").is_some(), expected, "{config}");
    }
}

#[test]
fn tagged_responses_are_invalidated_by_their_tags() {
    let site = embedded("");
    for (path, lines) in [
        ("/surrogate", ["Cache-Control: max-age=3600", "Surrogate-Key: news front"]),
        ("/tag", ["Cache-Control: max-age=3600", "Cache-Tag: news, today"]),
        ("/other", ["Cache-Control: max-age=3600", "Cache-Tag: sport"]),
    ] {
        numbered(&site, path, &lines);
        assert_eq!(texts(&site, path), ["response 1", "response 1"]);
    }
    invalidate(&site, "{\"tag\":\"news\"}");
    for path in ["/surrogate", "/tag"] {
        wait_for("it is fetched again", || (site.get(path).text() == "response 2").then_some(()));
    }
    assert_eq!(site.get("/other").text(), "response 1");
}

#[test]
fn the_number_of_variants_of_a_page_is_limited() {
    const MAX_VARIANTS: usize = 5;
    const VARIANTS: usize = 20;
    let site = embedded(&format!("[limits]\nvariants_per_page = {MAX_VARIANTS}\n"));
    site.origin.respond(
        "/many",
        ScriptedResponse::page(&["Cache-Control: max-age=3600", "Vary: X-Language"], "the page"),
    );
    let request = |number: usize| site.get_with("/many", &format!("X-Language: l{number}\r\n"));
    for number in 0..VARIANTS {
        assert_eq!(request(number).text(), "the page");
    }
    let before = origin_requests(&site, "/many");
    for number in 0..VARIANTS {
        assert_eq!(request(number).text(), "the page");
    }
    let hits = VARIANTS - (origin_requests(&site, "/many") - before);
    assert!((1..=MAX_VARIANTS).contains(&hits), "{hits} variants are cached");
}

/// Sends an invalidation to the admin API.
fn invalidate(site: &Site, body: &str) {
    let admin = site.gateway.admin();
    let mut connection = Connection::open(admin);
    connection.send(format!(
        "POST /api/v1/invalidate HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let response = connection.response();
    assert_eq!(response.status, 200, "{}", response.text());
}
