//! Writers of blobs that are killed: a blob is there with exactly its bytes or not at all, as the last acknowledged operation
//! left it.

use std::collections::BTreeMap;
use std::path::Path;

use libtest_mimic::Failed;
use tabletheory::{Random as _, SeededRandom};

use crate::kill::{self, Check, Writer, tell_parent};

/// The kills of a test, unless the environment gives a number.
const KILLS: u32 = 60;
/// Concurrent tasks per process, so that one write to disk commits several operations.
const WORKERS: u32 = 4;
/// The blobs of a worker.
const BLOBS: u32 = 8;
/// More than the operations of a process.
const VERSIONS_PER_PROCESS: u64 = 1_000_000;

/// A store of blobs.
pub(crate) trait Store: Sized {
    /// The name of the store.
    const NAME: &'static str;
    /// The most bytes of a blob.
    const MAX_BYTES: u64;

    /// Opens the store.
    fn open(path: &Path) -> Self;
    /// Chooses an operation on a blob that exists or does not.
    fn choose(exists: bool, random: u64) -> Operation;
    /// Performs an operation; returns whether it had an effect.
    async fn perform(&self, name: &str, operation: Operation, bytes: Vec<u8>) -> bool;
    /// Reads a blob.
    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Failed>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Replace,
    Delete,
}

impl Operation {
    const ALL: [Operation; 3] = [Operation::Create, Operation::Replace, Operation::Delete];

    fn parse(text: &str) -> Option<Self> {
        Operation::ALL.into_iter().find(|operation| format!("{operation:?}") == text)
    }

    /// The version after this operation, whose own is given.
    fn after(self, stored: Option<u64>, version: u64) -> Option<u64> {
        match self {
            Operation::Create => stored.or(Some(version)),
            Operation::Replace => Some(version),
            Operation::Delete => None,
        }
    }

    fn has_effect(self, exists: bool) -> bool {
        match self {
            Operation::Create => !exists,
            Operation::Replace => true,
            Operation::Delete => exists,
        }
    }
}

/// The bytes of a version: some are few, some fill many pages of a file.
fn bytes<S: Store>(name: &str, version: u64) -> Vec<u8> {
    let seed = name.bytes().fold(version, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let random = SeededRandom::new(seed);
    let most = match random.next_u64() % 8 {
        0 => 64,
        1..=4 => 8 * 1024,
        5..=6 => 64 * 1024,
        _ => S::MAX_BYTES,
    };
    let length = usize::try_from(random.next_u64() % (most + 1)).expect("a small number");
    let mut bytes: Vec<u8> = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(random.next_u64().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The child process.
pub(crate) async fn write_forever<S: Store>(writer: &Writer) -> ! {
    assert_eq!(writer.subject, S::NAME, "the subject of a writer");
    let store = S::open(&writer.path);
    Writer::run((0..WORKERS).map(|worker| work(&store, writer, worker))).await
}

/// Operates on the blobs of a worker, announces each operation, and acknowledges it.
async fn work<S: Store>(store: &S, writer: &Writer, worker: u32) {
    let name = |blob: u32| format!("{}-{worker}/{blob}", writer.number);
    let mut exist = Vec::new();
    for blob in 0..BLOBS {
        exist.push(store.get(&name(blob)).await.expect("no blob is torn").is_some());
    }
    let first = u64::from(writer.start) * VERSIONS_PER_PROCESS;
    let random = SeededRandom::new(first + u64::from(worker));
    for version in first.. {
        let blob = u32::try_from(random.next_u64() % u64::from(BLOBS)).expect("a small number");
        let (name, exists) = (name(blob), &mut exist[blob as usize]);
        let operation = S::choose(*exists, random.next_u64());
        let bytes = if operation == Operation::Delete { vec![] } else { bytes::<S>(&name, version) };
        tell_parent(&format!("begin {name} {operation:?} {version}"));
        let had_effect = store.perform(&name, operation, bytes).await;
        tell_parent(&format!("end {name} {had_effect}"));
        *exists = operation != Operation::Delete;
    }
}

/// Kills writers of one store, and checks what they have stored.
#[expect(clippy::print_stdout, reason = "the counts are the result of the run")]
pub(crate) fn kill_writers<S: Store>(path: &Path, writers: u32) -> Result<(), Failed> {
    let mut blobs = Blobs::<S>::default();
    let kills = kill::kills(KILLS);
    kill::kill_writers(S::NAME, path, writers, kills, &mut blobs)?;
    let Blobs { acknowledged, interrupted, completed, .. } = blobs;
    println!(
        "{}: {kills} kills of {writers} writer(s): {acknowledged} operations acknowledged, {interrupted} interrupted, \
         of which {completed} had been completed; none lost, none torn",
        S::NAME
    );
    Ok(())
}

/// The blobs that the writers have reported.
struct Blobs<S> {
    blobs: BTreeMap<String, Blob>,
    acknowledged: u64,
    interrupted: u64,
    completed: u64,
    store: std::marker::PhantomData<S>,
}

impl<S> Default for Blobs<S> {
    fn default() -> Self {
        let blobs = BTreeMap::new();
        Blobs { blobs, acknowledged: 0, interrupted: 0, completed: 0, store: std::marker::PhantomData }
    }
}

#[derive(Default)]
struct Blob {
    /// The version that was stored by acknowledged operations.
    stored: Option<u64>,
    /// An operation that is not acknowledged, and its version.
    begun: Option<(Operation, u64)>,
}

impl<S: Store> Check for Blobs<S> {
    fn record(&mut self, line: &str) -> Result<(), Failed> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["begin", name, operation, version] => {
                let operation = Operation::parse(operation).ok_or("an unknown operation")?;
                self.blobs.entry(name.to_owned()).or_default().begun = Some((operation, version.parse()?));
            }
            ["end", name, had_effect] => {
                let blob = self.blobs.entry(name.to_owned()).or_default();
                let (operation, version) =
                    blob.begun.take().ok_or("an operation ended that did not begin")?;
                if had_effect.parse::<bool>()? != operation.has_effect(blob.stored.is_some()) {
                    let stored = blob.stored;
                    return Err(
                        format!("{line}: {operation:?} on {name}, of which {stored:?} is stored").into()
                    );
                }
                blob.stored = operation.after(blob.stored, version);
                self.acknowledged += 1;
            }
            _ => return Err(format!("an unexpected line: {line:?}").into()),
        }
        Ok(())
    }

    fn check(&mut self, path: &Path, writer: u32) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let store = S::open(path);
        let prefix = format!("{writer}-");
        for (name, blob) in self.blobs.iter_mut().filter(|(name, _)| name.starts_with(&prefix)) {
            let read = runtime.block_on(store.get(name))?;
            let is_read = |version: &Option<u64>| read == version.map(|version| bytes::<S>(name, version));
            let begun = blob.begun.take();
            self.interrupted += u64::from(begun.is_some());
            if is_read(&blob.stored) {
                continue;
            }
            let after = begun.map(|(operation, version)| operation.after(blob.stored, version));
            let Some(after) = after.filter(is_read) else {
                let read = read.map(|bytes| bytes.len());
                let stored = blob.stored;
                return Err(
                    format!("{name}: {read:?} bytes instead of {stored:?}, or after {begun:?}").into()
                );
            };
            blob.stored = after;
            self.completed += 1;
        }
        Ok(())
    }
}
