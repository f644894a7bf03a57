//! Reads the lifecycle rules of a bucket, and finds those that could delete a body which a row still names.

use std::fmt;

use futures_util::TryStreamExt as _;
use http::{Method, StatusCode};
use object_store::ClientOptions;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{
    HttpConnector as _, HttpError, HttpRequest, HttpRequestBody, HttpResponseBody, ReqwestConnector,
};
use serde::Deserialize;

use super::open::{normalized_prefix, s3_address};
use super::{Bodies, s3, unavailable};
use crate::error::{Error, Kind, Result};

/// The longest response that is read. A bucket has at most 1,000 rules.
const MAX_BYTES: usize = 4 << 20;
/// Storage classes from which objects cannot be read before they are restored.
const ARCHIVES: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];

/// A lifecycle rule of a bucket that is not safe for bodies.
///
/// ```no_run
/// # async fn f() -> facetheory::Result<()> {
/// for rule in facetheory::Bodies::unsafe_lifecycle_rules("s3://my-bucket/isr").await? {
///     println!("{rule}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsafeLifecycleRule {
    /// The id of the rule.
    pub id: String,
    /// Whether it deletes objects; otherwise it archives them, which makes them unreadable.
    pub deletes: bool,
}

impl fmt::Display for UnsafeLifecycleRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = if self.deletes { "deletes" } else { "archives" };
        write!(
            f,
            "the lifecycle rule `{}` of the bucket {effect} bodies by their age, although a page may still use them; \
             remove it or restrict it to another prefix, and let gc delete unused bodies",
            self.id
        )
    }
}

impl Bodies {
    /// Returns the lifecycle rules of the bucket at this address, `s3://BUCKET/PREFIX`, that could delete or archive a body
    /// under the prefix. Rules that only abort multipart uploads or delete old object versions are safe.
    ///
    /// It needs the permission `s3:GetLifecycleConfiguration`.
    ///
    /// ```no_run
    /// # async fn f() -> facetheory::Result<()> {
    /// assert_eq!(facetheory::Bodies::unsafe_lifecycle_rules("s3://my-bucket/isr").await?, []);
    /// # Ok(()) }
    /// ```
    pub async fn unsafe_lifecycle_rules(address: &str) -> Result<Vec<UnsafeLifecycleRule>> {
        let Some((bucket, prefix)) = s3_address(address) else {
            return Err(Error::invalid(format!(
                "`{address}` is not the address of a bucket; write s3://BUCKET/PREFIX"
            )));
        };
        let prefix = normalized_prefix(prefix)?;
        let Some(xml) = read(bucket).await? else { return Ok(Vec::new()) };
        unsafe_rules(&xml, &prefix).map_err(|cause| {
            Error::new(Kind::Unavailable, "the lifecycle rules of the bucket cannot be parsed")
                .caused_by(cause)
        })
    }
}

/// Reads the lifecycle configuration; `None` if the bucket has none. `object_store` has no operation for it.
async fn read(bucket: &str) -> Result<Option<String>> {
    let config = s3::environment().await;
    let region = config.region().map(ToString::to_string).unwrap_or_default();
    let endpoint = match config.endpoint_url() {
        Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
        None => format!("https://s3.{region}.amazonaws.com"),
    };
    let credential: std::sync::Arc<AwsCredential> = s3::open(&config, bucket)?
        .credentials()
        .get_credential()
        .await
        .map_err(|cause| unavailable("there are no AWS credentials for the bucket", cause))?;
    let unreadable = || format!("the lifecycle rules of the bucket {bucket} cannot be read");
    let failed = |cause: HttpError| Error::new(Kind::Unavailable, unreadable()).caused_by(cause);

    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = format!("{endpoint}/{bucket}?lifecycle")
        .parse()
        .map_err(|cause: http::uri::InvalidUri| Error::invalid(unreadable()).caused_by(cause))?;
    AwsAuthorizer::new(&credential, "s3", &region)
        .try_authorize(&mut request, None)
        .map_err(|cause| unavailable("the request for lifecycle rules cannot be signed", cause))?;
    let options = ClientOptions::new().with_allow_http(true);
    let client = ReqwestConnector::default()
        .connect(&options)
        .map_err(|cause| unavailable("the bucket cannot be reached", cause))?;
    let response = client.execute(request).await.map_err(failed)?;
    let status = response.status();
    let text = text(response.into_body()).await.map_err(failed)?;
    match status {
        StatusCode::OK => Ok(Some(text)),
        StatusCode::NOT_FOUND if text.contains("NoSuchLifecycleConfiguration") => Ok(None),
        StatusCode::FORBIDDEN => Err(Error::invalid(format!(
            "{}: access is denied; grant s3:GetLifecycleConfiguration to the identity that checks it",
            unreadable()
        ))),
        status => Err(Error::new(Kind::Unavailable, format!("{}: the response is {status}", unreadable()))),
    }
}

async fn text(body: HttpResponseBody) -> Result<String, HttpError> {
    let mut stream = body.bytes_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.try_next().await? {
        bytes.extend_from_slice(&chunk[..chunk.len().min(MAX_BYTES - bytes.len())]);
        if bytes.len() == MAX_BYTES {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The lifecycle configuration of a bucket, as far as it matters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Configuration {
    #[serde(default, rename = "Rule")]
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Rule {
    #[serde(rename = "ID")]
    id: Option<String>,
    status: String,
    /// The form before there were filters.
    prefix: Option<String>,
    filter: Option<Filter>,
    expiration: Option<Expiration>,
    #[serde(default, rename = "Transition")]
    transitions: Vec<Transition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Filter {
    prefix: Option<String>,
    tag: Option<Empty>,
    and: Option<And>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct And {
    prefix: Option<String>,
    #[serde(default, rename = "Tag")]
    tags: Vec<Empty>,
}

#[derive(Debug, Deserialize)]
struct Empty {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Expiration {
    days: Option<String>,
    date: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Transition {
    storage_class: Option<String>,
}

impl Rule {
    /// Whether it applies to an object whose key begins with this prefix. Bodies have no tags.
    fn applies_below(&self, bodies: &str) -> bool {
        let filter = self.filter.as_ref();
        let and = filter.and_then(|filter| filter.and.as_ref());
        let is_for_tags =
            filter.is_some_and(|filter| filter.tag.is_some()) || and.is_some_and(|and| !and.tags.is_empty());
        let prefix = and
            .and_then(|and| and.prefix.as_deref())
            .or_else(|| filter.and_then(|filter| filter.prefix.as_deref()))
            .or(self.prefix.as_deref())
            .unwrap_or_default();
        self.status == "Enabled" && !is_for_tags && (bodies.starts_with(prefix) || prefix.starts_with(bodies))
    }
}

/// Returns the rules that could delete or archive an object under the prefix.
fn unsafe_rules(xml: &str, prefix: &str) -> Result<Vec<UnsafeLifecycleRule>, quick_xml::DeError> {
    let configuration: Configuration = quick_xml::de::from_str(xml)?;
    let found =
        configuration.rules.into_iter().filter(|rule| rule.applies_below(prefix)).filter_map(|rule| {
            // An expiration without a time only removes delete markers.
            let deletes = rule.expiration.is_some_and(|when| when.days.is_some() || when.date.is_some());
            let is_archive = |class: &str| ARCHIVES.contains(&class);
            let archives =
                rule.transitions.iter().any(|to| to.storage_class.as_deref().is_some_and(is_archive));
            let id = rule.id.unwrap_or_else(|| "(without an id)".to_owned());
            (deletes || archives).then_some(UnsafeLifecycleRule { id, deletes })
        });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(rules: &str, prefix: &str) -> Vec<(String, bool)> {
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <LifecycleConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{rules}</LifecycleConfiguration>"
        );
        let rules = unsafe_rules(&xml, prefix).expect("valid XML");
        rules.into_iter().map(|rule| (rule.id, rule.deletes)).collect()
    }

    fn rule(id: &str, body: &str) -> String {
        format!("<Rule><ID>{id}</ID><Status>Enabled</Status>{body}</Rule>")
    }

    #[test]
    fn a_rule_that_expires_bodies_is_found() {
        let expires = "<Expiration><Days>30</Days></Expiration>";
        for filter in [
            "",
            "<Filter/>",
            "<Filter><Prefix></Prefix></Filter>",
            "<Filter><Prefix>isr/</Prefix></Filter>",
            "<Filter><Prefix>isr/ab</Prefix></Filter>",
            "<Filter><Prefix>i</Prefix></Filter>",
            "<Prefix>isr</Prefix>",
            "<Filter><And><Prefix>isr/</Prefix><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></And></Filter>",
            "<Filter><ObjectSizeLessThan>500</ObjectSizeLessThan></Filter>",
        ] {
            let found = ids(&rule("old", &format!("{filter}{expires}")), "isr/");
            assert_eq!(found, [("old".to_owned(), true)], "{filter}");
        }
        let dated = rule("dated", "<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>");
        assert_eq!(ids(&dated, ""), [("dated".to_owned(), true)]);
    }

    #[test]
    fn an_archive_is_found_because_its_objects_cannot_be_read() {
        let to = |class: &str| {
            rule(
                "cold",
                &format!(
                    "<Filter/><Transition><Days>1</Days><StorageClass>{class}</StorageClass></Transition>"
                ),
            )
        };
        assert_eq!(ids(&to("DEEP_ARCHIVE"), "isr/"), [("cold".to_owned(), false)]);
        assert_eq!(ids(&to("STANDARD_IA"), "isr/"), []);
    }

    #[test]
    fn rules_that_cannot_delete_a_body_are_safe() {
        let expires = "<Expiration><Days>30</Days></Expiration>";
        let safe = [
            rule("other", &format!("<Filter><Prefix>logs/</Prefix></Filter>{expires}")),
            rule("tag", &format!("<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>{expires}")),
            rule(
                "tags",
                &format!(
                    "<Filter><And><Prefix>isr/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And></Filter>{expires}"
                ),
            ),
            rule(
                "uploads",
                "<Filter/><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
            ),
            rule(
                "versions",
                "<Filter/><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>",
            ),
            rule(
                "markers",
                "<Filter/><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
            ),
            format!("<Rule><ID>off</ID><Status>Disabled</Status><Filter/>{expires}</Rule>"),
        ];
        assert_eq!(ids(&safe.concat(), "isr/"), []);
    }

    #[test]
    fn text_that_is_not_a_configuration_is_an_error() {
        assert!(unsafe_rules("<html>", "isr/").is_err());
    }
}
