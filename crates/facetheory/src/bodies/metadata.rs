//! The object of a body: written once under a name of its own, with what is told of the body for readers that find
//! nothing in its row.

use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, PutMode, PutOptions, PutPayload};

use crate::protocol::generation::Content;
use crate::protocol::row::STATUSES;

const STATUS: &str = "facetheory-status";
const CONTENT_TYPE: &str = "facetheory-content-type";
const CONTENT_SECURITY_POLICY: &str = "facetheory-content-security-policy";

/// The header that is kept with an object, and not only in the row.
const POLICY_HEADER: &str = "content-security-policy";

/// S3 refuses objects with more metadata than this, counting names and values.
const MAX_METADATA_BYTES: usize = 2048;

/// How often a put is repeated that met a conflict, which S3 asks for.
const CONFLICTS: u32 = 6;
/// The pause before the first repetition; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// What became of a put that must not replace anything.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// The object is there, and it is ours.
    Done,
    /// The name is taken.
    Taken,
}

/// Puts an object where none is.
///
/// S3 answers 412 where the name is taken, and 409 where somebody else is at it and nothing was written: that one is to
/// be repeated. The store of objects reports both as "already exists", and only the first with a condition as its cause.
pub(crate) async fn create(
    objects: &dyn ObjectStore,
    path: &Path,
    bytes: &Bytes,
    attributes: &Attributes,
) -> object_store::Result<Created> {
    let mut pause = FIRST_PAUSE;
    let mut repetitions = 0;
    loop {
        let options =
            PutOptions { mode: PutMode::Create, attributes: attributes.clone(), ..PutOptions::default() };
        match objects.put_opts(path, PutPayload::from_bytes(bytes.clone()), options).await {
            Ok(_) => return Ok(Created::Done),
            Err(error @ object_store::Error::AlreadyExists { .. }) if is_conflict(&error) => {
                if repetitions == CONFLICTS {
                    return Err(error);
                }
            }
            Err(object_store::Error::AlreadyExists { .. }) => return Ok(Created::Taken),
            Err(error) => return Err(error),
        }
        repetitions += 1;
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

/// Whether the answer was 409, with which nothing is settled.
fn is_conflict(error: &object_store::Error) -> bool {
    let object_store::Error::AlreadyExists { source, .. } = error else { return false };
    !source.is::<object_store::Error>() && source.to_string().contains("409 Conflict")
}

/// What is told of a body with its object. What cannot be said in ASCII, or has no room, is left to the row.
pub(crate) fn describe(content: &Content) -> Attributes {
    let mut attributes = Attributes::new();
    let mut room = MAX_METADATA_BYTES;
    let mut tell = |name: &'static str, value: &str| {
        let size = name.len() + value.len();
        let fits = is_plain(value) && size <= room;
        if fits {
            room -= size;
            attributes.insert(Attribute::Metadata(name.into()), value.to_owned().into());
        }
        fits
    };
    tell(STATUS, &content.status.unwrap_or(200).to_string());
    let content_type = content.content_type.as_deref().filter(|text| tell(CONTENT_TYPE, text));
    if let Some(policy) = policy(content) {
        tell(CONTENT_SECURITY_POLICY, &policy);
    }
    if let Some(content_type) = content_type {
        attributes.insert(Attribute::ContentType, content_type.to_owned().into());
    }
    // An object is never written again, so whoever fetches it directly may keep it.
    attributes.insert(Attribute::CacheControl, "public, max-age=31536000, immutable".into());
    attributes
}

/// What an object tells of its body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) status: Option<u16>,
    pub(crate) content_type: Option<String>,
    pub(crate) content_security_policy: Option<String>,
}

impl Description {
    pub(crate) fn of(attributes: &Attributes) -> Self {
        let told = |name: &'static str| {
            let value = attributes.get(&Attribute::Metadata(name.into()))?;
            Some(value.as_ref().trim()).filter(|value| is_plain(value)).map(str::to_owned)
        };
        Description {
            status: told(STATUS)
                .and_then(|text| text.parse().ok())
                .filter(|status| STATUSES.contains(status)),
            content_type: told(CONTENT_TYPE),
            content_security_policy: told(CONTENT_SECURITY_POLICY),
        }
    }

    /// Fills in what a row does not tell, such as one that another language has written.
    pub(crate) fn complete(&self, content: &mut Content) {
        content.status = content.status.or(self.status);
        if content.content_type.is_none() {
            content.content_type.clone_from(&self.content_type);
        }
        if let (None, Some(told)) = (policy(content), &self.content_security_policy) {
            content.headers.push((POLICY_HEADER.to_owned(), told.clone()));
        }
    }
}

/// Several policies are one with commas, and all of them hold.
fn policy(content: &Content) -> Option<String> {
    let named = content.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(POLICY_HEADER));
    let values: Vec<&str> = named.map(|(_, value)| value.trim()).filter(|value| !value.is_empty()).collect();
    if values.is_empty() { None } else { Some(values.join(", ")) }
}

/// Metadata travels in headers: visible ASCII and spaces, and nothing that could begin another header.
fn is_plain(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_told_is_read_again() {
        let told = Description::of(&describe(&content("text/html", &["default-src 'self'", "img-src *"])));
        assert_eq!(told.status, Some(203));
        assert_eq!(told.content_type.as_deref(), Some("text/html"));
        assert_eq!(told.content_security_policy.as_deref(), Some("default-src 'self', img-src *"));
        let mut foreign = Content::default();
        told.complete(&mut foreign);
        assert_eq!((foreign.status, foreign.content_type.as_deref()), (Some(203), Some("text/html")));
        assert_eq!(foreign.headers, [(POLICY_HEADER.to_owned(), "default-src 'self', img-src *".to_owned())]);
    }

    #[test]
    fn a_row_outweighs_its_object() {
        let mut own = content("text/plain", &["default-src 'none'"]);
        let before = own.clone();
        Description::of(&describe(&content("text/html", &["img-src *"]))).complete(&mut own);
        assert_eq!(own, before);
    }

    #[test]
    fn what_no_header_can_carry_is_left_out() {
        let long = format!("default-src {}", "x".repeat(MAX_METADATA_BYTES));
        for hostile in ["default-src é", "a\r\nx-amz-acl: public-read", "a\nb", "\0", "", long.as_str()] {
            let attributes = describe(&content(hostile, &[hostile]));
            let told = Description::of(&attributes);
            assert_eq!((told.content_type, told.content_security_policy), (None, None), "{hostile:?}");
            assert_eq!(told.status, Some(203), "the rest is told");
            let values = attributes.iter().map(|(_, value)| value.as_ref());
            assert!(values.into_iter().all(is_plain), "{hostile:?}");
        }
    }

    #[test]
    fn a_status_that_is_none_is_not_believed() {
        for text in ["0", "99", "600", "-1", "200.5", "OK", ""] {
            let mut attributes = Attributes::new();
            attributes.insert(Attribute::Metadata(STATUS.into()), text.to_owned().into());
            assert_eq!(Description::of(&attributes).status, None, "{text:?}");
        }
    }
}
