//! Writers of blobs in one SQLite file.

use std::path::Path;

use libtest_mimic::Failed;
use tabletheory::SqliteBlobs;

use super::killed_blobs::{self, Operation, Store};

impl Store for SqliteBlobs {
    const NAME: &'static str = "blobs";
    const MAX_BYTES: u64 = 256 * 1024;

    fn open(path: &Path) -> Self {
        SqliteBlobs::open(path).expect("the file opens after a kill")
    }

    fn choose(_: bool, random: u64) -> Operation {
        match random % 3 {
            0 => Operation::Create,
            1 => Operation::Replace,
            _ => Operation::Delete,
        }
    }

    async fn perform(&self, name: &str, operation: Operation, bytes: Vec<u8>) -> bool {
        match operation {
            Operation::Create => self.create(name, bytes).await,
            Operation::Replace => self.replace(name, bytes).await.map(|()| true),
            Operation::Delete => self.delete(name).await,
        }
        .expect("an operation")
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Failed> {
        let read = SqliteBlobs::get(self, name).await?;
        let listed = self.list(name, None, 1).await?.pop();
        if listed != read.as_ref().map(|blob| blob.info.clone()) {
            return Err(format!("{name} is listed as {listed:?}").into());
        }
        Ok(read.map(|blob| blob.bytes))
    }
}

pub(crate) fn kill_writers(writers: u32) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("blobs.db");
    killed_blobs::kill_writers::<SqliteBlobs>(&file, writers)?;
    let problems: String =
        rusqlite::Connection::open(&file)?.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if problems == "ok" { Ok(()) } else { Err(problems.into()) }
}
