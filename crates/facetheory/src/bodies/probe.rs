//! Tests whether an object store has the features that bodies need. `facetheory table check` runs these tests; a gateway
//! that starts does not.

use std::fmt;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attribute, GetResult, ObjectStoreExt as _};
use tabletheory::Random;

use super::create::{Created, create};
use super::s3_key::uuid;
use super::{Bodies, Body, object_path, unavailable};
use crate::error::Result;
use crate::protocol::generation::Content;

/// The result of testing an object store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// use facetheory::Bodies;
/// use tabletheory::SystemRandom;
///
/// let probe = Bodies::memory().probe(&SystemRandom).await?;
/// assert!(probe.failures.is_empty());
/// assert_eq!(probe.to_string(), "the object storage has every feature that is needed");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// The features that it lacks.
    pub failures: Vec<ProbeFailure>,
}

/// A feature that an object store lacks. Its text says what that means.
///
/// ```
/// assert!(facetheory::ProbeFailure::Unreadable.is_fatal());
/// assert!(!facetheory::ProbeFailure::NoMetadata.is_fatal());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeFailure {
    /// An object that was just put does not exist, or has other bytes.
    Unreadable,
    /// A conditional put overwrites an object that exists.
    Overwrites,
    /// Metadata is not returned.
    NoMetadata,
    /// The content type is not returned.
    NoContentType,
    /// An object that exists is not listed; with the error, if there was one.
    NoList(Option<String>),
    /// An object that was deleted still exists; with the error, if there was one.
    NoDelete(Option<String>),
}

impl ProbeFailure {
    /// Whether pages cannot be served from this store at all.
    ///
    /// ```
    /// assert!(!facetheory::ProbeFailure::Overwrites.is_fatal());
    /// ```
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self, ProbeFailure::Unreadable)
    }
}

impl Bodies {
    /// Tests the features that bodies need, with an object that it creates and deletes, and returns those that are missing.
    ///
    /// An error means that nothing can be stored: the store is unreachable, or denies access.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use facetheory::{Bodies, ProbeFailure};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let probe = Bodies::files(directory.path())?.probe(&tabletheory::SystemRandom).await?;
    /// // Files have no metadata; the rows have it instead.
    /// assert_eq!(probe.failures, [ProbeFailure::NoMetadata, ProbeFailure::NoContentType]);
    /// # Ok(()) }
    /// ```
    pub async fn probe(&self, random: &dyn Random) -> Result<Probe> {
        const FIRST: Bytes = Bytes::from_static(b"FaceTheory tests the object storage with this object.\n");
        const SECOND: Bytes = Bytes::from_static(b"This must not overwrite the first object.\n");
        let directory = format!("{}probe", self.prefix);
        let path = object_path(&format!("{directory}/{}.txt", uuid(random)))?;
        let content = Content {
            status: Some(203),
            content_type: Some("text/plain; charset=utf-8".into()),
            headers: vec![("content-security-policy".into(), "default-src 'none'".into())],
            ..Content::default()
        };
        let objects = &*self.objects;
        let attributes = self.attributes(&content);
        let impossible = |cause| unavailable("a test object cannot be stored", cause);
        create(objects, &path, &FIRST, &attributes).await.map_err(impossible)?;

        let mut failures = Vec::new();
        // An error is fine as well: nothing was overwritten.
        if let Ok(Created::Done) = create(objects, &path, &SECOND, &attributes).await {
            failures.push(ProbeFailure::Overwrites);
        }
        match objects.get(&path).await {
            Err(_) => failures.push(ProbeFailure::Unreadable),
            Ok(found) => failures.extend(failures_of_get(found, &content, [&FIRST, &SECOND]).await),
        }
        match objects.list_with_delimiter(Some(&Path::from(directory))).await {
            Err(cause) => failures.push(ProbeFailure::NoList(Some(cause.to_string()))),
            Ok(list) if list.objects.iter().any(|object| object.location == path) => {}
            Ok(_) => failures.push(ProbeFailure::NoList(None)),
        }
        match objects.delete(&path).await {
            Err(cause) => failures.push(ProbeFailure::NoDelete(Some(cause.to_string()))),
            Ok(()) if objects.head(&path).await.is_ok() => failures.push(ProbeFailure::NoDelete(None)),
            Ok(()) => {}
        }
        Ok(Probe { failures })
    }
}

async fn failures_of_get(found: GetResult, content: &Content, written: [&Bytes; 2]) -> Vec<ProbeFailure> {
    let mut failures = Vec::new();
    let mut read = Content::default();
    Body::with_metadata(Bytes::new(), &found.attributes).complete(&mut read);
    if read != *content {
        failures.push(ProbeFailure::NoMetadata);
    }
    let content_type = found.attributes.get(&Attribute::ContentType).map(|value| value.as_ref().to_owned());
    if content_type != content.content_type {
        failures.push(ProbeFailure::NoContentType);
    }
    // The bytes of the second put are reported as `Overwrites`.
    match found.bytes().await {
        Ok(bytes) if written.contains(&&bytes) => {}
        _ => failures.push(ProbeFailure::Unreadable),
    }
    failures
}

impl fmt::Display for ProbeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (problem, effect) = match self {
            ProbeFailure::Unreadable => {
                ("an object that was just stored cannot be read", "the body of every page would be missing")
            }
            ProbeFailure::Overwrites => (
                "a conditional put overwrites an object that exists (the store ignores If-None-Match)",
                "only their random keys protect bodies from being overwritten",
            ),
            ProbeFailure::NoMetadata => (
                "metadata is not returned",
                "a page whose row another language has written is served without its status, content type and \
                 security policy",
            ),
            ProbeFailure::NoContentType => {
                ("the content type is not returned", "clients that fetch objects directly have to guess it")
            }
            ProbeFailure::NoList(_) => {
                ("an object that exists is not listed", "garbage collection cannot find orphaned bodies")
            }
            ProbeFailure::NoDelete(_) => (
                "an object that was deleted still exists",
                "garbage collection cannot delete bodies, and this test leaves an object behind",
            ),
        };
        let reason = match self {
            ProbeFailure::NoList(reason) | ProbeFailure::NoDelete(reason) => reason.as_deref(),
            _ => None,
        };
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        write!(f, "{problem}{reason}: {effect}")
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.failures.is_empty() {
            return f.write_str("the object storage has every feature that is needed");
        }
        let lines: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}
