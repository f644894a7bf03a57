//! An object store in memory that injects faults and reports every change to the checker.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use parking_lot::Mutex;
use tabletheory::Faults;

use crate::checker::Checker;
use crate::mutant::Mutant;
use crate::mutant_table::IN_MEMORY;
use crate::random::RandomStream;
use crate::stats::Counter;

/// An object store in memory that injects faults.
#[derive(Clone, Debug)]
pub(crate) struct FaultyObjects(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    objects: InMemory,
    checker: Arc<Checker>,
    random: RandomStream,
    faults: Mutex<Faults>,
    mutant: Option<Mutant>,
}

impl FaultyObjects {
    pub(crate) fn new(
        checker: Arc<Checker>,
        random: RandomStream,
        faults: Faults,
        mutant: Option<Mutant>,
    ) -> Self {
        FaultyObjects(Arc::new(Shared {
            objects: InMemory::new(),
            checker,
            random,
            faults: Mutex::new(faults),
            mutant,
        }))
    }

    pub(crate) fn stop_faults(&self) {
        *self.0.faults.lock() = Faults::default();
    }

    /// Deletes a body or changes its bytes.
    pub(crate) async fn damage_one(&self, s3_key: &str) {
        let path = Path::from(s3_key);
        if self.0.random.chance(0.5) {
            self.0.objects.delete(&path).await.expect(IN_MEMORY);
            self.0.checker.body_damaged(s3_key, Counter::Lost);
        } else {
            self.0.objects.put(&path, "damaged".into()).await.expect(IN_MEMORY);
            self.0.checker.body_damaged(s3_key, Counter::Damaged);
        }
    }
}

impl Shared {
    /// Delays the call. Fails if the call does not reach the store, else returns whether the response is lost.
    async fn inject_fault(&self) -> Result<bool> {
        let faults = *self.faults.lock();
        let (delayed, draw) = (self.random.chance(faults.delay), self.random.fraction());
        let pause = self.random.fraction();
        if delayed {
            tokio::time::sleep(faults.longest_delay.mul_f64(pause)).await;
        }
        if draw < faults.fail {
            Err(injected("injected fault: the store is unreachable"))
        } else {
            Ok(draw < faults.fail + faults.lose_response)
        }
    }

    async fn delete_one(&self, path: Path) -> Result<Path> {
        let lost = self.inject_fault().await?;
        self.objects.delete(&path).await?;
        self.checker.deleted(path.as_ref());
        if lost { Err(response_lost()) } else { Ok(path) }
    }

    /// Another body of the same cache key.
    async fn other(&self, path: &Path) -> Option<Path> {
        let directory = path.as_ref().rsplit_once('/').map(|(directory, _)| Path::from(directory));
        let mut listed = self.objects.list(directory.as_ref());
        while let Some(found) = listed.next().await {
            if let Ok(found) = found
                && found.location != *path
            {
                return Some(found.location);
            }
        }
        None
    }
}

fn response_lost() -> Error {
    injected("injected fault: the response was lost")
}

fn injected(what: &'static str) -> Error {
    Error::Generic { store: "simulation", source: what.into() }
}

fn unused() -> Error {
    injected("not used: bodies are written and read as a whole, and never copied")
}

impl fmt::Display for FaultyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated objects")
    }
}

#[async_trait]
impl ObjectStore for FaultyObjects {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let lost = self.0.inject_fault().await?;
        let bytes = Bytes::from(payload.clone());
        let written = match self.0.mutant {
            Some(Mutant::ForgottenBody) => {
                return Ok(PutResult {
                    e_tag: None,
                    version: None,
                    extensions: object_store::Extensions::default(),
                });
            }
            Some(Mutant::TruncatedBody) => bytes.slice(..bytes.len() / 2),
            _ => bytes,
        };
        let result = self.0.objects.put_opts(path, written.clone().into(), options).await?;
        self.0.checker.stored(path.as_ref(), written);
        if lost { Err(response_lost()) } else { Ok(result) }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(unused())
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        // For a reader, a lost response is the same as a failed call.
        if self.0.inject_fault().await? {
            return Err(response_lost());
        }
        let other = if self.0.mutant == Some(Mutant::SwappedBody) { self.0.other(path).await } else { None };
        self.0.objects.get_opts(other.as_ref().unwrap_or(path), options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let shared = self.0.clone();
        let delete = move |path: Result<Path>| {
            let shared = shared.clone();
            async move { shared.delete_one(path?).await }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(unused())
    }
}
