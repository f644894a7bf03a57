//! Events that are not supported, and requests that the gateway rejects.

use serde_json::json;

use crate::events::{Streamed, function_url, function_url_with, load_balancer};
use crate::fixture::Setup;

#[test]
fn an_unsupported_event_is_an_error_that_names_the_supported_ones() {
    let setup = Setup::start();
    for event in ["", "null", "[1]", "{}", r#"{"Records": [{"messageId": "1", "eventSource": "aws:s3"}]}"#] {
        let error = setup.api.invoke(event).error();
        assert_eq!(error["errorType"], "FaceTheory.UnsupportedEvent", "{event}");
        let message = error["errorMessage"].as_str().expect("a message");
        assert!(message.contains("Function URL") && message.contains("SQS"), "{message}");
    }
    assert_eq!(setup.get("/pages/a").status, 200, "the function works on");
}

#[test]
fn requests_have_the_same_limits_as_on_a_connection() {
    let setup = Setup::start_with("[limits]\nuri_bytes = 2000\nheaders = 20\nbody_bytes = \"1KiB\"\n", &[]);
    let status = |event: String| Streamed::receive(&setup.api.invoke(event)).status;
    assert_eq!(status(function_url(&format!("/{}", "a".repeat(3000)))), 414);
    let many: serde_json::Map<String, serde_json::Value> =
        (0..30).map(|number| (format!("x-{number}"), json!("1"))).collect();
    assert_eq!(status(function_url_with("GET", "/a", &many.into(), &json!({}))), 431);
    let body = json!({ "body": "x".repeat(2000) });
    assert_eq!(status(function_url_with("POST", "/a", &json!({}), &body)), 413);
    for target in ["/a/../b", "/a b", "/%00", "a"] {
        assert_eq!(status(function_url(target)), 400, "{target}");
    }
    for (headers, fields) in [
        (json!({ "a b": "1" }), json!({})),
        (json!({ "x": "1\r\ny: 2" }), json!({})),
        (json!({ "host": "a, b" }), json!({})),
        (json!({}), json!({ "body": "%", "isBase64Encoded": true })),
        (json!({}), json!({ "headers": {} })),
    ] {
        assert_eq!(status(function_url_with("POST", "/a", &headers, &fields)), 400, "{headers} {fields}");
    }
    assert_eq!(setup.origin.requests().len(), 0);
    let without_host = setup.api.invoke(load_balancer("/a", &json!({}))).json();
    assert_eq!(without_host["statusCode"], 400);
}
