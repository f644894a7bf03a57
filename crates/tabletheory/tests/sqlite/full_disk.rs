//! A disk without room for another byte.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use super::*;

/// A small file system of its own. Unmounted when this is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` if this process may not mount file systems.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(directory.path()).output();
        let is_mounted = mounted.is_ok_and(|mount| mount.status.success());
        is_mounted.then_some(SmallDisk(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file until the disk is full.
    fn fill(&self) {
        let mut file = File::create(self.path().join("other")).expect("a file");
        for bytes in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![0; bytes]).is_ok() {}
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.path().join("other")).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a failed test still has files open.
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

fn open(path: &Path) -> tabletheory::Result<SqliteTable> {
    SqliteTable::open_with(path, &SqliteSettings::default().sweep(None), Arc::new(SystemClock))
}

/// A table with a row, which was opened again when the disk was full.
async fn opened_on_a_full_disk(disk: &SmallDisk, path: &Path) -> SqliteTable {
    let table = open(path).expect("a new table");
    assert!(table.commit(&put("META", 1)).await.expect("a put").is_done());
    drop(table);
    disk.fill();
    let table = open(path).expect("the table is there");
    assert_eq!(n(&table, "META").await, Some(1));
    table
}

#[tokio::test]
async fn a_table_on_a_full_disk_is_read_and_is_written_again_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return skipped() };
    // The characters with a meaning in addresses are part of the name.
    let path = disk.path().join("table?100%#.db");
    let table = opened_on_a_full_disk(&disk, &path).await;
    assert_eq!(table.scan(&Scan::new()).await.expect("a scan").items.len(), 1);
    let error = table.commit(&put("META", 2)).await.expect_err("the disk is full");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("make room"), "{error}");
    assert_eq!(n(&table, "META").await, Some(1));
    disk.make_room();
    assert!(table.commit(&put("META", 3)).await.expect("there is room").is_done());
    assert_eq!(n(&table, "META").await, Some(3));
}

#[tokio::test]
async fn changes_by_another_process_are_read_after_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return skipped() };
    let path = disk.path().join("table.db");
    let table = opened_on_a_full_disk(&disk, &path).await;
    disk.make_room();
    let other = open(&path).expect("there is room");
    assert!(other.commit(&put("META", 2)).await.expect("a put").is_done());
    assert_eq!(n(&table, "META").await, Some(2), "although this process has not written since");
}

#[tokio::test]
async fn a_table_that_becomes_full_is_read_and_is_written_again_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return skipped() };
    let settings = SqliteSettings::default().sweep(None);
    let table = SqliteTable::open_with(disk.path().join("table.db"), &settings, Arc::new(SystemClock));
    let table = table.expect("a new table");
    assert!(table.commit(&put("META", 1)).await.expect("a put").is_done());
    disk.fill();
    let row = Item::from([("text", Value::from("x".repeat(100 * 1024)))]);
    let large = Txn::from(Write::put(key("large"), row));
    let error = table.commit(&large).await.expect_err("the disk is full");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert_eq!(n(&table, "META").await, Some(1));
    disk.make_room();
    assert!(table.commit(&large).await.expect("there is room").is_done());
}

#[tokio::test]
async fn a_full_disk_with_changes_in_the_log_alone_is_not_read_without_them() {
    let Some(disk) = SmallDisk::mount() else { return skipped() };
    let settings = SqliteSettings::default().sweep(None);
    let path = disk.path().join("table.db");
    let open = || SqliteTable::open_with(&path, &settings, Arc::new(SystemClock));
    let table = open().expect("a new table");
    assert!(table.commit(&put("META", 1)).await.expect("a put").is_done());
    // As a process that was killed leaves it.
    let log = disk.path().join("table.db-wal");
    let copied = std::fs::read(&log).expect("a log");
    drop(table);
    std::fs::write(&log, copied).expect("written");
    disk.fill();
    // It depends on the file system whether there is room for the other files of SQLite.
    if let Ok(table) = open() {
        assert_eq!(n(&table, "META").await, Some(1));
    }
}

#[expect(clippy::print_stderr, reason = "a test that did not run must not look like one that passed")]
fn skipped() {
    eprintln!("skipped: only root may mount a file system for this test");
}
