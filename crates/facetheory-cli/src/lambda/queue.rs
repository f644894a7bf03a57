//! Sends regenerations of stale pages to an SQS queue.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::provider::ProvideCredentials as _;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use facetheory::{QueuedRegeneration, RegenerationQueue};
use http::header::{CONTENT_TYPE, COOKIE, HOST, HeaderName};
use http::uri::Scheme;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tabletheory::{Clock as _, SystemClock, Timestamp};

use crate::admin::PageSelector;
use crate::config::QueueUrl;
use crate::gateway::{client_tls, describe};

const X_AMZ_TARGET: HeaderName = HeaderName::from_static("x-amz-target");
/// How often a message is sent, if there is no response. The first connection may have been closed while the process was
/// frozen.
const MAX_ATTEMPTS: usize = 2;
/// How long an attempt may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an unused connection is used again.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The part of an error response that is read.
const MAX_ERROR_BYTES: usize = 16 * 1024;
/// How long the regeneration of one version of a page is not sent again by this process.
const RESEND_AFTER: Duration = Duration::from_secs(60);
/// The number of regenerations that are remembered as sent.
const MAX_REMEMBERED: usize = 4096;
/// The size of the largest message: SQS allows 256 KiB in all regions.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// A message: the request that a page is rendered with. Other programs may send it as well.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageMessage {
    /// The URL under which clients request the page.
    url: String,
    /// Request headers that are part of the cache key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    /// Request cookies that are part of the cache key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    cookies: BTreeMap<String, String>,
}

impl PageMessage {
    /// Returns the request of a message.
    pub(super) fn parse(json: &str) -> Result<Request<()>, String> {
        let message: PageMessage = serde_json::from_str(json).map_err(|error| {
            format!("the message does not name a page like {{\"url\": \"https://example.com/\"}}: {error}")
        })?;
        message.request()
    }

    fn request(&self) -> Result<Request<()>, String> {
        let request = PageSelector::new(&self.url, &self.headers, &self.cookies).request();
        request.map_err(|problem| problem.detail().to_owned())
    }

    /// Returns the message for a request, or `None` if the message would stand for another request: a header may be repeated,
    /// or not be text.
    fn of(request: &Request<()>) -> Option<Self> {
        let (mut headers, mut cookies) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in request.headers() {
            match (name, value.to_str().ok()?) {
                (&HOST, _) => {}
                (&COOKIE, line) => cookies.extend(line.split("; ").filter_map(|cookie| {
                    cookie.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
                })),
                (name, value) => drop(headers.insert(name.to_string(), value.to_owned())),
            }
        }
        let scheme = request.extensions().get::<Scheme>().unwrap_or(&Scheme::HTTP);
        let host = request.headers().get(HOST)?.to_str().ok()?;
        let message = PageMessage { url: format!("{scheme}://{host}{}", request.uri()), headers, cookies };
        let again = message.request().ok()?;
        let is_same = again.uri() == request.uri() && again.headers() == request.headers();
        is_same.then_some(message)
    }
}

/// An SQS queue.
#[derive(Debug)]
pub(super) struct SqsQueue {
    url: QueueUrl,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    config: SdkConfig,
    region: String,
    sent: Mutex<Sent>,
}

/// The regenerations that were sent: partition key and time of the version, and when its regeneration was sent.
#[derive(Debug, Default)]
struct Sent(HashMap<(String, i64), Timestamp>);

impl Sent {
    /// Whether a regeneration was sent a short time ago.
    fn contains(&self, version: &(String, i64), now: Timestamp) -> bool {
        self.0.get(version).is_some_and(|at| is_recent(*at, now))
    }

    fn insert(&mut self, version: (String, i64), now: Timestamp) {
        if self.0.len() >= MAX_REMEMBERED {
            self.0.retain(|_, at| is_recent(*at, now));
        }
        if self.0.len() >= MAX_REMEMBERED {
            // They may be sent again, which only costs messages.
            self.0.clear();
        }
        self.0.insert(version, now);
    }
}

fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    let millis = u64::try_from(now.millis().saturating_sub(at.millis()));
    // A clock that was set back makes a regeneration look as if it had been sent in the future.
    millis.is_ok_and(|millis| Duration::from_millis(millis) < RESEND_AFTER)
}

impl SqsQueue {
    /// Prepares the client of a queue. Region and credentials are those of the environment.
    pub(super) async fn open(url: QueueUrl) -> Result<Self> {
        let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
        let region = config.region().map(ToString::to_string);
        let region = region.context("no region is configured for the SQS queue; set AWS_REGION")?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(ATTEMPT_TIMEOUT));
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(client_tls(url.is_https())?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_ALIVE)
            .build(https);
        Ok(SqsQueue { url, client, config, region, sent: Mutex::default() })
    }

    /// Sends a message, with another attempt if there is no response.
    async fn send_message(&self, text: &str) -> Result<()> {
        let body = serde_json::json!({ "QueueUrl": self.url.to_string(), "MessageBody": text });
        let body = Bytes::from(serde_json::to_vec(&body)?);
        let mut attempts = 1;
        loop {
            let request = self.signed(body.clone()).await?;
            let sending = self.client.request(request);
            let error = match tokio::time::timeout(ATTEMPT_TIMEOUT, sending).await {
                Ok(Ok(response)) if response.status().is_success() => return Ok(()),
                Ok(Ok(response)) => {
                    let (status, body) = (response.status(), response.into_body());
                    let body = Limited::new(body, MAX_ERROR_BYTES).collect().await;
                    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
                    let error = format!("SQS responded with {status}: {}", String::from_utf8_lossy(&body));
                    if !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS {
                        bail!("{error}; check that the function may call sqs:SendMessage for {}", self.url);
                    }
                    error
                }
                Ok(Err(error)) => format!("SQS cannot be reached: {}", describe(&error)),
                Err(_) => format!("SQS did not respond within {ATTEMPT_TIMEOUT:?}"),
            };
            if attempts == MAX_ATTEMPTS {
                bail!(error);
            }
            tracing::debug!(error, "sending a message again");
            attempts += 1;
        }
    }

    /// Returns a signed request to send a message.
    async fn signed(&self, body: Bytes) -> Result<Request<Full<Bytes>>> {
        let provider = self.config.credentials_provider().context("there are no AWS credentials")?;
        let credentials = provider.provide_credentials().await.context("there are no AWS credentials")?;
        let identity = credentials.into();
        let now = SystemTime::UNIX_EPOCH
            + Duration::from_millis(u64::try_from(SystemClock.now().millis()).unwrap_or(0));
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("sqs")
            .time(now)
            .settings(SigningSettings::default())
            .build()?
            .into();
        let endpoint = self.url.endpoint();
        let mut request = Request::post(&endpoint)
            .header(CONTENT_TYPE, "application/x-amz-json-1.0")
            .header(X_AMZ_TARGET, "AmazonSQS.SendMessage")
            .body(Full::new(body.clone()))?;
        let headers =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("")));
        let signable = SignableRequest::new("POST", &endpoint, headers, SignableBody::Bytes(&body))?;
        let (instructions, _) = sign(signable, &parameters)?.into_parts();
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }
}

#[async_trait]
impl RegenerationQueue for SqsQueue {
    async fn send(
        &self,
        regeneration: QueuedRegeneration,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let version = (regeneration.page.pk().to_owned(), regeneration.generated_at);
        if self.sent.lock().contains(&version, SystemClock.now()) {
            return Ok(());
        }
        let message =
            PageMessage::of(&regeneration.request).ok_or("its request cannot be written as a message")?;
        let text = serde_json::to_string(&message)?;
        if text.len() > MAX_MESSAGE_BYTES {
            return Err("its request is larger than a message may be".into());
        }
        self.send_message(&text).await.map_err(|error| format!("{error:#}"))?;
        self.sent.lock().insert(version, SystemClock.now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(lines: &[(&'static str, &'static str)], scheme: Option<Scheme>) -> Request<()> {
        let mut request = Request::get("/a%20b?q=1");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).expect("a request");
        scheme.map(|scheme| request.extensions_mut().insert(scheme));
        request
    }

    #[test]
    fn a_message_contains_the_whole_request() {
        let lines = [("host", "example.com"), ("accept-language", "de"), ("cookie", "a=1; b=2=3")];
        let request = request(&lines, Some(Scheme::HTTPS));
        let text = serde_json::to_string(&PageMessage::of(&request).expect("a message")).expect("JSON");
        assert_eq!(
            text,
            r#"{"url":"https://example.com/a%20b?q=1","headers":{"accept-language":"de"},"cookies":{"a":"1","b":"2=3"}}"#
        );
        let again = PageMessage::parse(&text).expect("a request");
        assert_eq!((again.uri(), again.headers()), (request.uri(), request.headers()));
        assert_eq!(again.extensions().get(), Some(&Scheme::HTTPS));
    }

    #[test]
    fn a_request_that_a_message_cannot_contain_is_not_sent() {
        for lines in [
            &[("host", "a"), ("accept", "x"), ("accept", "y")][..],
            &[("host", "a"), ("cookie", "b=1; a=1")],
            &[("host", "a"), ("cookie", "a=1; a=2")],
            &[("host", "a"), ("accept", "\u{fc}")],
            &[("host", "a b")],
            &[],
        ] {
            assert!(PageMessage::of(&request(lines, None)).is_none(), "{lines:?}");
        }
    }

    #[test]
    fn invalid_messages_are_errors_that_show_a_valid_one() {
        for text in ["", "{}", "hello", r#"{"url": "/a"}"#, r#"{"url": "https://a/", "more": 1}"#] {
            let error = PageMessage::parse(text).expect_err(text);
            assert!(error.contains("://example.com/"), "{text}: {error}");
        }
    }

    #[test]
    fn a_version_is_sent_again_only_after_a_while_and_the_memory_is_bounded() {
        let (mut sent, start) = (Sent::default(), Timestamp::from_seconds(1000));
        let later = |seconds: i64| Timestamp::from_seconds(1000 + seconds);
        let version = |number| ("CACHE#a".to_owned(), number);
        sent.insert(version(1), start);
        assert!(sent.contains(&version(1), later(59)));
        assert!(!sent.contains(&version(1), later(60)), "the message may be lost");
        assert!(!sent.contains(&version(2), start), "another version");
        assert!(!sent.contains(&version(1), later(-5)), "the clock was set back");
        for number in 0..10_000 {
            sent.insert(version(number), start);
        }
        assert!(sent.0.len() <= MAX_REMEMBERED && sent.contains(&version(9_999), start));
    }
}
