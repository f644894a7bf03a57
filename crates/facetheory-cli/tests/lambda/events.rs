//! Events as Lambda sends them, and the responses to them.

use http::HeaderMap;
use serde_json::{Value, json};

use crate::runtime_api::{Call, Received};

/// The host of requests.
pub(crate) const HOST: &str = "abc.lambda-url.us-east-1.on.aws";
/// The address of the client.
pub(crate) const CLIENT: &str = "203.0.113.9";

/// A GET of a client through a Function URL.
pub(crate) fn function_url(target: &str) -> String {
    function_url_with("GET", target, &json!({}), &json!({}))
}

/// A request through a Function URL, with more headers and other fields.
pub(crate) fn function_url_with(method: &str, target: &str, headers: &Value, fields: &Value) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut event = json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {
            "host": HOST,
            "x-forwarded-for": CLIENT,
            "x-forwarded-proto": "https",
            "x-forwarded-port": "443",
            "x-amzn-trace-id": "Root=1-5bdb40ca-556d8b0c50dc66f0511bf520",
        },
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "abc",
            "domainName": HOST,
            "http": { "method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": CLIENT, "userAgent": "test" },
            "requestId": "id",
            "routeKey": "$default",
            "stage": "$default",
        },
        "isBase64Encoded": false,
    });
    merge(&mut event["headers"], headers);
    merge(&mut event, fields);
    event.to_string()
}

/// A GET of a client through an Application Load Balancer.
pub(crate) fn load_balancer(path: &str, fields: &Value) -> String {
    let mut event = json!({
        "requestContext": { "elb": { "targetGroupArn": "arn:aws:elasticloadbalancing:us-east-1:1:targetgroup/a/b" } },
        "httpMethod": "GET",
        "path": path,
        "body": "",
        "isBase64Encoded": false,
    });
    merge(&mut event, fields);
    event.to_string()
}

/// Messages of a queue.
pub(crate) fn messages(messages: &[(&str, &str)]) -> String {
    let record = |(id, body): &(&str, &str)| json!({ "messageId": id, "receiptHandle": "handle", "body": body, "eventSource": "aws:sqs", "awsRegion": "us-east-1" });
    json!({ "Records": messages.iter().map(record).collect::<Vec<Value>>() }).to_string()
}

fn merge(target: &mut Value, more: &Value) {
    let target = target.as_object_mut().expect("an object");
    target.extend(more.as_object().expect("an object").clone());
}

/// A streamed response to an HTTP request.
#[derive(Debug)]
pub(crate) struct Streamed {
    pub(crate) status: u64,
    pub(crate) headers: Value,
    pub(crate) cookies: Value,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Streamed {
    /// Receives it to its end.
    pub(crate) fn receive(call: &Call) -> Streamed {
        let Received { head, body, trailers } = call.receive();
        assert_eq!(head["lambda-runtime-function-response-mode"], "streaming");
        assert_eq!(head["content-type"], "application/vnd.awslambda.http-integration-response");
        assert_eq!(head["transfer-encoding"], "chunked");
        let end = body.windows(8).position(|window| window == [0; 8]).expect("8 NUL bytes after the head");
        let prelude: Value = serde_json::from_slice(&body[..end]).expect("JSON");
        Streamed {
            status: prelude["statusCode"].as_u64().expect("a status"),
            headers: prelude["headers"].clone(),
            cookies: prelude["cookies"].clone(),
            body: body[end + 8..].to_vec(),
            trailers,
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// How the gateway served the page.
    pub(crate) fn state(&self) -> &str {
        self.headers["x-facetheory-isr"].as_str().unwrap_or("")
    }
}
