//! The embedded object store: small objects in one SQLite file, large ones in files of their own.
//!
//! A page of some kilobytes in a file of its own costs two inodes, two writes to the disk and a dozen system calls.
//! In one SQLite file, concurrent writes share one write to the disk, a read is two system calls, and the space of deleted
//! bodies is used again; `cargo bench -p facetheory --bench bodies` compares both. Large objects stay in files, because
//! SQLite would write them twice. Files of any size are read, so that directories of earlier versions stay valid.

use std::fmt;
use std::future::ready;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::{Buf as _, Bytes};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use tabletheory::{
    BlobInfo, FileUsage, Kind, OnCorruption, SqliteBlobs, SqliteSettings, SystemClock, Timestamp,
};

use super::may_be_file;

/// The SQLite file in the directory.
const FILE: &str = "bodies.db";
/// Objects up to this size are in the SQLite file.
const MAX_BLOB_BYTES: usize = 256 * 1024;
/// How many blobs are listed with one read.
const BLOBS_PER_READ: u32 = 500;

/// Marks an object whose bytes and name were compared with its checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verified;

/// Objects below a directory.
#[derive(Debug)]
pub(super) struct EmbeddedObjects {
    blobs: Arc<SqliteBlobs>,
    files: Arc<LocalFileSystem>,
}

impl EmbeddedObjects {
    /// Opens the directory, which must exist. A damaged SQLite file is set aside: its bodies are rendered again.
    pub(super) fn open(directory: &FilePath, files: LocalFileSystem) -> tabletheory::Result<Self> {
        let settings = SqliteSettings::default().on_corruption(OnCorruption::Replace);
        let blobs = SqliteBlobs::open_with(directory.join(FILE), &settings, Arc::new(SystemClock))?;
        Ok(EmbeddedObjects { blobs: Arc::new(blobs), files: Arc::new(files) })
    }

    fn blobs(&self) -> Arc<SqliteBlobs> {
        self.blobs.clone()
    }

    /// The bytes of a small object, if it is found at once. They were compared with their checksum.
    pub(super) fn try_get(&self, name: &str) -> Option<Vec<u8>> {
        self.blobs.try_get(name)
    }

    /// The size of the SQLite file, and the bytes of the other files.
    pub(super) async fn usage(&self) -> tabletheory::Result<(FileUsage, u64)> {
        let blobs = self.blobs();
        Ok((blobs.usage().await?, blobs.recorded_bytes().await?))
    }

    /// Returns up to this many bytes that deleted objects have left to the disk.
    pub(super) async fn shrink(&self, bytes: u64) -> tabletheory::Result<()> {
        self.blobs().shrink(bytes).await
    }
}

async fn put(blobs: &SqliteBlobs, name: &str, bytes: Bytes, mode: &PutMode) -> tabletheory::Result<bool> {
    match mode {
        PutMode::Create => blobs.create(name, bytes).await,
        _ => blobs.replace(name, bytes).await.map(|()| true),
    }
}

impl fmt::Display for EmbeddedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {FILE}", self.files)
    }
}

#[async_trait]
impl ObjectStore for EmbeddedObjects {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let is_small = payload.content_length() <= MAX_BLOB_BYTES;
        if !is_small || !options.attributes.is_empty() || matches!(options.mode, PutMode::Update(_)) {
            // Before the file, so that a crash between the two leaves no file that is not counted.
            let length = payload.content_length() as u64;
            self.blobs().record_file(location.as_ref(), length).await.map_err(generic)?;
            return self.files.put_opts(location, payload, options).await;
        }
        match put(&self.blobs, location.as_ref(), Bytes::from(payload), &options.mode).await {
            Ok(true) => Ok(PutResult { e_tag: None, version: None, extensions: Default::default() }),
            Ok(false) => {
                let source = "an object with this name is in the file of small objects".into();
                Err(Error::AlreadyExists { path: location.to_string(), source })
            }
            Err(cause) => Err(generic(cause)),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let blob = match self.blobs.get(location.as_ref()).await {
            Ok(Some(blob)) => blob,
            Ok(None) if !may_be_file(location) => {
                let source = "the name is too long for a file".into();
                return Err(Error::NotFound { path: location.to_string(), source });
            }
            Ok(None) => return self.files.get_opts(location, options).await,
            // A damaged object counts as missing, so that it is stored again.
            Err(cause) if cause.kind() == Kind::Corrupt => {
                return Err(Error::NotFound { path: location.to_string(), source: cause.into() });
            }
            Err(cause) => return Err(generic(cause)),
        };
        let meta = meta(location.clone(), &blob.info);
        options.check_preconditions(&meta)?;
        let mut bytes = Bytes::from(blob.bytes);
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(|cause| generic(cause.to_string()))?,
            None => 0..meta.size,
        };
        // The blob is in memory, so its length fits `usize`.
        let bound = |at: u64| usize::try_from(at).unwrap_or(bytes.len()).min(bytes.len());
        let (start, end) = (bound(range.start), bound(range.end));
        bytes.truncate(end);
        bytes.advance(start);
        let payload = GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed());
        let mut extensions = Extensions::new();
        extensions.insert(Verified);
        Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (blobs, files) = (self.blobs(), self.files.clone());
        locations
            .and_then(move |location| {
                let (blobs, files) = (blobs.clone(), files.clone());
                async move {
                    if !blobs.delete(location.as_ref()).await.map_err(generic)? {
                        let deleted = files.delete(&location).await;
                        if matches!(deleted, Ok(()) | Err(Error::NotFound { .. })) {
                            blobs.forget_file(location.as_ref()).await.map_err(generic)?;
                        }
                        deleted?;
                    }
                    Ok(location)
                }
            })
            .boxed()
    }

    /// The objects of one directory follow each other, whether they are small or large, because gc compares the bodies of a
    /// page with each other.
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.cloned();
        let with_blobs = of_directories_with_blobs(self.blobs(), self.files.clone(), prefix.clone());
        let without_blobs = of_directories_without_blobs(self.blobs(), self.files.list(prefix.as_ref()));
        with_blobs.chain(without_blobs).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut found = self.files.list_with_delimiter(prefix).await?;
        found.objects.retain(|object| !is_own_file(object));
        let below = below(prefix);
        let mut blobs = blobs(self.blobs(), below.clone());
        while let Some(object) = blobs.try_next().await? {
            match object.location.as_ref()[below.len()..].split_once('/') {
                None => found.objects.push(object),
                Some((directory, _)) => {
                    let directory = Path::parse(format!("{below}{directory}")).map_err(generic)?;
                    // Blobs are listed in order, so those of one directory follow each other.
                    if found.common_prefixes.last() != Some(&directory) {
                        found.common_prefixes.push(directory);
                    }
                }
            }
        }
        found.common_prefixes.sort_unstable();
        found.common_prefixes.dedup();
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }
}

/// All blobs whose names begin with this text, in order.
fn blobs(blobs: Arc<SqliteBlobs>, prefix: String) -> BoxStream<'static, Result<ObjectMeta>> {
    let read = move |after: Option<String>| {
        let (blobs, prefix) = (blobs.clone(), prefix.clone());
        async move {
            let read = blobs.list(&prefix, after.as_deref(), BLOBS_PER_READ).await.map_err(generic)?;
            let next = read.last().map(|last| Some(last.name.clone()));
            Ok::<_, Error>(next.map(|next| {
                (
                    stream::iter(
                        read.into_iter().map(|blob| Ok(meta(Path::from(blob.name.as_str()), &blob))),
                    ),
                    next,
                )
            }))
        }
    };
    stream::try_unfold(None, read).try_flatten().boxed()
}

/// Lists the blobs below a prefix, and after the last blob of each directory the files in that directory.
fn of_directories_with_blobs(
    store: Arc<SqliteBlobs>,
    files: Arc<LocalFileSystem>,
    prefix: Option<Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let listed = blobs(store, below(prefix.as_ref())).map(Some).chain(stream::once(async { None }));
    // Stack of directories on the path of the last blob that have blobs themselves, and whose files are not listed yet.
    let mut unfinished: Vec<Path> = Vec::new();
    listed
        .flat_map(move |object| {
            let directory = object.as_ref().and_then(|object| object.as_ref().ok().map(directory));
            let is_inside =
                |outer: &Path| directory.as_ref().is_some_and(|inner| inner.prefix_matches(outer));
            // Blobs are listed in order, so a directory is finished at the first blob outside of it.
            let mut finished = stream::empty().boxed();
            while let Some(last) = unfinished.pop_if(|last| !is_inside(last)) {
                finished = finished.chain(files_in(&files, last)).boxed();
            }
            unfinished.extend(directory.filter(|directory| unfinished.last() != Some(directory)));
            finished.chain(stream::iter(object)).boxed()
        })
        .boxed()
}

/// The files of a directory, without those of directories in it.
fn files_in(files: &LocalFileSystem, directory: Path) -> BoxStream<'static, Result<ObjectMeta>> {
    let listed = files.list(Some(&directory));
    listed.try_filter(move |file| ready(self::directory(file) == directory && !is_own_file(file))).boxed()
}

/// Lists the files of directories that have no blobs.
fn of_directories_without_blobs(
    store: Arc<SqliteBlobs>,
    files: BoxStream<'static, Result<ObjectMeta>>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let state = (files, store, None::<(Path, bool)>);
    stream::try_unfold(state, |(mut files, store, mut last)| async move {
        while let Some(object) = files.try_next().await? {
            if is_own_file(&object) {
                continue;
            }
            let parent = directory(&object);
            let has_blobs = match &last {
                Some((last, has_blobs)) if *last == parent => *has_blobs,
                _ => {
                    let blobs = blobs(store.clone(), below(Some(&parent)));
                    blobs.try_any(|blob| ready(directory(&blob) == parent)).await?
                }
            };
            last = Some((parent, has_blobs));
            if !has_blobs {
                return Ok(Some((object, (files, store, last))));
            }
        }
        Ok(None)
    })
    .boxed()
}

/// Returns the prefix of the names of objects below a path.
fn below(path: Option<&Path>) -> String {
    match path {
        Some(path) if !path.as_ref().is_empty() => format!("{path}/"),
        _ => String::new(),
    }
}

fn directory(object: &ObjectMeta) -> Path {
    let mut parts: Vec<_> = object.location.parts().collect();
    parts.pop();
    Path::from_iter(parts)
}

/// Whether this is the SQLite file, or one that SQLite has put beside it.
fn is_own_file(object: &ObjectMeta) -> bool {
    object.location.as_ref().starts_with(FILE)
}

fn meta(location: Path, blob: &BlobInfo) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: stored_at(blob.stored_at).into(),
        size: blob.length,
        e_tag: None,
        version: None,
    }
}

fn stored_at(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.millis()).unwrap_or(0))
}

fn generic(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "EmbeddedObjects", source: cause.into() }
}

#[cfg(test)]
mod tests;
