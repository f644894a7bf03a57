//! `[lambda]`: the gateway as an AWS Lambda function.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use serde::Serialize;

use super::section::table;
use super::value::{keyword, optional, string};

table! {
    /// The settings of `facetheory lambda`.
    Lambda {
        /// How the Function URL invokes the function.
        invoke_mode: InvokeMode = InvokeMode::ResponseStream, keyword;
        /// The SQS queue for regenerations of stale pages; without one they are finished within the invocation.
        queue_url: Option<QueueUrl> = None, optional(|value| string(value)?.parse());
    }
}

/// The invoke mode of a Function URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum InvokeMode {
    /// `RESPONSE_STREAM`: responses are streamed, and may be of any size that Lambda allows.
    ResponseStream,
    /// `BUFFERED`: responses are sent when they are complete, up to 6 MB.
    Buffered,
}

/// The URL of an SQS queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueUrl(Uri);

impl QueueUrl {
    /// Returns the URL of the API that serves the queue.
    pub(crate) fn endpoint(&self) -> String {
        let (scheme, authority) = (self.0.scheme_str(), self.0.authority());
        format!("{}://{}/", scheme.unwrap_or("https"), authority.map_or("", |authority| authority.as_str()))
    }

    pub(crate) fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

impl FromStr for QueueUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "write it like https://sqs.eu-central-1.amazonaws.com/123456789012/pages";
        let uri = text.parse::<Uri>().ok().filter(|uri| {
            let is_web = matches!(uri.scheme_str(), Some("https" | "http"));
            is_web && uri.path().len() > 1 && uri.query().is_none()
        });
        let uri = uri.ok_or_else(|| format!("this is not the URL of an SQS queue; {FORM}"))?;
        if uri.path().ends_with(".fifo") {
            return Err("a FIFO queue would process one failed page again and again before all others; \
                        write the URL of a standard queue"
                .to_owned());
        }
        Ok(QueueUrl(uri))
    }
}

impl fmt::Display for QueueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for QueueUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
