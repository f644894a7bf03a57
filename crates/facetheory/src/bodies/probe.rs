//! What a store of bodies cannot do, found out once at start-up instead of in the middle of a night.

use std::fmt;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attribute, GetResult, ObjectStoreExt as _};
use tabletheory::Random;

use crate::bodies::metadata::{self, Created, Description};
use crate::bodies::{Bodies, unavailable, uuid};
use crate::error::Result;
use crate::protocol::generation::Content;

/// What was found out about a store of bodies.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// use facetheory::Bodies;
/// use tabletheory::SystemRandom;
///
/// let probe = Bodies::memory().probe(&SystemRandom).await?;
/// assert!(probe.failures.is_empty());
/// assert_eq!(probe.to_string(), "the store of bodies does everything that is needed");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// What it does not do.
    pub failures: Vec<ProbeFailure>,
}

/// Something that a store of bodies does not do. Its text says what that means.
///
/// ```
/// assert!(facetheory::ProbeFailure::Unreadable.is_fatal());
/// assert!(!facetheory::ProbeFailure::NoMetadata.is_fatal());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeFailure {
    /// What was just put is not there, or is something else.
    Unreadable,
    /// A second put of one name replaces the first, although it must not.
    Overwrites,
    /// Metadata does not come back.
    NoMetadata,
    /// The content type does not come back.
    NoContentType,
    /// What is there is not listed; with the reason, where there is one.
    NoList(Option<String>),
    /// What was deleted is still there; with the reason, where there is one.
    NoDelete(Option<String>),
}

impl ProbeFailure {
    /// Whether pages cannot be served from such a store at all.
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
    /// Tries out what bodies need, with an object of its own that it deletes again, and says what does not work.
    ///
    /// An error means that nothing can be stored there at all: it is unreachable, or denies it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use facetheory::{Bodies, ProbeFailure};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let probe = Bodies::files(directory.path())?.probe(&tabletheory::SystemRandom).await?;
    /// // Files have no place for them; rows tell them instead.
    /// assert_eq!(probe.failures, [ProbeFailure::NoMetadata, ProbeFailure::NoContentType]);
    /// # Ok(()) }
    /// ```
    pub async fn probe(&self, random: &dyn Random) -> Result<Probe> {
        const FIRST: Bytes = Bytes::from_static(b"What a store of bodies can do is tried out with this.\n");
        const SECOND: Bytes = Bytes::from_static(b"This must not replace the first.\n");
        let directory = format!("{}probe", self.prefix());
        let path = self.name(&format!("{directory}/{}.txt", uuid(random)))?;
        let content = Content {
            status: Some(203),
            content_type: Some("text/plain; charset=utf-8".into()),
            headers: vec![("content-security-policy".into(), "default-src 'none'".into())],
            ..Content::default()
        };
        let objects = self.objects();
        let attributes = self.describe(&content);
        let impossible = |cause| unavailable("nothing can be stored", cause);
        metadata::create(objects, &path, &FIRST, &attributes).await.map_err(impossible)?;

        let mut failures = Vec::new();
        // A store that answers with an error has not replaced anything either, which is what counts.
        if let Ok(Created::Done) = metadata::create(objects, &path, &SECOND, &attributes).await {
            failures.push(ProbeFailure::Overwrites);
        }
        match objects.get(&path).await {
            Err(_) => failures.push(ProbeFailure::Unreadable),
            Ok(found) => failures.extend(of_what_came_back(found, &content, [&FIRST, &SECOND]).await),
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

async fn of_what_came_back(found: GetResult, content: &Content, written: [&Bytes; 2]) -> Vec<ProbeFailure> {
    let mut failures = Vec::new();
    let mut told = Content::default();
    Description::of(&found.attributes).complete(&mut told);
    if told != *content {
        failures.push(ProbeFailure::NoMetadata);
    }
    let content_type = found.attributes.get(&Attribute::ContentType).map(|value| value.as_ref().to_owned());
    if content_type != content.content_type {
        failures.push(ProbeFailure::NoContentType);
    }
    // That the second has replaced the first is said already.
    match found.bytes().await {
        Ok(bytes) if written.contains(&&bytes) => {}
        _ => failures.push(ProbeFailure::Unreadable),
    }
    failures
}

impl fmt::Display for ProbeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = |f: &mut fmt::Formatter<'_>, reason: &Option<String>| match reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        };
        match self {
            ProbeFailure::Unreadable => f.write_str(
                "what was just stored cannot be read back: every page would look as if its body were missing",
            ),
            ProbeFailure::Overwrites => f.write_str(
                "a put that must not replace anything replaces what is there (the store ignores If-None-Match): \
                 that no body is ever rewritten then rests on their random names alone",
            ),
            ProbeFailure::NoMetadata => f.write_str(
                "metadata does not come back: a page whose row another language has written is served without its \
                 status, content type and security policy",
            ),
            ProbeFailure::NoContentType => f.write_str(
                "the content type does not come back: whoever fetches objects past this program has to guess it",
            ),
            ProbeFailure::NoList(reason) => {
                f.write_str("what is stored is not listed")?;
                because(f, reason)?;
                f.write_str(": bodies that no row names cannot be found and collected")
            }
            ProbeFailure::NoDelete(reason) => {
                f.write_str("what is deleted stays")?;
                because(f, reason)?;
                f.write_str(": bodies that are no longer needed pile up, and the probe leaves one behind too")
            }
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.failures.is_empty() {
            return f.write_str("the store of bodies does everything that is needed");
        }
        let lines: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}
