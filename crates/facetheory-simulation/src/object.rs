//! A store of objects that misbehaves as its seed says, and tells the ledger what really happens to it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::mutant::Mutant;
use crate::tally::Count;

/// How often each thing goes wrong with objects: a probability from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObjectFaults {
    /// The call takes a while before it reaches the store.
    pub(crate) delay: f64,
    pub(crate) longest_delay: Duration,
    /// The call fails and has not reached the store.
    pub(crate) fail: f64,
    /// The call reaches the store and fails all the same.
    pub(crate) lose_answer: f64,
}

/// Objects in memory, with faults.
#[derive(Clone, Debug)]
pub(crate) struct Objects(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    objects: InMemory,
    ledger: Arc<Ledger>,
    dice: Dice,
    faults: Mutex<ObjectFaults>,
    mutant: Option<Mutant>,
}

impl Objects {
    pub(crate) fn new(ledger: Arc<Ledger>, dice: Dice, faults: ObjectFaults, mutant: Option<Mutant>) -> Self {
        Objects(Arc::new(Shared {
            objects: InMemory::new(),
            ledger,
            dice,
            faults: Mutex::new(faults),
            mutant,
        }))
    }

    pub(crate) fn stop_faults(&self) {
        *self.0.faults.lock().unwrap_or_else(PoisonError::into_inner) = ObjectFaults::default();
    }

    /// A body vanishes, or its bytes change.
    pub(crate) async fn break_one(&self, s3_key: &str) {
        let path = Path::from(s3_key);
        if self.0.dice.chance(0.5) {
            self.0.objects.delete(&path).await.expect("memory answers");
            self.0.ledger.broke(s3_key, Count::Lost);
        } else {
            self.0.objects.put(&path, "damaged".into()).await.expect("memory answers");
            self.0.ledger.broke(s3_key, Count::Damaged);
        }
    }
}

impl Shared {
    /// Waits, then says whether the call fails before it arrives, or its answer gets lost.
    async fn fate(&self) -> Result<bool> {
        let faults = *self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let (delayed, luck) = (self.dice.chance(faults.delay), self.dice.fraction());
        let pause = self.dice.fraction();
        if delayed {
            tokio::time::sleep(faults.longest_delay.mul_f64(pause)).await;
        }
        if luck < faults.fail {
            Err(injected("injected: the store cannot be reached"))
        } else {
            Ok(luck < faults.fail + faults.lose_answer)
        }
    }

    async fn delete_one(&self, path: Path) -> Result<Path> {
        let lost = self.fate().await?;
        self.objects.delete(&path).await?;
        self.ledger.deleted(path.as_ref());
        if lost { Err(injected("injected: no answer came")) } else { Ok(path) }
    }

    /// Some other body of the same cache key.
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

fn injected(what: &'static str) -> Error {
    Error::Generic { store: "simulation", source: what.into() }
}

fn unused() -> Error {
    injected("bodies are written whole, read whole and never copied")
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated objects")
    }
}

#[async_trait]
impl ObjectStore for Objects {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let lost = self.0.fate().await?;
        let bytes = Bytes::from(payload.clone());
        let kept = match self.0.mutant {
            Some(Mutant::ForgottenBody) => {
                return Ok(PutResult {
                    e_tag: None,
                    version: None,
                    extensions: object_store::Extensions::default(),
                });
            }
            Some(Mutant::ShortBody) => bytes.slice(..bytes.len() / 2),
            _ => bytes,
        };
        let stored = self.0.objects.put_opts(path, kept.clone().into(), options).await?;
        self.0.ledger.stored(path.as_ref(), kept);
        if lost { Err(injected("injected: no answer came")) } else { Ok(stored) }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(unused())
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        // An answer that gets lost and a call that fails are the same to a reader.
        if self.0.fate().await? {
            return Err(injected("injected: no answer came"));
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
