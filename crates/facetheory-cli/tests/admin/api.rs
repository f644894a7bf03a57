//! The operations on pages.

use facetheory::PageKey;
use facetheory::protocol::{Lock, request_hash};
use serde_json::json;
use tabletheory::{Clock as _, Item, Key, SystemClock, Table as _, Txn, Value, Write};

use crate::process::{Gateway, Origin, Request, facetheory};

#[test]
fn a_cached_page_is_listed_shown_and_downloaded() {
    let gateway = Gateway::start(&Origin::start());
    let cached = gateway.client_get("/posts/a?x=1");
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

    let shown = gateway.get_page("entry", "/posts/a%3Fx=1").json();
    assert_eq!((shown["state"].as_str(), &shown["pk"]), (Some("fresh"), &entry["pk"]));
    assert_eq!(shown["meta"]["status"], 200);
    assert!(shown["tags"].as_array().expect("tags").contains(&json!("path=/posts")));
    assert!(!shown.to_string().contains("lease_token"), "the lease token is secret");

    let saved = gateway.get_page("body", "/posts/a%3Fx=1");
    assert_eq!((saved.body.as_str(), saved.header("content-type")), (cached.body.as_str(), "text/html"));
    assert!(saved.header("content-security-policy").contains("sandbox"), "scripts in it do not run");
    assert_eq!(saved.header("content-disposition"), "attachment");
    gateway.get_page("body", "/posts/b").problem(404);
    assert_eq!(gateway.get_page("entry", "/posts/b").json()["state"], "absent");
}

#[test]
fn a_page_without_an_interval_in_its_rows_has_that_of_its_rule() {
    let gateway = Gateway::start(&Origin::start());
    let cache_key = gateway.get_page("entry", "/a").json()["cache_key"].as_str().expect("a key").to_owned();
    let page = PageKey::new(cache_key).expect("a page");
    let version =
        [("s3_key", Value::from("pages/abc.html")), ("generated_at", SystemClock.now().seconds().into())];
    put(&gateway, page.version("7"), Item::from(version));
    put(&gateway, page.meta(), Item::from([("current_sk", Value::from("VER#7"))]));
    let shown = gateway.get_page("entry", "/a").json();
    assert_eq!(
        (&shown["state"], &shown["meta"]["revalidate_seconds"]),
        (&json!("fresh"), &json!(3600)),
        "{shown}"
    );
}

/// Writes a row into the table of the gateway, as another service does.
fn put(gateway: &Gateway, key: Key, row: Item) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let address = format!("sqlite:{}", gateway.data().join("table.db").display());
    let commit = runtime.block_on(async {
        let table = tabletheory::open(&address).await?;
        table.commit(&Txn::from(Write::put(key, row))).await
    });
    assert!(commit.expect("a put").is_done());
}

#[test]
fn a_cursor_lists_all_pages_in_parts() {
    let gateway = Gateway::start(&Origin::start());
    for number in 0..5 {
        gateway.client_get(&format!("/{number}"));
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
fn a_purged_page_is_rendered_again() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    gateway.client_get("/a");
    let body = json!({ "url": gateway.url("/a"), "hard": true });
    assert_eq!(gateway.post("/api/v1/invalidate", &body).json(), json!({ "outcome": "stale" }));
    assert_eq!(gateway.get_page("entry", "/a").json()["state"], "must-not-serve");
    assert_eq!(gateway.client_get("/a").state(), "miss");
    for body in [json!({ "path": "/" }), json!({ "everything": true })] {
        assert_eq!(gateway.post("/api/v1/invalidate", &body).json(), json!({ "outcome": "stale" }), "{body}");
        assert_eq!(gateway.get_page("entry", "/a").json()["state"], "stale", "{body}");
    }
    for body in
        [json!({ "tag": "news" }), json!({ "tenant": "acme" }), json!({ "tenant": "acme", "path": "/" })]
    {
        assert_eq!(gateway.post("/api/v1/invalidate", &body).status, 200, "{body}");
    }
    let absent = json!({ "url": gateway.url("/never") });
    assert_eq!(gateway.post("/api/v1/invalidate", &absent).json(), json!({ "outcome": "absent" }));
}

#[test]
fn invalid_requests_are_rejected_with_a_remedy() {
    let gateway = Gateway::start(&Origin::start());
    let url = gateway.url("/a");
    for (body, hint) in [
        (json!({}), "name exactly one of `url`"),
        (json!({ "url": url, "path": "/" }), "name exactly one of `url`"),
        (json!({ "everything": true, "tenant": "acme" }), "name exactly one of `url`"),
        (json!({ "path": "/", "headers": { "accept": "a" } }), "need a `url`"),
        (json!({ "path": "/", "hard": true, "mode": "soft" }), "send only one"),
        (json!({ "path": "docs" }), "does not begin with `/`"),
        (json!({ "tag": "path=/" }), "choose another name"),
        (json!({ "tenant": "a#b" }), "`#` and control characters"),
        (json!({ "urll": url }), "unknown field `urll`"),
        (json!({ "url": "/a" }), "write the full URL"),
        (json!([url]), "it must be a JSON object"),
    ] {
        let detail = gateway.post("/api/v1/invalidate", &body).problem(400);
        assert!(detail.contains(hint), "{body}: {detail}");
    }
    for query in
        ["", "?url=/a", "?url=http://a/&limit=1", "?url=http://a/&url=http://b/", "?url=http://a/&header=x"]
    {
        gateway.get(&format!("/api/v1/entry{query}")).problem(400);
    }
    gateway.get("/api/v1/entries?cursor=nonsense").problem(400);
    gateway.get("/api/v1/entries?limit=many").problem(400);
    let rollback = json!({ "url": url, "version": "META" });
    let detail = gateway.post("/api/v1/rollback", &rollback).problem(400);
    assert!(detail.contains("VER#"), "{detail}");
    let rollback = json!({ "url": url, "version": "VER#nothing" });
    gateway.post("/api/v1/rollback", &rollback).problem(404);
}

#[test]
fn attack_61_line_breaks_in_names_are_rejected() {
    let gateway = Gateway::start(&Origin::start());
    for body in [
        json!({ "tag": "a\r\nset-cookie: x=y" }),
        json!({ "tenant": "a\nb" }),
        json!({ "path": "/a\r\nb" }),
        json!({ "url": "http://a/\r\nx: y" }),
        json!({ "url": "http://a/", "headers": { "x": "a\r\nb" } }),
    ] {
        let rejected = gateway.post("/api/v1/invalidate", &body);
        rejected.problem(400);
        assert!(!rejected.head.contains("set-cookie"));
    }
    gateway.get("/api/v1/entries?tag=a%0d%0ab").problem(400);
}

#[test]
fn a_request_body_that_is_too_large_is_rejected() {
    let gateway = Gateway::start(&Origin::start());
    let body = json!({ "tag": "x".repeat(100_000) });
    gateway.post("/api/v1/invalidate", &body).problem(413);
}

#[test]
fn a_page_is_rendered_once_per_idempotency_key_and_the_result_is_replayed() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let first = gateway.regenerate("order-7", "/a");
    assert_eq!((first.status, first.json()["outcome"].as_str()), (200, Some("rendered")), "{first:?}");
    assert_eq!(first.header("idempotency-replayed"), "");
    let again = gateway.regenerate("order-7", "/a");
    assert_eq!((again.status, again.body.as_str()), (200, first.body.as_str()));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(gateway.regenerate("order-8", "/a").json()["outcome"], "fresh");
    assert_eq!((gateway.client_get("/a").state(), origin.renders()), ("hit", 1));
}

#[test]
fn a_request_id_is_the_idempotency_key_if_there_is_no_other() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let regenerate = |headers: &[(&str, &str)], path: &str| {
        let body = json!({ "url": gateway.url(path) });
        let request = Request::post("/api/v1/regenerate", &body);
        headers.iter().fold(request, |request, (name, value)| request.with(name, value)).send(&gateway.admin)
    };
    let first = regenerate(&[("x-request-id", "request-7")], "/a");
    assert_eq!((first.status, first.json()["outcome"].as_str()), (200, Some("rendered")), "{first:?}");
    let again = regenerate(&[("x-request-id", "request-7")], "/a");
    assert_eq!((again.header("idempotency-replayed"), &again.body), ("true", &first.body));
    regenerate(&[("x-request-id", "request-7")], "/b").problem(422);
    let both = regenerate(&[("x-request-id", "request-7"), ("idempotency-key", "order-7")], "/b");
    assert_eq!(both.status, 200, "the idempotency key takes precedence: {both:?}");
    for (headers, name) in [
        (vec![("idempotency-key", "")], "Idempotency-Key"),
        (vec![("idempotency-key", "a"), ("idempotency-key", "b")], "Idempotency-Key"),
        (vec![("x-request-id", "")], "X-Request-Id"),
    ] {
        let detail = regenerate(&headers, "/c").problem(400);
        assert!(detail.contains(&format!("the {name} header")), "{detail}");
    }
    assert_eq!(origin.renders(), 2);
}

#[test]
fn a_regeneration_without_a_key_is_done_once_for_each_deployment() {
    let origin = Origin::start();
    let config = |deployment: &str| {
        format!(
            "[store]\ndeployment = \"{deployment}\"\n[routes]\n\"/**\" = {{ isr = \"1h\" }}\n\
             [timeouts]\ntable = \"20s\"\nbodies = \"1m\"\npublish = \"2m\"\n"
        )
    };
    let old = Gateway::with_config(&config("one"), &origin, &mut facetheory(), &["--log", "off"]);
    // The page has the same address, and so the same cache key, behind both gateways.
    let body = json!({ "url": "http://example.com/a" });
    let first = old.post("/api/v1/regenerate", &body);
    assert_eq!((first.status, first.json()["outcome"].as_str()), (200, Some("rendered")), "{first:?}");
    let again = old.post("/api/v1/regenerate", &body);
    assert_eq!((again.header("idempotency-replayed"), &again.body), ("true", &first.body));
    let keyed = |gateway: &Gateway| {
        Request::post("/api/v1/regenerate", &body).with("idempotency-key", "order-7").send(&gateway.admin)
    };
    assert_eq!(keyed(&old).json()["outcome"], "fresh");

    let new = old.restarted(&config("two"), &origin);
    let detail = keyed(&new).problem(422);
    assert!(detail.contains("another deployment"), "{detail}");
    assert_eq!(new.post("/api/v1/regenerate", &body).header("idempotency-replayed"), "");
}

#[test]
fn requests_of_another_service_with_the_same_hash_are_respected() {
    const CONFIG: &str = "[store]\ndeployment = \"one\"\npolicy_version = \"3\"\n\
                          [routes]\n\"/**\" = { isr = \"1h\" }\n[timeouts]\ntable = \"20s\"\nbodies = \"1m\"\npublish = \"2m\"\n";
    let origin = Origin::start();
    let gateway = Gateway::with_config(CONFIG, &origin, &mut facetheory(), &["--log", "off"]);
    let entry = gateway.get_page("entry", "/a").json();
    let cache_key = entry["cache_key"].as_str().expect("a cache key");
    let hash = request_hash(cache_key, Some("one"), Some("3"));
    let page = PageKey::new(cache_key).expect("a page");
    let put = |key: Key, row: Item| put(&gateway, key, row);
    let request =
        |status: &str| Item::from([("request_hash", Value::from(hash.as_str())), ("status", status.into())]);

    let mut completed = request("COMPLETED");
    completed.set("result_s3_key", "pages/abc.html");
    put(page.request("job-7").expect("a key"), completed);
    let replayed = gateway.regenerate("job-7", "/a");
    assert_eq!((replayed.status, replayed.header("idempotency-replayed")), (200, "true"), "{replayed:?}");
    assert_eq!(replayed.json()["s3_key"], "pages/abc.html");

    // The other service derived its key, and renders under the lease.
    put(page.request(&hash).expect("a key"), request("STARTED"));
    put(page.lock(), Lock::new("theirs", 4_000_000_000).to_item());
    let body = json!({ "url": gateway.url("/a") });
    gateway.post("/api/v1/regenerate", &body).problem(409);
    assert_eq!(origin.renders(), 0);
}

#[test]
fn attack_62_an_idempotency_key_cannot_be_reused_for_another_request() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    assert_eq!(gateway.regenerate("order-7", "/a").status, 200);
    gateway.regenerate("order-7", "/b").problem(422);
    // A header that is not part of the cache key does not reach the origin either, so it is the same request.
    let same = json!({ "url": gateway.url("/a"), "headers": { "accept-language": "de" } });
    let same = Request::post("/api/v1/regenerate", &same).with("idempotency-key", "order-7");
    assert_eq!(same.send(&gateway.admin).header("idempotency-replayed"), "true");
    assert_eq!(origin.renders(), 1);
    assert_eq!(gateway.get_page("entry", "/b").json()["state"], "absent");
}

#[test]
fn attack_63_an_idempotency_key_cannot_address_another_row_and_its_size_is_limited() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    for (number, key) in ["../META", "REQ#x", "META", "LOCK", "VER#1"].into_iter().enumerate() {
        let path = format!("/{number}");
        assert_eq!(gateway.regenerate(key, &path).status, 200, "{key}");
        assert_eq!(gateway.get_page("entry", &path).json()["state"], "fresh", "{key}");
        assert_eq!(gateway.regenerate(key, &path).header("idempotency-replayed"), "true", "{key}");
    }
    gateway.regenerate(&"x".repeat(5000), "/long").problem(400);
    let huge = gateway.regenerate(&"x".repeat(1024 * 1024), "/huge");
    assert!(matches!(huge.status, 0 | 431), "{}", huge.status);
    assert_eq!(gateway.get_page("entry", "/huge").json()["state"], "absent");
}

#[test]
fn a_regeneration_in_progress_is_a_conflict_for_other_requests() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| gateway.regenerate("order-7", "/slow/a"));
        origin.requested.recv().expect("a request to the origin");
        let same = gateway.regenerate("order-7", "/slow/a");
        same.problem(409);
        assert!(same.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds > 0), "{same:?}");
        gateway.regenerate("order-8", "/slow/a").problem(409);
        origin.release.send(()).expect("a waiting request");
        assert_eq!(first.join().expect("no panic").status, 200);
    });
    assert_eq!(gateway.regenerate("order-7", "/slow/a").header("idempotency-replayed"), "true");
    assert_eq!(origin.renders(), 1);
}

#[test]
fn an_uncacheable_response_is_not_cached_by_a_regeneration() {
    let gateway = Gateway::start(&Origin::start());
    let detail = gateway.regenerate("order-7", "/private/a").problem(502);
    assert!(detail.contains("not cacheable"), "{detail}");
    assert_eq!(gateway.get_page("entry", "/private/a").json()["state"], "absent");
}

#[test]
fn the_effective_configuration_is_shown() {
    let origin = Origin::start();
    let gateway = Gateway::start(&origin);
    let shown = gateway.get("/api/v1/config").json();
    assert_eq!(shown["origin"], format!("http://{}", origin.address));
}
