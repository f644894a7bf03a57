//! Bodies: the rendered bytes, in objects that are written once and never again.

pub(crate) mod metadata;
pub(crate) mod probe;
#[cfg(feature = "s3")]
pub(crate) mod s3;

use std::sync::Arc;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Attributes, ObjectStore, ObjectStoreExt as _};
use tabletheory::{Random, Timestamp};

use self::metadata::{Created, Description};
use crate::error::{Error, Kind, Result};
use crate::protocol::generation::Content;
use crate::protocol::key::{PageKey, sha256_hex};

/// The prefix of all objects unless another is chosen.
const PREFIX: &str = "isr/";
/// How often another name is tried for a body whose name is taken, which chance alone does not bring about.
const NAMES: u32 = 3;

/// Where the bodies of pages are kept: in memory, in files, or in S3 (feature `s3`).
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
    pub(crate) prefix: String,
    /// What rows of other languages may put before a key: `s3://bucket/`.
    root: Option<String>,
    /// Whether objects can have a content type and metadata.
    describes: bool,
    /// Whether objects are listed in the order of their keys, so that a listing can go on where it ended.
    pub(crate) lists_in_order: bool,
}

/// A body that was stored by [`Bodies::put`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredBody {
    /// The key of its object.
    pub s3_key: String,
    /// `sha256:` and the hexadecimal digest.
    pub digest: String,
}

/// A body that was read, with what its object says of it.
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
    /// The HTTP status in the object's metadata, for rows that have none.
    pub status: Option<u16>,
    /// The content type in the object's metadata, for rows that have none.
    pub content_type: Option<String>,
    /// The content security policy in the object's metadata, for rows that have none.
    pub content_security_policy: Option<String>,
}

impl Body {
    /// Fills in what a row does not tell of its body, from what the object tells.
    pub(crate) fn complete(&self, content: &mut Content) {
        let told = Description {
            status: self.status,
            content_type: self.content_type.clone(),
            content_security_policy: self.content_security_policy.clone(),
        };
        told.complete(content);
    }
}

impl<B: Into<Bytes>> From<B> for Body {
    /// A body of which its object says nothing.
    fn from(bytes: B) -> Self {
        Body { bytes: bytes.into(), ..Body::default() }
    }
}

impl Bodies {
    /// In memory, for as long as the process lives.
    ///
    /// ```
    /// let bodies = facetheory::Bodies::memory();
    /// ```
    #[must_use]
    pub fn memory() -> Self {
        Bodies { lists_in_order: true, ..Bodies::over(Arc::new(InMemory::new())) }
    }

    /// Bodies in any store of objects, such as one of another cloud or one that misbehaves for a simulation.
    ///
    /// It must honour [`PutMode::Create`](object_store::PutMode::Create), since a body is never written again, and
    /// keep the metadata of objects.
    ///
    /// ```
    /// use facetheory::Bodies;
    /// use object_store::memory::InMemory;
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let bodies = Bodies::over(Arc::new(InMemory::new()));
    /// assert_eq!(bodies.get("isr/none.html", None).await?, None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn over(objects: Arc<dyn ObjectStore>) -> Self {
        Bodies { objects, prefix: PREFIX.into(), root: None, describes: true, lists_in_order: false }
    }

    /// In files under a directory, which is made where it is missing. Each is written whole and durably.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let directory = tempfile::tempdir()?;
    /// let bodies = facetheory::Bodies::files(directory.path().join("bodies"))?;
    /// # Ok(()) }
    /// ```
    pub fn files(directory: impl AsRef<std::path::Path>) -> Result<Self> {
        let directory = directory.as_ref();
        let unusable = |cause: Box<dyn std::error::Error + Send + Sync>| {
            let context = format!("the directory of bodies {} cannot be used", directory.display());
            Error::new(Kind::Invalid, context).caused_by(cause)
        };
        std::fs::create_dir_all(directory).map_err(|cause| unusable(cause.into()))?;
        let files = LocalFileSystem::new_with_prefix(directory).map_err(|cause| unusable(cause.into()))?;
        // A directory goes with its last file: there is one for each page.
        let objects = Arc::new(files.with_fsync(true).with_automatic_cleanup(true));
        Ok(Bodies { objects, prefix: PREFIX.into(), root: None, describes: false, lists_in_order: false })
    }

    /// At an address: `memory:`, `file:DIRECTORY` or, with the feature `s3`, `s3://bucket/prefix`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use facetheory::Bodies;
    ///
    /// assert!(Bodies::open("memory:").await.is_ok());
    /// assert_eq!(
    ///     Bodies::open("ftp://x").await.unwrap_err().to_string(),
    ///     "`ftp://x` is not the address of bodies; it must be memory:, file:DIRECTORY or s3://BUCKET/PREFIX"
    /// );
    /// # }
    /// ```
    pub async fn open(address: &str) -> Result<Self> {
        if address == "memory:" {
            return Ok(Bodies::memory());
        }
        if let Some(directory) = address.strip_prefix("file:").filter(|directory| !directory.is_empty()) {
            return Bodies::files(directory);
        }
        match address.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, ""))) {
            Some((bucket, prefix)) if !bucket.is_empty() => open_s3(bucket, prefix).await,
            _ => Err(Error::invalid(format!(
                "`{address}` is not the address of bodies; it must be memory:, file:DIRECTORY or s3://BUCKET/PREFIX"
            ))),
        }
    }

    /// In a bucket of S3 under a prefix, with the credentials, region and endpoint of this configuration, which the
    /// table on DynamoDB can share.
    ///
    /// Keys begin with the prefix and one slash, however many it has at its ends; with `isr/` where it is empty, as in
    /// other languages, and with neither where it is `/`.
    ///
    /// ```no_run
    /// # async fn f() -> facetheory::Result<()> {
    /// let config = aws_config::defaults(aws_config::BehaviorVersion::latest()).load().await;
    /// let bodies = facetheory::Bodies::s3(&config, "my-bucket", "isr")?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "s3")]
    pub fn s3(config: &aws_config::SdkConfig, bucket: &str, prefix: &str) -> Result<Self> {
        let prefix = prefix_of(prefix)?;
        let objects = Arc::new(crate::bodies::s3::open(config, bucket)?);
        // The buckets of one zone, whose names end so, list in no order.
        let lists_in_order = !bucket.ends_with("--x-s3");
        Ok(Bodies { objects, prefix, root: Some(format!("s3://{bucket}/")), describes: true, lists_in_order })
    }

    /// Stores a body under a name that no other has, and never will.
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
        let directory = &sha256_hex(page.cache_key().as_bytes())[..24];
        let extension = extension(content.content_type.as_deref());
        let attributes = self.describe(content);
        for _ in 0..NAMES {
            let s3_key =
                format!("{}{directory}/{}-{}.{extension}", self.prefix, generated_at.millis(), uuid(random));
            let created = metadata::create(&*self.objects, &self.name(&s3_key)?, &bytes, &attributes).await;
            match created.map_err(|cause| unavailable("a body cannot be stored", cause))? {
                Created::Done => return Ok(StoredBody { s3_key, digest }),
                // Also what a repetition of our own lost request looks like; another name is never wrong.
                Created::Taken => {}
            }
        }
        Err(Error::new(Kind::Unavailable, "every name that was tried for a body is taken; try again"))
    }

    /// Reads a body; none if it is not there, or is not the one that the digest tells of.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// assert_eq!(facetheory::Bodies::memory().get("isr/0/1-a.html", None).await?, None);
    /// # Ok(()) }
    /// ```
    pub async fn get(&self, s3_key: &str, digest: Option<&str>) -> Result<Option<Body>> {
        let Some(path) = self.path(s3_key) else {
            tracing::warn!(s3_key, "a row names a body that this store cannot have");
            return Ok(None);
        };
        let found = match self.objects.get(&path).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(cause) => return Err(unavailable("a body cannot be read", cause)),
        };
        let Description { status, content_type, content_security_policy } =
            Description::of(&found.attributes);
        let bytes = found.bytes().await.map_err(|cause| unavailable("a body cannot be read", cause))?;
        if digest.is_some_and(|digest| digest != self::digest(&bytes)) {
            tracing::warn!(s3_key, "a body is damaged: its digest is not the one that its row tells");
            return Ok(None);
        }
        Ok(Some(Body { bytes, status, content_type, content_security_policy }))
    }

    /// Deletes a body; that it is not there is no error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// facetheory::Bodies::memory().delete("isr/0/1-a.html").await?;
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self, s3_key: &str) -> Result<()> {
        let Some(path) = self.path(s3_key) else { return Ok(()) };
        match self.objects.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(cause) => Err(unavailable("a body cannot be deleted", cause)),
        }
    }

    /// What keys of objects begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn objects(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    /// What is told of a body with its object, where objects can tell anything.
    pub(crate) fn describe(&self, content: &Content) -> Attributes {
        if self.describes { metadata::describe(content) } else { Attributes::new() }
    }

    /// The object of a key that we have made, exactly as it is spelled.
    pub(crate) fn name(&self, s3_key: &str) -> Result<Path> {
        Path::parse(s3_key).map_err(|cause| {
            Error::invalid(format!("{s3_key:?} cannot be the key of an object")).caused_by(cause)
        })
    }

    /// The object that a row names; none for a text that could lead out of the store.
    fn path(&self, s3_key: &str) -> Option<Path> {
        let key = match &self.root {
            Some(root) => s3_key.strip_prefix(root.as_str()).unwrap_or(s3_key),
            None => s3_key,
        };
        Path::parse(key).ok().filter(|path| !path.as_ref().is_empty())
    }
}

/// What keys begin with, joined as other languages do.
#[cfg(feature = "s3")]
fn prefix_of(text: &str) -> Result<String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(PREFIX.to_owned());
    }
    let prefix = match text.trim_matches('/') {
        "" => String::new(),
        cleaned => format!("{cleaned}/"),
    };
    // An object must have the very name that its row tells, so nothing may have to be escaped.
    Path::parse(&prefix).map_err(|cause| {
        let context =
            format!("{text:?} cannot be the prefix of objects; use letters, digits, `-`, `_` and `/`");
        Error::invalid(context).caused_by(cause)
    })?;
    Ok(prefix)
}

pub(crate) fn unavailable(what: &str, cause: object_store::Error) -> Error {
    Error::new(Kind::Unavailable, format!("{what}; check the store of bodies and try again")).caused_by(cause)
}

/// `sha256:` and the hexadecimal digest of a body.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256_hex(bytes))
}

/// The extension follows the content type.
fn extension(content_type: Option<&str>) -> &'static str {
    let essence = content_type.unwrap_or("text/html").split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "text/html" => "html",
        "application/json" => "json",
        "text/plain" => "txt",
        "text/css" => "css",
        "text/javascript" | "application/javascript" => "js",
        "application/xml" | "text/xml" | "application/rss+xml" | "application/atom+xml" => "xml",
        "image/svg+xml" => "svg",
        _ => "bin",
    }
}

/// A random UUID (version 4).
pub(crate) fn uuid(random: &dyn Random) -> String {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let marked = bits & !(0xF000 << 64) & !(0xC000 << 48) | (0x4000 << 64) | (0x8000 << 48);
    let hex = format!("{marked:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(not(feature = "s3"))]
async fn open_s3(bucket: &str, _: &str) -> Result<Bodies> {
    Err(Error::invalid(format!(
        "bodies in the bucket {bucket} cannot be opened: this program was built without the feature `s3`"
    )))
}

#[cfg(feature = "s3")]
async fn open_s3(bucket: &str, prefix: &str) -> Result<Bodies> {
    Bodies::s3(&crate::bodies::s3::environment().await, bucket, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    #[test]
    fn a_uuid_is_marked_as_a_random_one() {
        for seed in 0..100 {
            let uuid = uuid(&SeededRandom::new(seed));
            assert_eq!(uuid.len(), 36);
            assert_eq!(&uuid[14..15], "4");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        }
    }

    #[test]
    fn the_extension_follows_the_content_type() {
        for (content_type, expected) in [
            (None, "html"),
            (Some("text/html; charset=utf-8"), "html"),
            (Some("Application/JSON"), "json"),
            (Some("image/png"), "bin"),
            (Some(""), "bin"),
        ] {
            assert_eq!(extension(content_type), expected);
        }
    }

    #[cfg(feature = "s3")]
    #[test]
    fn a_prefix_is_joined_as_in_other_languages() {
        for (given, expected) in [
            ("", "isr/"),
            (" ", "isr/"),
            ("isr", "isr/"),
            ("/isr/", "isr/"),
            (" a/b// ", "a/b/"),
            ("/", ""),
            ("//", ""),
        ] {
            assert_eq!(prefix_of(given).expect("a prefix"), expected, "{given:?}");
        }
        for hostile in ["a//b", "..", "a/../b", "."] {
            assert_eq!(prefix_of(hostile).expect_err("no prefix").kind(), Kind::Invalid, "{hostile:?}");
        }
    }

    #[tokio::test]
    async fn no_key_in_a_row_leads_out_of_the_store() {
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
    async fn a_damaged_body_is_a_missing_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let bodies = Bodies::files(directory.path()).expect("a store");
        let page = PageKey::new("/").expect("a page");
        let now = Timestamp::from_seconds(1);
        let stored = bodies.put(&page, now, "whole".into(), &Content::default(), &SeededRandom::new(1)).await;
        let stored = stored.expect("stored");
        std::fs::write(directory.path().join(&stored.s3_key), "broken").expect("damage");
        assert_eq!(bodies.get(&stored.s3_key, Some(&stored.digest)).await.expect("no error"), None);
        std::fs::write(directory.path().join(&stored.s3_key), "").expect("damage");
        assert_eq!(bodies.get(&stored.s3_key, Some(&stored.digest)).await.expect("no error"), None);
    }

    #[tokio::test]
    async fn a_name_that_is_taken_is_never_written_again() {
        let bodies = Bodies::memory();
        let page = PageKey::new("/").expect("a page");
        let now = Timestamp::from_seconds(1);
        let put = async |text: &'static str, seed| {
            let random = SeededRandom::new(seed);
            bodies.put(&page, now, text.into(), &Content::default(), &random).await.expect("stored")
        };
        let first = put("first", 1).await;
        // The same chance gives the same first name.
        let second = put("second", 1).await;
        assert_ne!(first.s3_key, second.s3_key);
        let body = bodies.get(&first.s3_key, Some(&first.digest)).await.expect("no error").expect("a body");
        assert_eq!(body.bytes, "first");
    }
}
