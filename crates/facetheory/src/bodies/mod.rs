//! Bodies: the rendered bytes, in objects that are written once and never overwritten.

mod create;
#[cfg(feature = "sqlite")]
mod embedded;
#[cfg(feature = "s3")]
pub(crate) mod lifecycle;
mod metadata;
mod open;
pub(crate) mod pointer;
pub(crate) mod probe;
#[cfg(feature = "s3")]
mod s3;
pub(crate) mod s3_key;
mod staging;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attributes, GetResult, ObjectStore, ObjectStoreExt as _};
use tabletheory::{FileUsage, Random, Timestamp};

use self::create::{Created, create};
use self::pointer::Pointers;
use self::s3_key::{S3Key, new_s3_key};
use crate::error::{Error, Result};
use crate::protocol::{Content, PageKey, digest::sha256_hex};

/// How many S3 keys are tried for a body. Keys are random, so it is unlikely that even the first is taken.
const MAX_KEYS: u32 = 3;

/// The storage of bodies: in memory, in files, or in S3 (feature `s3`).
///
/// ```
/// use facetheory::protocol::Content;
/// use facetheory::{Bodies, PageKey};
/// use tabletheory::{SystemRandom, Timestamp};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// let bodies = Bodies::memory();
/// let page = PageKey::new("/")?;
/// let now = Timestamp::from_seconds(1_700_000_000);
/// let stored = bodies.put(&page, now, "<h1>hello</h1>".into(), &Content::default(), &SystemRandom).await?;
/// let body = bodies.get(&stored.s3_key, Some(&stored.digest)).await?.expect("it was just put");
/// assert_eq!(body.bytes, "<h1>hello</h1>");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Bodies {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// The prefix of S3 keys.
    pub(crate) prefix: String,
    /// The start of an S3 key with its bucket, `s3://bucket/`, as rows of other languages may have it.
    root: Option<String>,
    /// The form of S3 keys in rows.
    pointers: Pointers,
    /// Whether objects can have a content type and metadata.
    has_metadata: bool,
    /// Whether objects are listed in the order of their keys, so that a listing can be resumed.
    pub(crate) lists_in_order: bool,
    /// The length of the longest body that is read; 0 means unlimited.
    max_bytes: Arc<AtomicU64>,
    /// The directory of files, if bodies are files.
    directory: Option<Arc<std::path::Path>>,
    /// The embedded object store, if this is one.
    #[cfg(feature = "sqlite")]
    embedded: Option<Arc<embedded::EmbeddedObjects>>,
}

/// The result of reading a body whose length had to be admitted.
#[derive(Debug)]
pub(crate) enum ReadBody<P> {
    /// The body, and the permit to read it.
    Found(Body, P),
    /// There is none, or it is damaged.
    Missing,
    /// Its length was not admitted.
    Refused,
}

/// A body that was stored by [`Bodies::put`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredBody {
    /// The S3 key, in the form of [`Pointers`].
    pub s3_key: String,
    /// `sha256:` and the hexadecimal digest.
    pub digest: String,
}

/// A body to be stored.
#[derive(Debug)]
pub(crate) struct NewBody<'a> {
    pub(crate) page: &'a PageKey,
    /// When its render began.
    pub(crate) generated_at: Timestamp,
    pub(crate) bytes: Bytes,
    pub(crate) content: &'a Content,
}

/// A body that was read, with the metadata of its object.
///
/// ```
/// let body = facetheory::Body::default();
/// assert!(body.bytes.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Body {
    /// The bytes.
    pub bytes: Bytes,
    /// The HTTP status in the metadata, for rows that have none.
    pub status: Option<u16>,
    /// The content type in the metadata, for rows that have none.
    pub content_type: Option<String>,
    /// The content security policy in the metadata, for rows that have none.
    pub content_security_policy: Option<String>,
}

impl<B: Into<Bytes>> From<B> for Body {
    /// A body without metadata.
    fn from(bytes: B) -> Self {
        Body { bytes: bytes.into(), ..Body::default() }
    }
}

impl Bodies {
    setters! {
        /// Sets the form of S3 keys in rows. All forms are read.
        ///
        /// ```
        /// # use facetheory::protocol::Content;
        /// # use facetheory::{Bodies, PageKey, Pointers};
        /// # use tabletheory::{SystemRandom, Timestamp};
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
        /// let bodies = Bodies::memory().with_pointers(Pointers::Relative);
        /// let (page, now) = (PageKey::new("/")?, Timestamp::from_millis(1_700_000_000_123));
        /// let stored = bodies.put(&page, now, "x".into(), &Content::default(), &SystemRandom).await?;
        /// assert!(stored.s3_key.starts_with("8a5edab282632443219e051e/1700000000123-"));
        /// assert!(bodies.get(&format!("isr/{}", stored.s3_key), None).await?.is_some());
        /// # Ok(()) }
        /// ```
        pub fn with_pointers(pointers: Pointers);
    }

    /// Stores a body under a new S3 key, which no other body ever has.
    ///
    /// ```
    /// # use facetheory::protocol::Content;
    /// # use facetheory::{Bodies, PageKey};
    /// # use tabletheory::{SystemRandom, Timestamp};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let page = PageKey::new("/")?;
    /// let now = Timestamp::from_millis(1_700_000_000_123);
    /// let stored = Bodies::memory().put(&page, now, "x".into(), &Content::default(), &SystemRandom).await?;
    /// assert!(stored.s3_key.starts_with("isr/8a5edab282632443219e051e/1700000000123-"));
    /// assert!(stored.s3_key.ends_with(".html"));
    /// # Ok(()) }
    /// ```
    pub async fn put(
        &self,
        page: &PageKey,
        generated_at: Timestamp,
        bytes: Bytes,
        content: &Content,
        random: &dyn Random,
    ) -> Result<StoredBody> {
        let digest = digest(&bytes);
        let s3_key = self.store(NewBody { page, generated_at, bytes, content }, random).await?;
        Ok(StoredBody { s3_key, digest })
    }

    /// Like [`put`](Self::put), for a caller that knows the digest. Returns the S3 key.
    pub(crate) async fn store(&self, body: NewBody<'_>, random: &dyn Random) -> Result<String> {
        let NewBody { page, generated_at, bytes, content } = body;
        let attributes = self.attributes(content);
        for _ in 0..MAX_KEYS {
            let content_type = content.content_type.as_deref();
            let key = new_s3_key(&self.prefix, page, generated_at, content_type, random);
            let created = create(&*self.objects, &object_path(&key)?, &bytes, &attributes).await;
            match created.map_err(|cause| unavailable("a body cannot be stored", cause))? {
                Created::Done => return Ok(self.pointers.to_object(&key, &self.prefix)),
                // Perhaps by our own request, whose response was lost. Another key is always right.
                Created::Taken => {}
            }
        }
        Err(Error::bodies_unavailable("all S3 keys that were tried for a body are taken; try again"))
    }

    /// Reads a body. Returns `None` if it does not exist, or is damaged: it does not have this digest, or not the checksum
    /// that the embedded store has of each small body, in place of which no digest is computed.
    ///
    /// The S3 key may have the prefix or not, or the form `s3://bucket/key`, as rows of other services have it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// assert_eq!(facetheory::Bodies::memory().get("isr/0/1-a.html", None).await?, None);
    /// # Ok(()) }
    /// ```
    pub async fn get(&self, s3_key: &str, digest: Option<&str>) -> Result<Option<Body>> {
        Ok(match self.get_admitted(s3_key, digest, async |_| Some(())).await? {
            ReadBody::Found(body, ()) => Some(body),
            ReadBody::Missing | ReadBody::Refused => None,
        })
    }

    /// Like [`get`](Self::get), but reads a body only if `admit` returns a permit for its length.
    pub(crate) async fn get_admitted<P, F>(
        &self,
        s3_key: &str,
        digest: Option<&str>,
        admit: impl Fn(u64) -> F,
    ) -> Result<ReadBody<P>>
    where
        F: Future<Output = Option<P>>,
    {
        if let Some(bytes) = self.read_at_once(s3_key) {
            let Some(permit) = admit(bytes.len() as u64).await else { return Ok(ReadBody::Refused) };
            return Ok(ReadBody::Found(bytes.into(), permit));
        }
        let paths = self.paths(s3_key);
        if paths.is_empty() {
            tabletheory::warn_limited!(s3_key, "a row has an S3 key that is not valid in this store");
        }
        let unreadable = |cause| unavailable("a body cannot be read", cause);
        for path in &paths {
            let found = match self.objects.get(path).await {
                Ok(found) => found,
                Err(object_store::Error::NotFound { .. }) => continue,
                // A service that may use only its prefix is told nothing about other keys, not even that they do not exist.
                Err(object_store::Error::PermissionDenied { .. }) if !self.is_below_prefix(path) => continue,
                Err(cause) => return Err(unreadable(cause)),
            };
            let (attributes, is_verified) = (found.attributes.clone(), is_verified(&found));
            let (length, limit) = (found.meta.size, self.max_bytes.load(Ordering::Relaxed));
            if limit > 0 && length > limit {
                tracing::warn!(s3_key, length, limit, "a body is damaged: it is longer than any page may be");
                continue;
            }
            let Some(permit) = admit(length).await else { return Ok(ReadBody::Refused) };
            let bytes = found.bytes().await.map_err(unreadable)?;
            if !is_verified && digest.is_some_and(|digest| digest != self::digest(&bytes)) {
                tabletheory::warn_limited!(
                    s3_key,
                    "a body is damaged: its digest differs from the one in its row"
                );
                continue;
            }
            return Ok(ReadBody::Found(Body::with_metadata(bytes, &attributes), permit));
        }
        Ok(ReadBody::Missing)
    }

    /// A small body of the embedded store, with an S3 key as this store writes it. `None` says nothing: then the body is looked
    /// for in every way.
    #[cfg(feature = "sqlite")]
    fn read_at_once(&self, s3_key: &str) -> Option<Vec<u8>> {
        let embedded = self.embedded.as_ref().filter(|_| S3Key::parse(&self.prefix, s3_key).is_some())?;
        let limit = self.max_bytes.load(Ordering::Relaxed);
        embedded.try_get(s3_key).filter(|bytes| limit == 0 || bytes.len() as u64 <= limit)
    }

    #[cfg(not(feature = "sqlite"))]
    fn read_at_once(&self, _: &str) -> Option<Vec<u8>> {
        None
    }

    /// Lets bodies of up to this length be read. Longer ones count as damaged, and their bytes are not read. Without a call,
    /// the length is not limited.
    pub(crate) fn allow_length(&self, bytes: u64) {
        self.max_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Deletes a body. It is not an error if it does not exist.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// facetheory::Bodies::memory().delete("isr/0/1-a.html").await?;
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self, s3_key: &str) -> Result<()> {
        let paths = self.paths(s3_key);
        let missing_or = |cause| match cause {
            object_store::Error::NotFound { .. } => Ok(()),
            cause => Err(unavailable("a body cannot be deleted", cause)),
        };
        for path in &paths {
            // A delete does not tell whether the object existed. The pointer names one object: the first that exists.
            if paths.len() > 1
                && let Err(cause) = self.objects.head(path).await
            {
                missing_or(cause)?;
                continue;
            }
            return self.objects.delete(path).await.or_else(missing_or);
        }
        Ok(())
    }

    /// The size of the file of small bodies, and the bytes of large ones; `None` if that is not known.
    pub(crate) async fn usage(&self) -> Result<Option<(FileUsage, u64)>> {
        #[cfg(feature = "sqlite")]
        if let Some(embedded) = &self.embedded {
            return Ok(Some(embedded.usage().await?));
        }
        Ok(None)
    }

    /// Returns up to this many bytes that deleted bodies have left to the disk.
    pub(crate) async fn shrink(&self, bytes: u64) -> Result<()> {
        #[cfg(feature = "sqlite")]
        if let Some(embedded) = &self.embedded {
            embedded.shrink(bytes).await?;
        }
        let _ = bytes;
        Ok(())
    }

    /// The directory of the page for which the body with this S3 key was stored; `None` if it is not a body of ours.
    pub(crate) fn directory_of(&self, s3_key: &str) -> Option<String> {
        let directory = |path: &Path| Some(S3Key::parse(&self.prefix, path.as_ref())?.directory.to_owned());
        self.paths(s3_key).iter().find_map(directory)
    }

    /// The attributes of the object of a body, if objects can have any.
    fn attributes(&self, content: &Content) -> Attributes {
        if self.has_metadata { metadata::attributes(content) } else { Attributes::new() }
    }

    /// The objects that an S3 key from a row may name; none for a text that could lead out of the store.
    fn paths(&self, s3_key: &str) -> Vec<Path> {
        let mut paths = pointer::objects(s3_key, &self.prefix, self.root.as_deref());
        // In the embedded store a small body is no file, so it checks this by itself.
        if cfg!(not(feature = "sqlite")) && self.directory.is_some() {
            paths.retain(may_be_file);
        }
        paths
    }

    /// Deletes the files that interrupted writes have left and that are older than `cutoff`, and returns how many. A dry run only
    /// counts them.
    pub(crate) async fn delete_staged(&self, cutoff: Timestamp, dry_run: bool) -> Result<u64> {
        let Some(directory) = self.directory.clone() else { return Ok(0) };
        let prefix = self.prefix.clone();
        let cutoff = UNIX_EPOCH + Duration::from_millis(u64::try_from(cutoff.millis()).unwrap_or(0));
        let delete = move || staging::delete_staged(&directory, &prefix, cutoff, dry_run);
        let deleted = tokio::task::spawn_blocking(delete).await.map_err(io::Error::other).flatten();
        deleted.map_err(|cause| {
            Error::bodies_unavailable(
                "incomplete files of bodies cannot be deleted; check the directory of bodies",
            )
            .caused_by(cause)
        })
    }

    /// The key of the object that an S3 key from a row names, if it has the form that this store writes; `None` for an object
    /// that another service may have stored.
    pub(crate) fn own_key(&self, s3_key: &str) -> Option<String> {
        let full = [s3_key.to_owned(), format!("{}{s3_key}", self.prefix)];
        full.into_iter().find(|key| S3Key::parse(&self.prefix, key).is_some())
    }

    fn is_below_prefix(&self, path: &Path) -> bool {
        path.as_ref().starts_with(self.prefix.as_str())
    }
}

/// The path of an S3 key that we created.
pub(crate) fn object_path(s3_key: &str) -> Result<Path> {
    Path::parse(s3_key)
        .map_err(|cause| Error::invalid(format!("{s3_key:?} is not a valid S3 key")).caused_by(cause))
}

/// Whether a file can have this name. Opening a longer one is an error that looks like a failure of the disk.
pub(crate) fn may_be_file(location: &Path) -> bool {
    /// The longest name below the directory. A path of Linux has at most 4,096 bytes.
    const MAX_BYTES: usize = 3_000;
    const MAX_PART_BYTES: usize = 255;
    location.as_ref().len() <= MAX_BYTES && location.parts().all(|part| part.as_ref().len() <= MAX_PART_BYTES)
}

pub(crate) fn unavailable(what: &str, cause: object_store::Error) -> Error {
    Error::bodies_unavailable(format!("{what}; check the object storage and try again")).caused_by(cause)
}

/// Whether the store has compared the bytes of an object with a checksum.
#[cfg(feature = "sqlite")]
fn is_verified(object: &GetResult) -> bool {
    object.extensions.get::<embedded::Verified>().is_some()
}

#[cfg(not(feature = "sqlite"))]
fn is_verified(_: &GetResult) -> bool {
    false
}

/// `sha256:` and the hexadecimal digest of a body.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256_hex(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    #[tokio::test]
    async fn no_key_in_a_row_escapes_from_the_store() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("secret"), "secret").expect("a file");
        let bodies = Bodies::files(directory.path().join("bodies")).expect("a store");
        for key in ["../secret", "isr/../../secret", "/../secret", "", "isr//x", "isr/./x", "s3://other/x"] {
            assert_eq!(bodies.get(key, None).await.expect("no error"), None, "{key}");
            bodies.delete(key).await.expect("no error");
        }
        assert!(directory.path().join("secret").exists());
    }

    #[tokio::test]
    async fn a_damaged_body_counts_as_missing() {
        let directory = tempfile::tempdir().expect("a directory");
        let bodies = Bodies::files(directory.path()).expect("a store");
        let page = PageKey::new("/").expect("a page");
        let now = Timestamp::from_seconds(1);
        // Large bodies have files of their own.
        let large = vec![b'x'; 1 << 20];
        let stored = bodies.put(&page, now, large.into(), &Content::default(), &SeededRandom::new(1)).await;
        let stored = stored.expect("stored");
        for damage in ["broken", ""] {
            std::fs::write(directory.path().join(&stored.s3_key), damage).expect("damage");
            assert_eq!(bodies.get(&stored.s3_key, Some(&stored.digest)).await.expect("no error"), None);
        }
    }

    #[tokio::test]
    async fn a_key_that_is_taken_is_never_overwritten() {
        let bodies = Bodies::memory();
        let page = PageKey::new("/").expect("a page");
        let now = Timestamp::from_seconds(1);
        let put = async |text: &'static str, seed| {
            let random = SeededRandom::new(seed);
            bodies.put(&page, now, text.into(), &Content::default(), &random).await.expect("stored")
        };
        let first = put("first", 1).await;
        // The same seed gives the same first key.
        let second = put("second", 1).await;
        assert_ne!(first.s3_key, second.s3_key);
        let body = bodies.get(&first.s3_key, Some(&first.digest)).await.expect("no error").expect("a body");
        assert_eq!(body.bytes, "first");
    }
}
