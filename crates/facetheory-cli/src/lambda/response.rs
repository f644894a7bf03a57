//! Responses as Lambda expects them: streamed, or as one JSON document.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use facetheory::remove_hop_by_hop_headers;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, SET_COOKIE};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use tokio::time::{Instant, Sleep};

use super::http_event::Source;
use super::runtime_api::Failure;
use crate::gateway::{causes, describe, local_response};
use crate::wire::Rejection;

pub(super) const ERROR_TYPE: HeaderName = HeaderName::from_static("lambda-runtime-function-error-type");
pub(super) const ERROR_BODY: HeaderName = HeaderName::from_static("lambda-runtime-function-error-body");

/// Separates the head of a streamed response from its body.
const SEPARATOR: [u8; 8] = [0; 8];
/// The size of the JSON document that an Application Load Balancer accepts: 1 MB.
const MAX_BALANCER_BYTES: usize = 1_000_000;
/// The size of the JSON document that a Function URL accepts in the mode `BUFFERED`: 6 MB.
const MAX_BUFFERED_BYTES: usize = 6_000_000;

const TOO_LARGE_FOR_BALANCER: Rejection = Rejection::new(
    StatusCode::BAD_GATEWAY,
    "the response is larger than the 1 MB that a load balancer accepts from a Lambda function; use a Function URL with \
     response streaming",
);
const TOO_LARGE_FOR_BUFFER: Rejection = Rejection::new(
    StatusCode::BAD_GATEWAY,
    "the response is larger than the 6 MB that a Lambda function can send at once; use response streaming",
);
const INCOMPLETE: Rejection =
    Rejection::new(StatusCode::BAD_GATEWAY, "the response could not be read to its end");

/// The body of a response: of the gateway's connection, or a text of this module.
pub(super) type ClientBody = Either<Incoming, Full<Bytes>>;

/// Returns a plain-text response.
pub(super) fn text_response(rejection: Rejection) -> Response<ClientBody> {
    local_response(rejection).map(|text| Either::Right(Full::from(text)))
}

/// The status and headers of a response, before the body of a stream.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Prelude {
    status_code: u16,
    headers: BTreeMap<String, String>,
    cookies: Vec<String>,
}

/// A whole response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Buffered {
    status_code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    multi_value_headers: Option<BTreeMap<String, Vec<String>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cookies: Vec<String>,
    is_base64_encoded: bool,
    body: String,
}

/// Returns a response as a JSON document for the service that received the request.
pub(super) async fn buffered(response: Response<ClientBody>, source: &Source) -> Bytes {
    let (limit, too_large) = match source {
        Source::FunctionUrl { .. } => (MAX_BUFFERED_BYTES, TOO_LARGE_FOR_BUFFER),
        Source::LoadBalancer { .. } => (MAX_BALANCER_BYTES, TOO_LARGE_FOR_BALANCER),
    };
    let (head, body) = response.into_parts();
    let rejection = match Limited::new(body, limit).collect().await {
        Ok(body) => {
            let json = document(head.status, head.headers, body.to_bytes(), source);
            if json.len() <= limit {
                return json;
            }
            too_large
        }
        Err(error) if causes(&*error).any(|cause| cause.is::<LengthLimitError>()) => too_large,
        Err(error) => {
            tracing::warn!(error = describe(&*error), "a response could not be read");
            INCOMPLETE
        }
    };
    tracing::warn!(status = head.status.as_u16(), rejection.text, "a response was replaced");
    let (head, text) = local_response(rejection).into_parts();
    document(head.status, head.headers, text.into(), source)
}

fn document(status: StatusCode, mut headers: HeaderMap, body: Bytes, source: &Source) -> Bytes {
    remove_framing(&mut headers);
    let (body, is_base64_encoded) = match String::from_utf8(body.into()) {
        Ok(text) => (text, false),
        Err(binary) => (BASE64_STANDARD.encode(binary.as_bytes()), true),
    };
    let mut document = Buffered {
        status_code: status.as_u16(),
        status_description: None,
        headers: None,
        multi_value_headers: None,
        cookies: Vec::new(),
        is_base64_encoded,
        body,
    };
    match source {
        Source::FunctionUrl { .. } => {
            document.cookies = values(&headers, &SET_COOKIE);
            headers.remove(SET_COOKIE);
            document.headers = Some(joined(&headers));
        }
        Source::LoadBalancer { multi_value } => {
            let reason = status.canonical_reason().unwrap_or("Unknown");
            document.status_description = Some(format!("{} {reason}", status.as_u16()));
            if *multi_value {
                let names = headers.keys().map(|name| (name.to_string(), values(&headers, name)));
                document.multi_value_headers = Some(names.collect());
            } else {
                document.headers = Some(joined(&headers));
            }
        }
    }
    serde_json::to_vec(&document).unwrap_or_default().into()
}

/// Removes headers that describe the connection to the gateway. Lambda frames the response itself.
fn remove_framing(headers: &mut HeaderMap) {
    remove_hop_by_hop_headers(headers);
    headers.remove(CONTENT_LENGTH);
}

/// Returns the values of a header.
fn values(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.get_all(name).iter().map(text).collect()
}

/// Returns each header once, with its values as a list. A cookie cannot be part of a list: the last one is used.
fn joined(headers: &HeaderMap) -> BTreeMap<String, String> {
    let pair = |name: &HeaderName| {
        let mut values = values(headers, name);
        let value = if *name == SET_COOKIE { values.pop().unwrap_or_default() } else { values.join(", ") };
        (name.to_string(), value)
    };
    headers.keys().map(pair).collect()
}

/// The result of polling a body.
type Polled = Poll<Option<Result<Frame<Bytes>, Infallible>>>;

/// A response as a stream: status and headers, a separator, and the body. An error ends it with trailers, so that Lambda
/// does not take it for complete.
#[derive(Debug)]
pub(super) struct StreamedResponse {
    prelude: Option<Bytes>,
    /// `None` once it has ended.
    body: Option<ClientBody>,
    deadline: Pin<Box<Sleep>>,
}

impl StreamedResponse {
    /// A response that is cut off at the deadline, before Lambda ends the process.
    pub(super) fn new(response: Response<ClientBody>, deadline: Instant) -> Self {
        let (mut head, body) = response.into_parts();
        remove_framing(&mut head.headers);
        let cookies = values(&head.headers, &SET_COOKIE);
        head.headers.remove(SET_COOKIE);
        let headers = joined(&head.headers);
        let prelude = Prelude { status_code: head.status.as_u16(), headers, cookies };
        let mut prelude = serde_json::to_vec(&prelude).unwrap_or_default();
        prelude.extend(SEPARATOR);
        let deadline = Box::pin(tokio::time::sleep_until(deadline));
        StreamedResponse { prelude: Some(prelude.into()), body: Some(body), deadline }
    }

    fn fail(&mut self, error: &str) -> Frame<Bytes> {
        const TRUNCATED: &str = "FaceTheory.TruncatedResponse";
        tracing::warn!(error, "a response was cut off");
        self.body = None;
        let failure = Failure { error_type: TRUNCATED, error_message: error };
        let description = BASE64_STANDARD.encode(serde_json::to_vec(&failure).unwrap_or_default());
        let mut trailers = HeaderMap::new();
        trailers.insert(ERROR_TYPE, HeaderValue::from_static(TRUNCATED));
        if let Ok(description) = HeaderValue::try_from(description) {
            trailers.insert(ERROR_BODY, description);
        }
        Frame::trailers(trailers)
    }
}

impl Body for StreamedResponse {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        if let Some(prelude) = self.prelude.take() {
            return Poll::Ready(Some(Ok(Frame::data(prelude))));
        }
        loop {
            if self.body.is_some() && self.deadline.as_mut().poll(context).is_ready() {
                let error = "the response was not complete before the timeout of the function";
                return Poll::Ready(Some(Ok(self.fail(error))));
            }
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            match ready!(Pin::new(body).poll_frame(context)) {
                // The trailers of a response are lost: Lambda has no field for them.
                Some(Ok(frame)) if !frame.is_data() => {}
                Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => {
                    let error = format!("the response is incomplete: {}", describe(&*error));
                    return Poll::Ready(Some(Ok(self.fail(&error))));
                }
                None => self.body = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const BALANCER: Source = Source::LoadBalancer { multi_value: false };

    fn response(body: impl Into<Bytes>) -> Response<ClientBody> {
        let mut response = Response::new(Either::Right(Full::new(body.into())));
        for (name, value) in [
            ("content-type", "text/plain"),
            ("content-length", "5"),
            ("connection", "close"),
            ("vary", "a"),
            ("vary", "b"),
            ("set-cookie", "a=1, b"),
            ("set-cookie", "c=2"),
        ] {
            response.headers_mut().append(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn buffered_json(body: impl Into<Bytes>, source: &Source) -> Value {
        serde_json::from_slice(&buffered(response(body), source).await).expect("JSON")
    }

    #[tokio::test]
    async fn each_service_gets_the_headers_in_its_own_form() {
        let function_url = Source::FunctionUrl { address: String::new() };
        let expected = json!({
            "statusCode": 200,
            "headers": { "content-type": "text/plain", "vary": "a, b" },
            "cookies": ["a=1, b", "c=2"],
            "isBase64Encoded": false,
            "body": "hello",
        });
        assert_eq!(buffered_json("hello", &function_url).await, expected);
        let one = buffered_json("hello", &BALANCER).await;
        assert_eq!(one["statusDescription"], "200 OK");
        let headers = json!({ "content-type": "text/plain", "set-cookie": "c=2", "vary": "a, b" });
        assert_eq!((&one["headers"], &one["multiValueHeaders"]), (&headers, &Value::Null));
        let many = buffered_json("hello", &Source::LoadBalancer { multi_value: true }).await;
        let headers = json!({
            "content-type": ["text/plain"], "set-cookie": ["a=1, b", "c=2"], "vary": ["a", "b"],
        });
        assert_eq!((&many["multiValueHeaders"], &many["headers"]), (&headers, &Value::Null));
    }

    #[tokio::test]
    async fn binary_bodies_are_base64() {
        let sent = buffered_json(&b"\xff\x00"[..], &BALANCER).await;
        assert_eq!((&sent["isBase64Encoded"], &sent["body"]), (&json!(true), &json!("/wA=")));
    }

    #[tokio::test]
    async fn a_response_that_the_load_balancer_would_reject_is_replaced_by_an_error() {
        // The document is larger than the body: by its headers, and by quotes that are escaped.
        for body in
            ["x".repeat(MAX_BALANCER_BYTES), "\"".repeat(MAX_BALANCER_BYTES / 2), "x".repeat(3_000_000)]
        {
            let sent = buffered_json(body, &BALANCER).await;
            assert_eq!(sent["statusCode"], 502);
            assert!(sent["body"].as_str().is_some_and(|text| text.contains("1 MB")), "{sent}");
        }
        let fits = buffered_json("x".repeat(MAX_BALANCER_BYTES - 1000), &BALANCER).await;
        assert_eq!(fits["statusCode"], 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_begins_with_its_head() {
        let deadline = Instant::now() + std::time::Duration::from_secs(1);
        let sent = StreamedResponse::new(response("hello"), deadline).collect().await.expect("a stream");
        assert!(sent.trailers().is_none());
        let sent = sent.to_bytes();
        let at = sent.windows(8).position(|window| window == SEPARATOR).expect("a separator");
        assert_eq!(&sent[at + 8..], b"hello");
        let prelude: Value = serde_json::from_slice(&sent[..at]).expect("JSON");
        let headers = json!({ "content-type": "text/plain", "vary": "a, b" });
        assert_eq!(prelude, json!({ "statusCode": 200, "headers": headers, "cookies": ["a=1, b", "c=2"] }));
    }
}
