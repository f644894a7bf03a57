//! The metadata of the object of a body, for readers whose row lacks it.

use bytes::Bytes;
use object_store::{Attribute, Attributes};

use super::Body;
use crate::protocol::{Content, row::codec::STATUSES};

const STATUS: &str = "facetheory-status";
const CONTENT_TYPE: &str = "facetheory-content-type";
const CONTENT_SECURITY_POLICY: &str = "facetheory-content-security-policy";

/// The header that is stored in the metadata of the object, and not only in the row.
const POLICY_HEADER: &str = "content-security-policy";

/// S3 rejects objects with more metadata, counted over names and values.
const MAX_METADATA_BYTES: usize = 2048;

/// The attributes of the object of a body. A value that is not ASCII or does not fit is stored only in the row.
pub(super) fn attributes(content: &Content) -> Attributes {
    let mut attributes = Attributes::new();
    let mut room = MAX_METADATA_BYTES;
    let mut add = |name: &'static str, value: &str| {
        let size = name.len() + value.len();
        let fits = is_plain(value) && size <= room;
        if fits {
            room -= size;
            attributes.insert(Attribute::Metadata(name.into()), value.to_owned().into());
        }
        fits
    };
    add(STATUS, &content.status.unwrap_or(200).to_string());
    let content_type = content.content_type.as_deref().filter(|text| add(CONTENT_TYPE, text));
    if let Some(policy) = policy(content) {
        add(CONTENT_SECURITY_POLICY, &policy);
    }
    if let Some(content_type) = content_type {
        attributes.insert(Attribute::ContentType, content_type.to_owned().into());
    }
    // An object is never overwritten, so a client that fetches it directly may cache it.
    attributes.insert(Attribute::CacheControl, "public, max-age=31536000, immutable".into());
    attributes
}

impl Body {
    /// A body with the metadata of its object.
    pub(super) fn with_metadata(bytes: Bytes, attributes: &Attributes) -> Self {
        let text = |name: &'static str| {
            let value = attributes.get(&Attribute::Metadata(name.into()))?;
            Some(value.as_ref().trim()).filter(|value| is_plain(value)).map(str::to_owned)
        };
        let status = text(STATUS).and_then(|text| text.parse().ok());
        Body {
            bytes,
            status: status.filter(|status| STATUSES.contains(status)),
            content_type: text(CONTENT_TYPE),
            content_security_policy: text(CONTENT_SECURITY_POLICY),
        }
    }

    /// Fills in what a row lacks, for example one that another language has written.
    pub(crate) fn complete(&self, content: &mut Content) {
        content.status = content.status.or(self.status);
        if content.content_type.is_none() {
            content.content_type.clone_from(&self.content_type);
        }
        if let (None, Some(policy)) = (policy(content), &self.content_security_policy) {
            content.headers.push((POLICY_HEADER.to_owned(), policy.clone()));
        }
    }
}

/// The policy in the headers. Several policies are joined by commas: all of them apply.
fn policy(content: &Content) -> Option<String> {
    let named = content.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(POLICY_HEADER));
    let values: Vec<&str> = named.map(|(_, value)| value.trim()).filter(|value| !value.is_empty()).collect();
    if values.is_empty() { None } else { Some(values.join(", ")) }
}

/// Whether a value may be sent in a header: printable ASCII, and nothing that could start another header.
fn is_plain(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(attributes: &Attributes) -> Body {
        Body::with_metadata(Bytes::new(), attributes)
    }

    fn content(content_type: &str, policies: &[&str]) -> Content {
        let headers = policies.iter().map(|policy| ("Content-Security-Policy".into(), (*policy).into()));
        Content {
            status: Some(203),
            content_type: Some(content_type.into()),
            headers: headers.collect(),
            ..Content::default()
        }
    }

    #[test]
    fn metadata_is_read_back_as_it_was_written() {
        let metadata = read(&attributes(&content("text/html", &["default-src 'self'", "img-src *"])));
        assert_eq!(metadata.status, Some(203));
        assert_eq!(metadata.content_type.as_deref(), Some("text/html"));
        assert_eq!(metadata.content_security_policy.as_deref(), Some("default-src 'self', img-src *"));
        let mut foreign = Content::default();
        metadata.complete(&mut foreign);
        assert_eq!((foreign.status, foreign.content_type.as_deref()), (Some(203), Some("text/html")));
        assert_eq!(foreign.headers, [(POLICY_HEADER.to_owned(), "default-src 'self', img-src *".to_owned())]);
    }

    #[test]
    fn a_row_takes_precedence_over_its_object() {
        let mut own = content("text/plain", &["default-src 'none'"]);
        let before = own.clone();
        read(&attributes(&content("text/html", &["img-src *"]))).complete(&mut own);
        assert_eq!(own, before);
    }

    #[test]
    fn values_that_no_header_can_carry_are_omitted() {
        let long = format!("default-src {}", "x".repeat(MAX_METADATA_BYTES));
        for hostile in ["default-src é", "a\r\nx-amz-acl: public-read", "a\nb", "\0", "", long.as_str()] {
            let attributes = attributes(&content(hostile, &[hostile]));
            let metadata = read(&attributes);
            assert_eq!(
                (metadata.content_type, metadata.content_security_policy),
                (None, None),
                "{hostile:?}"
            );
            assert_eq!(metadata.status, Some(203), "the rest is stored");
            let values = attributes.iter().map(|(_, value)| value.as_ref());
            assert!(values.into_iter().all(is_plain), "{hostile:?}");
        }
    }

    #[test]
    fn an_invalid_status_is_ignored() {
        for text in ["0", "99", "600", "-1", "200.5", "OK", ""] {
            let mut attributes = Attributes::new();
            attributes.insert(Attribute::Metadata(STATUS.into()), text.to_owned().into());
            assert_eq!(read(&attributes).status, None, "{text:?}");
        }
    }
}
