//! Regenerations through an SQS queue.

use serde_json::{Value, json};

use crate::events::{HOST, Streamed, function_url, messages};
use crate::fixture::Setup;
use crate::support::origin::{Origin, ScriptedResponse};

const PAGE: &str = "/pages/a";

/// A local SQS, and the environment of a function that uses it.
fn sqs() -> (Origin, Vec<(&'static str, String)>) {
    let sqs = Origin::start();
    sqs.respond("/", ScriptedResponse::with("200 OK", &[], r#"{"MessageId": "1", "MD5OfMessageBody": "x"}"#));
    let url = format!("http://{}/123456789012/pages", sqs.address);
    let environment = vec![
        ("FACETHEORY_QUEUE_URL", url),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", "id".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
    ];
    (sqs, environment)
}

#[test]
fn a_stale_page_is_regenerated_through_the_queue_on_the_embedded_store() {
    let (sqs, environment) = sqs();
    is_regenerated_through_the_queue(&sqs, &Setup::start_with("", &environment));
}

#[test]
fn a_stale_page_is_regenerated_through_the_queue_on_dynamodb_and_s3() {
    let (sqs, environment) = sqs();
    // The keys of the local servers are used for both.
    let queue_only = &environment[..1];
    is_regenerated_through_the_queue(&sqs, &Setup::start_on_servers("", queue_only));
}

fn is_regenerated_through_the_queue(sqs: &Origin, setup: &Setup) {
    assert_eq!(setup.get(PAGE).state(), "miss");
    setup.invalidate(PAGE);
    for _ in 0..3 {
        assert_eq!(setup.get(PAGE).state(), "stale");
        setup.api.wait_until_idle();
    }
    assert_eq!(setup.origin.requests_for(PAGE).len(), 1, "the page is not rendered by this invocation");
    let sent = sqs.requests();
    let [sent] = &sent[..] else {
        panic!("the same version is sent once: {sent:?}\n{}", setup.function.log())
    };
    assert_eq!(sent.header("x-amz-target"), Some("AmazonSQS.SendMessage"));
    assert_eq!(sent.header("content-type"), Some("application/x-amz-json-1.0"));
    let authorization = sent.header("authorization").expect("a signature");
    assert!(
        authorization.starts_with("AWS4-HMAC-SHA256 ")
            && authorization.contains("/us-east-1/sqs/aws4_request"),
        "{authorization}"
    );
    let request: Value = serde_json::from_slice(&sent.body).expect("JSON");
    assert_eq!(request["QueueUrl"], format!("http://{}/123456789012/pages", sqs.address));
    let message = request["MessageBody"].as_str().expect("a message");
    assert_eq!(message, format!(r#"{{"url":"https://{HOST}{PAGE}"}}"#));

    let delivery = messages(&[("m-1", message)]);
    assert_eq!(setup.api.invoke(&delivery).json(), json!({ "batchItemFailures": [] }));
    setup.api.wait_until_idle();
    setup.function.freeze();
    assert_eq!(setup.store.locks().len(), 0, "the lease is released");
    setup.function.thaw();
    let hit = setup.get(PAGE);
    assert_eq!((hit.state(), hit.text()), ("hit", format!("<p>{PAGE}, render 2</p>")));

    // SQS may deliver a message more than once, also much later. It is executed once.
    setup.invalidate(PAGE);
    assert_eq!(setup.api.invoke(&delivery).json(), json!({ "batchItemFailures": [] }));
    assert_eq!(setup.origin.requests_for(PAGE).len(), 2);
    let next = messages(&[("m-2", message)]);
    assert_eq!(setup.api.invoke(&next).json(), json!({ "batchItemFailures": [] }));
    assert_eq!(setup.origin.requests_for(PAGE).len(), 3, "another message is executed");
}

#[test]
fn only_the_messages_that_failed_are_delivered_again() {
    let setup = Setup::start();
    setup.origin.respond("/pages/down", ScriptedResponse::with("500 Internal Server Error", &[], "down"));
    let page = |path: &str| format!(r#"{{"url":"https://{HOST}{path}"}}"#);
    let batch = messages(&[
        ("good", &page("/pages/good")),
        ("not-json", "hello"),
        ("no-page", &page("/pages/private/a")),
        ("down", &page("/pages/down")),
        ("also-good", &page("/pages/also-good")),
    ]);
    let result = setup.api.invoke(&batch).json();
    let failures = result["batchItemFailures"].as_array().expect("a list");
    let mut failed: Vec<&str> =
        failures.iter().map(|failure| failure["itemIdentifier"].as_str().expect("an id")).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["down", "no-page", "not-json"], "{}", setup.function.log());
    assert_eq!(setup.get("/pages/good").state(), "hit");
    assert_eq!(setup.get("/pages/also-good").state(), "hit");

    setup.origin.respond("/pages/down", ScriptedResponse::page(&[], "up"));
    let again = messages(&[("down", &page("/pages/down"))]);
    assert_eq!(
        setup.api.invoke(&again).json(),
        json!({ "batchItemFailures": [] }),
        "{}",
        setup.function.log()
    );
    assert_eq!(setup.get("/pages/down").text(), "up");
}

#[test]
fn without_the_queue_the_page_is_regenerated_within_the_invocation() {
    for status in ["500 Internal Server Error", "403 Forbidden"] {
        let (sqs, environment) = sqs();
        sqs.respond("/", ScriptedResponse::with(status, &[], r#"{"__type": "Failure"}"#));
        let setup = Setup::start_with("", &environment);
        assert_eq!(setup.get(PAGE).state(), "miss");
        setup.invalidate(PAGE);
        assert_eq!(setup.get(PAGE).state(), "stale");
        setup.api.wait_until_idle();
        assert!(!sqs.requests().is_empty());
        assert_eq!(setup.origin.requests_for(PAGE).len(), 2, "{}", setup.function.log());
        assert_eq!(setup.get(PAGE).state(), "hit");
    }
}

#[test]
fn a_page_that_follows_its_origin_is_regenerated_within_the_invocation() {
    let (sqs, environment) = sqs();
    let setup = Setup::start_with("", &environment);
    setup.origin.respond(
        "/a",
        ScriptedResponse::page(&["cache-control: max-age=0, stale-while-revalidate=600"], "a"),
    );
    assert_eq!(setup.get("/a").status, 200);
    let call = setup.api.invoke(function_url("/a"));
    assert_eq!(Streamed::receive(&call).state(), "stale");
    setup.api.wait_until_idle();
    assert_eq!(setup.origin.requests_for("/a").len(), 2);
    assert!(sqs.requests().is_empty());
}
