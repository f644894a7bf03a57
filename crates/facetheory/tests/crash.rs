//! Kills processes that store and delete bodies in a directory, at random moments: a body is there as a whole or not at all,
//! as the last acknowledged operation left it.
//!
//! `TABLETHEORY_KILLS=2000 cargo test -p facetheory --features sqlite --test crash` kills more often than the default.

#[path = "../../tabletheory/tests/support/kill.rs"]
mod kill;
#[path = "../../tabletheory/tests/support/killed_blobs.rs"]
mod killed_blobs;

use std::path::Path;
use std::process::ExitCode;

use facetheory::protocol::Content;
use facetheory::{Bodies, PageKey, StoredBody};
use libtest_mimic::{Arguments, Failed, Trial};
use tabletheory::{SeededRandom, Timestamp};

use kill::Writer;
use killed_blobs::{Operation, Store};

fn main() -> ExitCode {
    if let Some(writer) = Writer::of_this_process() {
        runtime().block_on(killed_blobs::write_forever::<BodiesOfPages>(&writer));
    }
    let trials = vec![
        Trial::test("a_killed_process_loses_and_tears_no_acknowledged_body", || kill_writers(1)),
        Trial::test("two_killed_processes_lose_and_tear_no_acknowledged_body", || kill_writers(2)),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

fn kill_writers(writers: u32) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    killed_blobs::kill_writers::<BodiesOfPages>(directory.path(), writers)?;
    if directory.path().join("bodies.db.damaged").exists() {
        return Err("a kill has damaged the SQLite file".into());
    }
    Ok(())
}

/// Bodies of pages that have one body each.
struct BodiesOfPages(Bodies);

impl Store for BodiesOfPages {
    const NAME: &'static str = "bodies";
    /// Bodies above 256 KiB are in files of their own.
    const MAX_BYTES: u64 = 768 * 1024;

    fn open(path: &Path) -> Self {
        BodiesOfPages(Bodies::files(path).expect("the directory opens after a kill"))
    }

    /// A body is never replaced.
    fn choose(exists: bool, _: u64) -> Operation {
        if exists { Operation::Delete } else { Operation::Create }
    }

    async fn perform(&self, name: &str, operation: Operation, bytes: Vec<u8>) -> bool {
        let key = key(name).await;
        match operation {
            Operation::Delete => self.0.delete(&key).await.expect("a delete"),
            _ => assert_eq!(put(&self.0, name, bytes).await.s3_key, key, "the key is free"),
        }
        true
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Failed> {
        let body = self.0.get(&key(name).await, None).await?;
        Ok(body.map(|body| body.bytes.into()))
    }
}

/// Stores a body under a key that depends on the name alone, if it is free.
async fn put(bodies: &Bodies, name: &str, bytes: Vec<u8>) -> StoredBody {
    let page = PageKey::new(format!("/{name}")).expect("a page");
    let (now, random) = (Timestamp::from_seconds(1_700_000_000), SeededRandom::new(1));
    bodies.put(&page, now, bytes.into(), &Content::default(), &random).await.expect("a put")
}

async fn key(name: &str) -> String {
    put(&Bodies::memory(), name, vec![]).await.s3_key
}
