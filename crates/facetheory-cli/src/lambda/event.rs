//! The events that the function handles, as Lambda sends them.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::http_event::{HttpEvent, Source};

/// An event.
#[derive(Debug)]
pub(super) enum Event {
    /// An HTTP request.
    Http(Box<HttpEvent>),
    /// Messages of an SQS queue.
    Messages(Vec<Message>),
    /// Garbage collection, from a schedule.
    Gc,
}

/// The operation that an event of an operator requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    Gc,
}

/// A message of an SQS queue.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    pub(super) message_id: String,
    #[serde(default)]
    pub(super) body: String,
    event_source: String,
}

/// The name of SQS in an event.
const SQS: &str = "aws:sqs";
/// The end of the error about any other event.
const SUPPORTED: &str = "this function handles requests of a Function URL, requests of an Application Load Balancer, messages of \
     an SQS queue, and {\"facetheory\": \"gc\"}";

/// All fields of all events, of which an event has some.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyEvent {
    facetheory: Option<Operation>,
    #[serde(rename = "Records")]
    records: Option<Vec<Message>>,
    request_context: Option<RequestContext>,
    raw_path: Option<String>,
    raw_query_string: Option<String>,
    cookies: Option<Vec<String>>,
    http_method: Option<String>,
    path: Option<String>,
    query_string_parameters: Option<Pairs<String>>,
    multi_value_query_string_parameters: Option<Pairs<Vec<String>>>,
    headers: Option<Pairs<String>>,
    multi_value_headers: Option<Pairs<Vec<String>>>,
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

#[derive(Debug, Deserialize)]
struct RequestContext {
    /// In an event of a Function URL.
    http: Option<HttpContext>,
    /// In an event of an Application Load Balancer.
    elb: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpContext {
    method: String,
    source_ip: String,
}

impl Event {
    /// Parses an event. The error says which events are supported.
    pub(super) fn parse(json: &[u8]) -> Result<Event, String> {
        let event: AnyEvent = serde_json::from_slice(json)
            .map_err(|error| format!("the event is not supported ({error}); {SUPPORTED}"))?;
        if let Some(Operation::Gc) = event.facetheory {
            return Ok(Event::Gc);
        }
        if let Some(messages) = event.records {
            return match messages.iter().find(|message| message.event_source != SQS) {
                None => Ok(Event::Messages(messages)),
                Some(other) => {
                    let source: String = other.event_source.escape_debug().take(64).collect();
                    Err(format!("events of `{source}` are not supported; {SUPPORTED}"))
                }
            };
        }
        let missing = |field: &str| format!("the event has no `{field}`; {SUPPORTED}");
        let context = event.request_context.ok_or_else(|| missing("requestContext"))?;
        let (headers, query);
        let (source, method, path) = match (context.http, context.elb) {
            (Some(http), _) => {
                headers = single(event.headers);
                query = event.raw_query_string.unwrap_or_default();
                let path = event.raw_path.ok_or_else(|| missing("rawPath"))?;
                (Source::FunctionUrl { address: http.source_ip }, http.method, path)
            }
            (None, Some(_)) => {
                let multi_value = event.multi_value_headers.is_some();
                headers = event.multi_value_headers.map_or_else(|| single(event.headers), several);
                let parameters = event.multi_value_query_string_parameters;
                query = joined(parameters.map_or_else(|| single(event.query_string_parameters), several));
                let method = event.http_method.ok_or_else(|| missing("httpMethod"))?;
                (Source::LoadBalancer { multi_value }, method, event.path.ok_or_else(|| missing("path"))?)
            }
            (None, None) => return Err(missing("requestContext.http")),
        };
        let (cookies, body) = (event.cookies.unwrap_or_default(), event.body.unwrap_or_default());
        let is_base64 = event.is_base64_encoded;
        let event = HttpEvent { source, method, path, query, headers, cookies, body, is_base64 };
        Ok(Event::Http(Box::new(event)))
    }
}

fn single(pairs: Option<Pairs<String>>) -> Vec<(String, String)> {
    pairs.map(|pairs| pairs.0).unwrap_or_default()
}

fn several(pairs: Pairs<Vec<String>>) -> Vec<(String, String)> {
    let of_name =
        |(name, values): (String, Vec<String>)| values.into_iter().map(move |value| (name.clone(), value));
    pairs.0.into_iter().flat_map(of_name).collect()
}

/// Joins the parameters of a query, which a load balancer does not decode.
fn joined(parameters: Vec<(String, String)>) -> String {
    let parameters: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    parameters.join("&")
}

/// The members of a JSON object, in their order.
#[derive(Debug)]
struct Pairs<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Members(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_events_are_errors_that_name_the_supported_ones() {
        for (event, what) in [
            ("", "EOF"),
            ("[]", "invalid"),
            (r#"{"facetheory": "flush"}"#, "unknown variant"),
            ("{}", "`requestContext`"),
            (r#"{"requestContext": {}}"#, "`requestContext.http`"),
            (r#"{"requestContext": {"http": {"method": "GET", "sourceIp": "1.2.3.4"}}}"#, "`rawPath`"),
            (r#"{"requestContext": {"http": {"method": "GET"}}}"#, "sourceIp"),
            (r#"{"requestContext": {"elb": {}}}"#, "`httpMethod`"),
            (r#"{"requestContext": {"elb": {}}, "httpMethod": "GET"}"#, "`path`"),
            (r#"{"Records": [{"messageId": "1", "eventSource": "aws:s3"}]}"#, "`aws:s3`"),
            (r#"{"Records": [{"eventSource": "aws:sqs"}]}"#, "messageId"),
            (r#"{"requestContext": {"elb": {}}, "headers": {"a": 1}}"#, "invalid type"),
        ] {
            let error = Event::parse(event.as_bytes()).expect_err(event);
            assert!(error.contains(what) && error.contains("SQS"), "{event}: {error}");
        }
    }

    #[test]
    fn a_load_balancer_sends_repeated_headers_and_parameters_in_one_of_two_forms() {
        let parse = |event: &str| match Event::parse(event.as_bytes()) {
            Ok(Event::Http(event)) => *event,
            other => panic!("{other:?}"),
        };
        let one = parse(
            r#"{"requestContext": {"elb": {}}, "httpMethod": "GET", "path": "/a", "isBase64Encoded": false,
                "queryStringParameters": {"b": "%20", "a": ""}, "headers": {"z": "1", "a": "2"}, "body": ""}"#,
        );
        assert_eq!(
            (one.query.as_str(), one.source),
            ("b=%20&a=", Source::LoadBalancer { multi_value: false })
        );
        assert_eq!(one.headers, [("z".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
        let many = parse(
            r#"{"requestContext": {"elb": {}}, "httpMethod": "GET", "path": "/a",
                "multiValueQueryStringParameters": {"b": ["1", "2"]}, "multiValueHeaders": {"a": ["1", "2"]}}"#,
        );
        assert_eq!(
            (many.query.as_str(), many.source),
            ("b=1&b=2", Source::LoadBalancer { multi_value: true })
        );
        assert_eq!(many.headers, [("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
    }
}
