//! Opens the object storage of bodies: in memory, in files, or in S3.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use super::Bodies;
use super::pointer::Pointers;
use crate::error::{Error, Kind, Result};

/// The default prefix of S3 keys.
const PREFIX: &str = "isr/";

impl Bodies {
    /// Bodies in memory, for as long as the process lives.
    ///
    /// ```
    /// let bodies = facetheory::Bodies::memory();
    /// ```
    #[must_use]
    pub fn memory() -> Self {
        Bodies { lists_in_order: true, ..Bodies::over(Arc::new(InMemory::new())) }
    }

    /// Bodies in any object store, for example of another cloud.
    ///
    /// The store must honour [`PutMode::Create`](object_store::PutMode::Create), since a body is never overwritten, and store
    /// the metadata of objects.
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
        Bodies {
            max_bytes: Arc::default(),
            objects,
            prefix: PREFIX.into(),
            root: None,
            pointers: Pointers::default(),
            has_metadata: true,
            lists_in_order: false,
            directory: None,
            #[cfg(feature = "sqlite")]
            embedded: None,
        }
    }

    /// Bodies under a directory, which is created if it does not exist. They are written atomically and durably.
    ///
    /// With the feature `sqlite`, bodies up to 256 KiB are in one SQLite file, and only larger ones in files of their own.
    /// Without it, all are in files of their own; such a directory can be opened with the feature later, but not the other
    /// way round.
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
        tabletheory::create_private_directory(directory).map_err(|cause| unusable(cause.into()))?;
        let files = LocalFileSystem::new_with_prefix(directory).map_err(|cause| unusable(cause.into()))?;
        // Each page has a directory, which is removed with its last file.
        let files = files.with_fsync(true).with_automatic_cleanup(true);
        let place = Some(directory.into());
        #[cfg(feature = "sqlite")]
        {
            let embedded = Arc::new(super::embedded::EmbeddedObjects::open(directory, files)?);
            let bodies = Bodies::over(embedded.clone());
            Ok(Bodies { has_metadata: false, directory: place, embedded: Some(embedded), ..bodies })
        }
        #[cfg(not(feature = "sqlite"))]
        Ok(Bodies { has_metadata: false, directory: place, ..Bodies::over(Arc::new(files)) })
    }

    /// Bodies at an address: `memory:`, `file:DIRECTORY` or, with the feature `s3`, `s3://bucket/prefix`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use facetheory::Bodies;
    ///
    /// assert!(Bodies::open("memory:").await.is_ok());
    /// assert_eq!(
    ///     Bodies::open("ftp://x").await.unwrap_err().to_string(),
    ///     "`ftp://x` is not an address of bodies; it must be memory:, file:DIRECTORY or s3://BUCKET/PREFIX"
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
        match s3_address(address) {
            Some((bucket, prefix)) => open_s3(bucket, prefix).await,
            None => Err(Error::invalid(format!(
                "`{address}` is not an address of bodies; it must be memory:, file:DIRECTORY or s3://BUCKET/PREFIX"
            ))),
        }
    }

    /// Bodies in an S3 bucket, with the credentials, region and endpoint of this configuration, which the table on DynamoDB can
    /// share.
    ///
    /// S3 keys begin with the prefix and one slash, however many slashes the prefix begins or ends with. An empty prefix is
    /// `isr`, as in other languages; `/` means that there is no prefix.
    ///
    /// ```no_run
    /// # async fn f() -> facetheory::Result<()> {
    /// let config = aws_config::defaults(aws_config::BehaviorVersion::latest()).load().await;
    /// let bodies = facetheory::Bodies::s3(&config, "my-bucket", "isr")?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "s3")]
    pub fn s3(config: &aws_config::SdkConfig, bucket: &str, prefix: &str) -> Result<Self> {
        Ok(Bodies {
            prefix: normalized_prefix(prefix)?,
            root: Some(format!("s3://{bucket}/")),
            // Directory buckets, whose names end like this, do not list in order.
            lists_in_order: !bucket.ends_with("--x-s3"),
            ..Bodies::over(Arc::new(super::s3::open(config, bucket)?))
        })
    }
}

/// Bucket and prefix of an address `s3://bucket/prefix`; `None` for other addresses.
pub(super) fn s3_address(address: &str) -> Option<(&str, &str)> {
    let rest = address.strip_prefix("s3://")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    (!bucket.is_empty()).then_some((bucket, prefix))
}

/// The prefix of S3 keys, normalized as in other languages.
#[cfg(feature = "s3")]
pub(super) fn normalized_prefix(text: &str) -> Result<String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(PREFIX.to_owned());
    }
    let prefix = match text.trim_matches('/') {
        "" => String::new(),
        cleaned => format!("{cleaned}/"),
    };
    // An object must have exactly the key that its row names, so no character may need escaping.
    object_store::path::Path::parse(&prefix).map_err(|cause| {
        let context = format!("{text:?} is not a valid prefix; use letters, digits, `-`, `_` and `/`");
        Error::invalid(context).caused_by(cause)
    })?;
    Ok(prefix)
}

#[cfg(not(feature = "s3"))]
async fn open_s3(bucket: &str, _: &str) -> Result<Bodies> {
    Err(Error::invalid(format!(
        "the bucket {bucket} cannot be opened: this program was built without the feature `s3`"
    )))
}

#[cfg(feature = "s3")]
async fn open_s3(bucket: &str, prefix: &str) -> Result<Bodies> {
    Bodies::s3(&super::s3::environment().await, bucket, prefix)
}

#[cfg(all(test, feature = "s3"))]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_normalized_as_in_other_languages() {
        for (given, expected) in [
            ("", "isr/"),
            (" ", "isr/"),
            ("isr", "isr/"),
            ("/isr/", "isr/"),
            (" a/b// ", "a/b/"),
            ("/", ""),
            ("//", ""),
        ] {
            assert_eq!(normalized_prefix(given).expect("a prefix"), expected, "{given:?}");
        }
        for hostile in ["a//b", "..", "a/../b", "."] {
            assert_eq!(
                normalized_prefix(hostile).expect_err("rejected").kind(),
                Kind::Invalid,
                "{hostile:?}"
            );
        }
    }
}
