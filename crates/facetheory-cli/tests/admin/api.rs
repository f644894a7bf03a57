//! What an operator sees and does of pages.

use serde_json::json;

use crate::process::{Ask, Gateway, Origin};

#[test]
fn a_page_that_was_visited_is_listed_shown_and_saved() {
    let gateway = Gateway::start(&Origin::start());
    let visited = gateway.visit("/posts/a?x=1");
    let listed = gateway.get("/api/v1/entries?path=/posts").json();
    let entry = &listed["entries"][0];
    assert_eq!(
        (entry["path"].as_str(), listed["entries"].as_array().map(Vec::len)),
        (Some("/posts/a"), Some(1))
    );
    assert!(
        gateway.get("/api/v1/entries?path=/elsewhere").json()["entries"]
            .as_array()
            .expect("a list")
            .is_empty()
    );

    let shown = gateway.about("entry", "/posts/a%3Fx=1").json();
    assert_eq!((shown["state"].as_str(), &shown["pk"]), (Some("fresh"), &entry["pk"]));
    assert_eq!(shown["meta"]["status"], 200);
    assert!(shown["tags"].as_array().expect("tags").contains(&json!("path=/posts")));
    assert!(
        !shown.to_string().contains("lease_token"),
        "what a lease can be taken over with is told to nobody"
    );

    let saved = gateway.about("body", "/posts/a%3Fx=1");
    assert_eq!((saved.body.as_str(), saved.header("content-type")), (visited.body.as_str(), "text/html"));
    assert!(saved.header("content-security-policy").contains("sandbox"), "nothing in it runs here");
    assert_eq!(saved.header("content-disposition"), "attachment");
    gateway.about("body", "/posts/b").problem(404);
    assert_eq!(gateway.about("entry", "/posts/b").json()["state"], "absent");
}

#[test]
fn all_pages_are_listed_however_few_at_a_time() {
    let gateway = Gateway::start(&Origin::start());
    for number in 0..5 {
        gateway.visit(&format!("/{number}"));
    }
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let listed = gateway.get(&format!("/api/v1/entries?limit=2{cursor}")).json();
        let entries = listed["entries"].as_array().expect("a list");
        assert!(entries.len() <= 2);
        found.extend(entries.iter().map(|entry| entry["path"].as_str().expect("a path").to_owned()));
        let Some(next) = listed["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    found.sort_unstable();
    assert_eq!(found, ["/0", "/1", "/2", "/3", "/4"]);
}

#[test]
fn what_is_invalidated_is_rendered_again() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    gateway.visit("/a");
    let wish = json!({ "url": gateway.url("/a"), "hard": true });
    assert_eq!(gateway.post("/api/v1/invalidate", &wish).json(), json!({ "outcome": "stale" }));
    assert_eq!(gateway.about("entry", "/a").json()["state"], "forbidden");
    assert_eq!(gateway.visit("/a").state(), "miss");
    for wish in [json!({ "path": "/" }), json!({ "everything": true })] {
        assert_eq!(gateway.post("/api/v1/invalidate", &wish).json(), json!({ "outcome": "stale" }), "{wish}");
        assert_eq!(gateway.about("entry", "/a").json()["state"], "stale", "{wish}");
    }
    for wish in
        [json!({ "tag": "news" }), json!({ "tenant": "acme" }), json!({ "tenant": "acme", "path": "/" })]
    {
        assert_eq!(gateway.post("/api/v1/invalidate", &wish).status, 200, "{wish}");
    }
    let absent = json!({ "url": gateway.url("/never") });
    assert_eq!(gateway.post("/api/v1/invalidate", &absent).json(), json!({ "outcome": "absent" }));
}

#[test]
fn a_wish_that_is_not_clear_is_refused_with_what_to_say_instead() {
    let gateway = Gateway::start(&Origin::start());
    let url = gateway.url("/a");
    for (wish, hint) in [
        (json!({}), "say one of `url`"),
        (json!({ "url": url, "path": "/" }), "say one of `url`"),
        (json!({ "everything": true, "tenant": "acme" }), "say one of `url`"),
        (json!({ "path": "/", "hard": true }), "only a page by its `url`"),
        (json!({ "path": "docs" }), "does not begin with `/`"),
        (json!({ "tag": "path=/" }), "choose another name"),
        (json!({ "tenant": "a#b" }), "`#` and control characters"),
        (json!({ "urll": url }), "unknown field `urll`"),
        (json!({ "url": "/a" }), "write all of it"),
        (json!([url]), "it must be a JSON object"),
    ] {
        let said = gateway.post("/api/v1/invalidate", &wish).problem(400);
        assert!(said.contains(hint), "{wish}: {said}");
    }
    for query in
        ["", "?url=/a", "?url=http://a/&limit=1", "?url=http://a/&url=http://b/", "?url=http://a/&header=x"]
    {
        gateway.get(&format!("/api/v1/entry{query}")).problem(400);
    }
    gateway.get("/api/v1/entries?cursor=nonsense").problem(400);
    gateway.get("/api/v1/entries?limit=many").problem(400);
    let rollback = json!({ "url": url, "version": "META" });
    let said = gateway.post("/api/v1/rollback", &rollback).problem(400);
    assert!(said.contains("VER#"), "{said}");
    let rollback = json!({ "url": url, "version": "VER#nothing" });
    gateway.post("/api/v1/rollback", &rollback).problem(404);
}

#[test]
fn attack_61_line_ends_in_names_are_refused_and_split_no_response() {
    let gateway = Gateway::start(&Origin::start());
    for wish in [
        json!({ "tag": "a\r\nset-cookie: x=y" }),
        json!({ "tenant": "a\nb" }),
        json!({ "path": "/a\r\nb" }),
        json!({ "url": "http://a/\r\nx: y" }),
        json!({ "url": "http://a/", "headers": { "x": "a\r\nb" } }),
    ] {
        let refused = gateway.post("/api/v1/invalidate", &wish);
        refused.problem(400);
        assert!(!refused.head.contains("set-cookie"));
    }
    gateway.get("/api/v1/entries?tag=a%0d%0ab").problem(400);
}

#[test]
fn a_body_that_is_too_long_is_not_read() {
    let gateway = Gateway::start(&Origin::start());
    let wish = json!({ "tag": "x".repeat(100_000) });
    gateway.post("/api/v1/invalidate", &wish).problem(413);
}

#[test]
fn a_page_is_rendered_once_for_a_key_and_the_result_is_repeated() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let first = gateway.regenerate("order-7", "/a");
    assert_eq!((first.status, first.json()["outcome"].as_str()), (200, Some("rendered")), "{first:?}");
    assert_eq!(first.header("idempotency-replayed"), "");
    let again = gateway.regenerate("order-7", "/a");
    assert_eq!((again.status, again.body.as_str()), (200, first.body.as_str()));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(gateway.regenerate("order-8", "/a").json()["outcome"], "fresh");
    assert_eq!((gateway.visit("/a").state(), origin.renders()), ("hit", 1));
}

#[test]
fn a_key_is_required_to_regenerate() {
    let gateway = Gateway::start(&Origin::start());
    let wish = json!({ "url": gateway.url("/a") });
    let said = gateway.post("/api/v1/regenerate", &wish).problem(400);
    assert!(said.contains("Idempotency-Key header is missing"), "{said}");
    gateway.regenerate("", "/a").problem(400);
    let twice =
        Ask::post("/api/v1/regenerate", &wish).with("idempotency-key", "a").with("idempotency-key", "b");
    twice.send(&gateway.admin).problem(400);
}

#[test]
fn attack_62_a_key_that_stood_for_another_request_is_refused_and_nothing_is_done() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    assert_eq!(gateway.regenerate("order-7", "/a").status, 200);
    gateway.regenerate("order-7", "/b").problem(422);
    let other = json!({ "url": gateway.url("/a"), "headers": { "accept-language": "de" } });
    let other = Ask::post("/api/v1/regenerate", &other).with("idempotency-key", "order-7");
    other.send(&gateway.admin).problem(422);
    assert_eq!(origin.renders(), 1);
    assert_eq!(gateway.about("entry", "/b").json()["state"], "absent");
}

#[test]
fn attack_63_a_key_cannot_name_another_row_and_a_huge_one_is_refused() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    for (number, key) in ["../META", "REQ#x", "META", "LOCK", "VER#1"].into_iter().enumerate() {
        let path = format!("/{number}");
        assert_eq!(gateway.regenerate(key, &path).status, 200, "{key}");
        assert_eq!(gateway.about("entry", &path).json()["state"], "fresh", "{key}");
        assert_eq!(gateway.regenerate(key, &path).header("idempotency-replayed"), "true", "{key}");
    }
    gateway.regenerate(&"x".repeat(5000), "/long").problem(400);
    let huge = gateway.regenerate(&"x".repeat(1024 * 1024), "/huge");
    assert!(matches!(huge.status, 0 | 431), "{}", huge.status);
    assert_eq!(gateway.about("entry", "/huge").json()["state"], "absent");
}

#[test]
fn a_request_that_is_being_worked_on_is_in_progress_for_everyone_else() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| gateway.regenerate("order-7", "/slow/a"));
        origin.asked.recv().expect("the origin is asked");
        let same = gateway.regenerate("order-7", "/slow/a");
        same.problem(409);
        assert!(same.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds > 0), "{same:?}");
        gateway.regenerate("order-8", "/slow/a").problem(409);
        origin.go_on.send(()).expect("the origin waits");
        assert_eq!(first.join().expect("no panic").status, 200);
    });
    assert_eq!(gateway.regenerate("order-7", "/slow/a").header("idempotency-replayed"), "true");
    assert_eq!(origin.renders(), 1);
}

#[test]
fn what_is_not_to_be_kept_is_not_kept_for_an_operator_either() {
    let gateway = Gateway::start(&Origin::start());
    let said = gateway.regenerate("order-7", "/private/a").problem(502);
    assert!(said.contains("not to be kept"), "{said}");
    assert_eq!(gateway.about("entry", "/private/a").json()["state"], "absent");
}

#[test]
fn the_configuration_is_shown_as_it_was_understood() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let shown = gateway.get("/api/v1/config").json();
    assert_eq!(shown["origin"], format!("http://{}", origin.address));
}
