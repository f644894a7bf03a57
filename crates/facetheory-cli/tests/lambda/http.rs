//! Requests of clients through a Function URL and a load balancer.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::events::{CLIENT, HOST, Streamed, function_url, function_url_with, load_balancer};
use crate::fixture::Setup;
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::values;

#[test]
fn a_page_is_rendered_once_and_then_served_from_the_cache() {
    Setup::on_each_store(|setup| {
        let target = "/pages/a%2Fb?q=%C3%BC&r=1";
        let miss = setup.get(target);
        assert_eq!(
            (miss.status, miss.state(), miss.text()),
            (200, "miss", format!("<p>{target}, render 1</p>"))
        );
        assert_eq!(miss.headers["content-type"], "text/html");
        assert_eq!(
            (&miss.headers["content-length"], &miss.headers["connection"]),
            (&Value::Null, &Value::Null)
        );
        let hit = setup.get(target);
        assert_eq!((hit.state(), hit.text(), &hit.trailers), ("hit", miss.text(), &None));
        let requests = setup.origin.requests_for(target);
        assert_eq!(requests.len(), 1);
        assert_eq!(
            (requests[0].header("host"), requests[0].header("x-forwarded-proto")),
            (Some(HOST), Some("https"))
        );
        assert!(setup.function.terminate().success());
    });
}

#[test]
fn a_response_is_streamed_while_the_origin_still_sends_it() {
    Setup::on_each_store(|setup| {
        let gate = Gate::default();
        let head = "HTTP/1.1 200 OK\r\ncache-control: no-store\r\ntransfer-encoding: chunked\r\n\r\n";
        let response = ScriptedResponse::raw(format!("{head}5\r\nfirst\r\n")).then_wait(&gate);
        setup.origin.respond("/stream", response.then("6\r\nsecond\r\n0\r\n\r\n"));
        let call = setup.api.invoke(function_url("/stream"));
        call.read_until("first");
        gate.open();
        call.read_until("second");
        setup.api.wait_until_idle();
    });
}

#[test]
fn a_truncated_response_ends_with_an_error_and_the_function_works_on() {
    let setup = Setup::start();
    let head = "HTTP/1.1 200 OK\r\ncache-control: no-store\r\ncontent-length: 100\r\n\r\n";
    setup.origin.respond("/cut", ScriptedResponse::raw(format!("{head}first")).then_close());
    let cut = setup.get("/cut");
    assert_eq!(cut.text(), "first");
    let trailers = cut.trailers.expect("an error");
    assert_eq!(trailers["lambda-runtime-function-error-type"], "FaceTheory.TruncatedResponse");
    let error = BASE64_STANDARD.decode(&trailers["lambda-runtime-function-error-body"]).expect("base64");
    let error: Value = serde_json::from_slice(&error).expect("JSON");
    assert!(error["errorMessage"].as_str().is_some_and(|text| text.contains("incomplete")), "{error}");
    assert_eq!(setup.get("/pages/a").status, 200);
}

#[test]
fn bodies_cookies_and_addresses_pass_in_both_directions() {
    let setup = Setup::start();
    setup.origin.respond(
        "/form",
        ScriptedResponse::with("201 Created", &["set-cookie: a=1; Path=/", "set-cookie: b=2"], "done"),
    );
    let bytes = [0, 255, 128, 10];
    let headers = json!({ "content-type": "application/octet-stream", "x-forwarded-for": format!("6.6.6.6, {CLIENT}") });
    let body =
        json!({ "cookies": ["c=3", "d=4"], "body": BASE64_STANDARD.encode(bytes), "isBase64Encoded": true });
    let call = setup.api.invoke(function_url_with("POST", "/form?x=1", &headers, &body));
    let response = Streamed::receive(&call);
    assert_eq!((response.status, response.text()), (201, "done".to_owned()));
    assert_eq!(response.cookies, json!(["a=1; Path=/", "b=2"]));
    let requests = setup.origin.requests_for("/form?x=1");
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((request.method.as_str(), &request.body[..]), ("POST", &bytes[..]));
    assert_eq!(request.header("cookie"), Some("c=3; d=4"));
    assert_eq!(request.header("x-forwarded-for"), Some(CLIENT), "what the client claims is not trusted");
}

#[test]
fn responses_without_a_body_are_complete() {
    let setup = Setup::start();
    setup.origin.respond("/gone", ScriptedResponse::with("302 Found", &["location: /pages/a"], ""));
    let redirect = setup.get("/gone");
    assert_eq!((redirect.status, redirect.headers["location"].as_str()), (302, Some("/pages/a")));
    assert!(redirect.body.is_empty() && redirect.trailers.is_none());
    let etag = setup.get("/pages/a").headers["etag"].clone();
    let headers = json!({ "if-none-match": etag });
    let call = setup.api.invoke(function_url_with("GET", "/pages/a", &headers, &json!({})));
    let unchanged = Streamed::receive(&call);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let call = setup.api.invoke(function_url_with("HEAD", "/pages/a", &json!({}), &json!({})));
    let head = Streamed::receive(&call);
    assert_eq!((head.status, head.state(), head.body.len()), (200, "hit", 0));
}

#[test]
fn a_load_balancer_gets_whole_responses_with_headers_in_the_form_of_its_event() {
    Setup::on_each_store(|setup| {
        setup.origin.respond(
            "/cookies",
            ScriptedResponse::with(
                "200 OK",
                &["set-cookie: a=1", "set-cookie: b=2", "cache-control: no-store"],
                "done",
            ),
        );
        let single = json!({
            "headers": { "host": "www.example.com", "x-forwarded-for": "198.51.100.7", "x-forwarded-proto": "https" },
            "queryStringParameters": { "p": "1", "q": "%20" },
        });
        let page = setup.api.invoke(load_balancer("/pages/a", &single)).json();
        assert_eq!((&page["statusCode"], &page["statusDescription"]), (&json!(200), &json!("200 OK")));
        assert_eq!(page["body"], "<p>/pages/a?p=1&q=%20, render 1</p>");
        assert_eq!(
            (&page["headers"]["x-facetheory-isr"], &page["isBase64Encoded"]),
            (&json!("miss"), &json!(false))
        );
        let several = json!({
            "multiValueHeaders": {
                "host": ["www.example.com"], "x-forwarded-for": ["6.6.6.6, 198.51.100.7"], "accept": ["a", "b"],
            },
            "multiValueQueryStringParameters": { "q": ["1", "2"] },
        });
        let cookies = setup.api.invoke(load_balancer("/cookies", &several)).json();
        assert_eq!(cookies["multiValueHeaders"]["set-cookie"], json!(["a=1", "b=2"]));
        assert_eq!(cookies["headers"], Value::Null);
        let requests = setup.origin.requests_for("/cookies?q=1&q=2");
        let [request] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!(request.header("x-forwarded-for"), Some("198.51.100.7"));
        assert_eq!(values(&request.headers, "accept"), ["a", "b"]);
    });
}

#[test]
fn a_response_that_is_too_large_for_a_load_balancer_is_an_error_and_is_streamed_otherwise() {
    Setup::on_each_store(|setup| {
        let large = "x".repeat(1_500_000);
        setup.origin.respond("/pages/large", ScriptedResponse::page(&[], &large));
        let headers = json!({ "headers": { "host": HOST, "x-forwarded-proto": "https" } });
        let refused = setup.api.invoke(load_balancer("/pages/large", &headers)).json();
        assert_eq!(refused["statusCode"], 502);
        assert!(refused["body"].as_str().is_some_and(|text| text.contains("1 MB")), "{refused}");
        let streamed = setup.get("/pages/large");
        assert_eq!((streamed.state(), streamed.body.len()), ("hit", large.len()));
    });
}

#[test]
fn a_function_url_without_streaming_gets_one_document() {
    let setup = Setup::start_with("[lambda]\ninvoke_mode = \"buffered\"\n", &[]);
    let image = "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 3\r\n\r\n";
    let image = [image.as_bytes(), &[0, 255, 1]].concat();
    setup.origin.respond("/pages/image", ScriptedResponse::raw(image));
    let received = setup.api.invoke(function_url("/pages/image")).receive();
    assert_eq!(received.head.get("lambda-runtime-function-response-mode"), None);
    let document: Value = serde_json::from_slice(&received.body).expect("JSON");
    assert_eq!((&document["statusCode"], &document["isBase64Encoded"]), (&json!(200), &json!(true)));
    assert_eq!(
        (&document["body"], &document["headers"]["x-facetheory-isr"]),
        (&json!("AP8B"), &json!("miss"))
    );
}
