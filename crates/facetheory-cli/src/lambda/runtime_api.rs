//! The runtime API of Lambda: receives invocations and sends their responses.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, TRAILER};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use tabletheory::{Clock, SystemClock};
use tokio::time::Instant;

use super::response::{ERROR_BODY, ERROR_TYPE, StreamedResponse};
use crate::gateway::describe;

/// The environment variable with the address of the API.
const VARIABLE: &str = "AWS_LAMBDA_RUNTIME_API";
const VERSION: &str = "2018-06-01";
const REQUEST_ID: HeaderName = HeaderName::from_static("lambda-runtime-aws-request-id");
const DEADLINE: HeaderName = HeaderName::from_static("lambda-runtime-deadline-ms");
const RESPONSE_MODE: HeaderName = HeaderName::from_static("lambda-runtime-function-response-mode");
/// The media type of a stream that begins with the status and headers of the response.
const STREAM_TYPE: &str = "application/vnd.awslambda.http-integration-response";
/// The size of the largest event: Lambda allows 6 MB.
const MAX_EVENT_BYTES: usize = 8 << 20;
/// The longest time that Lambda gives an invocation. A deadline later than that is an error of a clock.
const MAX_DURATION: Duration = Duration::from_secs(900);

/// A client of the API.
#[derive(Clone, Debug)]
pub(super) struct RuntimeApi {
    client: Client<HttpConnector, ApiBody>,
    base: String,
}

type ApiBody = Either<Full<Bytes>, StreamedResponse>;

/// An event to be handled.
#[derive(Debug)]
pub(super) struct Invocation {
    pub(super) id: String,
    /// When Lambda ends the process, unless the invocation has ended before.
    pub(super) deadline: Instant,
    pub(super) event: Bytes,
}

/// The description of an error.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failure<'a> {
    pub(super) error_type: &'a str,
    pub(super) error_message: &'a str,
}

impl RuntimeApi {
    /// Finds the API in the environment.
    pub(super) fn from_environment(look_up: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let address = look_up(VARIABLE).filter(|address| !address.is_empty()).with_context(|| {
            format!(
                "{VARIABLE} is not set: this command runs as an AWS Lambda function; use `serve` elsewhere"
            )
        })?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(RuntimeApi { client, base: format!("http://{address}/{VERSION}/runtime") })
    }

    /// Waits for the next invocation, and thereby ends the last one: the process may be frozen from now on.
    pub(super) async fn next(&self) -> Result<Invocation> {
        let request = Request::get(format!("{}/invocation/next", self.base)).body(empty())?;
        let response = self.client.request(request).await.context("the runtime API cannot be reached")?;
        let (head, body) = response.into_parts();
        ensure!(head.status == StatusCode::OK, "the runtime API responded with {}", head.status);
        let id = head.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let id = id.context("the runtime API sent an event without a request id")?.to_owned();
        let body = Limited::new(body, MAX_EVENT_BYTES).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("an event cannot be read: {error}"))?;
        Ok(Invocation { id, deadline: deadline(&head.headers, &SystemClock), event: body.to_bytes() })
    }

    /// Sends a whole response.
    pub(super) async fn respond(&self, id: &str, json: Bytes) -> Result<()> {
        let request = Request::post(format!("{}/invocation/{id}/response", self.base))
            .header(CONTENT_TYPE, "application/json")
            .body(Either::Left(Full::new(json)))?;
        self.send(request).await
    }

    /// Streams a response to an HTTP request.
    pub(super) async fn stream(&self, id: &str, response: StreamedResponse) -> Result<()> {
        let request = Request::post(format!("{}/invocation/{id}/response", self.base))
            .header(CONTENT_TYPE, STREAM_TYPE)
            .header(RESPONSE_MODE, "streaming")
            .header(TRAILER, ERROR_TYPE)
            .header(TRAILER, ERROR_BODY)
            .body(Either::Right(response))?;
        self.send(request).await
    }

    /// Reports that an event cannot be handled.
    pub(super) async fn fail(&self, id: &str, failure: &Failure<'_>) -> Result<()> {
        self.send(failed(format!("{}/invocation/{id}/error", self.base), failure)?).await
    }

    /// Reports that the function cannot start.
    pub(super) async fn fail_init(&self, message: &str) {
        let failure = Failure { error_type: "FaceTheory.InvalidConfiguration", error_message: message };
        let sent = async { self.send(failed(format!("{}/init/error", self.base), &failure)?).await };
        if let Err(error) = sent.await {
            tracing::error!(error = format!("{error:#}"), "the error was not reported to Lambda");
        }
    }

    async fn send(&self, request: Request<ApiBody>) -> Result<()> {
        let response = self.client.request(request).await;
        let response = response.map_err(|error| anyhow::anyhow!("the runtime API: {}", describe(&error)))?;
        let status = response.status();
        ensure!(status.is_success(), "the runtime API rejected the response with {status}");
        Ok(())
    }
}

fn empty() -> ApiBody {
    Either::Left(Full::default())
}

fn failed(uri: String, failure: &Failure<'_>) -> Result<Request<ApiBody>> {
    let request = Request::builder().method(Method::POST).uri(uri);
    let request = request.header(ERROR_TYPE, failure.error_type).header(CONTENT_TYPE, "application/json");
    Ok(request.body(Either::Left(Full::from(serde_json::to_vec(failure)?)))?)
}

/// Returns when an invocation must have ended. The clock is read now: it may have jumped while the process was frozen.
fn deadline(headers: &HeaderMap, clock: &dyn Clock) -> Instant {
    let millis: Option<i64> = headers.get(DEADLINE).and_then(|value| value.to_str().ok()?.parse().ok());
    let left = millis.map_or(MAX_DURATION, |millis| {
        let left = millis.saturating_sub(clock.now().millis());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    });
    Instant::now() + left.min(MAX_DURATION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::{ManualClock, Timestamp};

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_at_most_as_late_as_lambda_allows() {
        let clock = ManualClock::at(Timestamp::from_seconds(1000));
        let left = |value: &str| {
            let headers = HeaderMap::from_iter([(DEADLINE, value.parse().expect("a value"))]);
            deadline(&headers, &clock) - Instant::now()
        };
        assert_eq!(left("1003500"), Duration::from_millis(3500));
        assert_eq!(left("999000"), Duration::ZERO, "it is over");
        for strange in ["9999999999999", "soon", ""] {
            assert_eq!(left(strange), MAX_DURATION, "{strange}");
        }
    }

    #[test]
    fn without_lambda_the_error_names_the_command_to_use() {
        let error = RuntimeApi::from_environment(|_| None).expect_err("the variable is not set");
        assert!(error.to_string().contains("use `serve`"), "{error}");
    }
}
