//! Files that are damaged, replaced or removed while they are open.

use std::fs;

use super::*;

const ASIDE: &str = "table.db.damaged";

impl TestFile {
    fn aside(&self) -> PathBuf {
        self.directory.path().join(ASIDE)
    }

    /// Overwrites everything after the first page, which has the schema.
    fn destroy(&self) {
        let mut bytes = fs::read(self.path()).expect("the file");
        bytes.iter_mut().skip(4096).for_each(|byte| *byte = 7);
        fs::write(self.path(), bytes).expect("damage");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_set_aside_only_if_the_settings_say_so() {
    let damages: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes[3] ^= 1,
        |bytes| bytes.truncate(bytes.len() / 2),
        // The application id, and the version of the schema.
        |bytes| bytes[69] ^= 4,
        |bytes| bytes[60] ^= 1,
    ];
    for (index, damage) in damages.into_iter().enumerate() {
        let file = TestFile::new();
        put_rows(&file.open(), 100, |n| (format!("{n}"), Item::new())).await;
        let mut bytes = fs::read(file.path()).expect("the file");
        damage(&mut bytes);
        fs::write(file.path(), &bytes).expect("damage");
        if index != 1 {
            assert_eq!(file.try_open().expect_err("damaged").kind(), Kind::Corrupt, "damage {index}");
        }
        let _ = file.try_open().map(drop);
        assert!(!file.aside().exists(), "damage {index}");
        let table = file.open_to_replace();
        assert!(table.commit(&put("META", 1)).await.expect("a put").is_done(), "damage {index}");
        assert_eq!(n(&table, "META").await, Some(1), "damage {index}");
        assert!(table.scan(&Scan::new()).await.is_ok(), "damage {index}");
        assert_eq!(table.replacements().expect("in place"), 1, "damage {index}");
        assert!(file.aside().exists(), "damage {index}");
    }
}

#[tokio::test]
async fn a_file_of_another_program_is_never_set_aside() {
    let file = TestFile::new();
    file.raw().execute_batch("CREATE TABLE other (x)").expect("another program's table");
    let settings = settings().on_corruption(OnCorruption::Replace);
    let error = SqliteTable::open_with(file.path(), &settings, file.clock.clone()).expect_err("not ours");
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(!file.aside().exists());
}

#[tokio::test]
async fn damage_that_a_read_or_a_write_finds_begins_a_new_file_for_all_processes() {
    for writes_first in [false, true] {
        let file = TestFile::new();
        put_rows(&file.open(), 400, |n| (format!("{n:04}"), Item::from([("text", "x".repeat(150).into())])))
            .await;
        file.destroy();
        let (one, other) = (file.open_to_replace(), file.open_to_replace());
        if writes_first {
            assert!(one.commit(&put("META", 1)).await.expect("a put").is_done());
        } else {
            assert_eq!(n(&one, "0007").await, None);
            assert!(one.commit(&put("META", 1)).await.expect("a put").is_done());
        }
        assert_eq!(n(&other, "META").await, Some(1), "it continues with the new file");
        assert!(other.commit(&put("META", 2)).await.expect("a put").is_done());
        assert_eq!(n(&one, "META").await, Some(2));
        assert!(file.aside().exists());
        for table in [one, other] {
            assert_eq!(table.replacements().expect("in place"), 1);
            assert_eq!(table.verify().await.expect("a whole file"), 1);
        }
        assert_eq!(file.open().verify().await.expect("a whole file"), 1, "writes first: {writes_first}");
    }
}

#[tokio::test]
async fn with_refuse_a_damaged_file_stays_in_its_place() {
    let file = TestFile::new();
    put_rows(&file.open(), 400, |n| (format!("{n:04}"), Item::from([("text", "x".repeat(150).into())])))
        .await;
    file.destroy();
    let table = file.open();
    assert_eq!(table.commit(&put("META", 1)).await.expect_err("damaged").kind(), Kind::Corrupt);
    let read = table.get(&key("0007"), Consistency::Strong).await;
    assert_eq!(read.expect_err("damaged").kind(), Kind::Corrupt);
    assert!(!file.aside().exists());
    assert_eq!(table.replacements().expect("in place"), 0);
}

/// An acknowledged write to a file that has no name any more would be lost with the process.
#[tokio::test]
async fn a_write_to_a_file_that_was_removed_or_replaced_is_not_acknowledged() {
    for replaced in [false, true] {
        let file = TestFile::new();
        let table = file.open();
        assert!(table.commit(&put("META", 1)).await.expect("a put").is_done());
        assert_eq!(n(&table, "META").await, Some(1));
        for suffix in ["", "-wal", "-shm"] {
            fs::remove_file(format!("{}{suffix}", file.path().display())).expect("removed");
        }
        if replaced {
            drop(file.open());
        }
        let error = table.commit(&put("META", 2)).await.expect_err("lost");
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.to_string().ends_with("restart this process to use what is there now"), "{error}");
        assert!(table.replacements().is_err());
        assert!(table.get(&key("META"), Consistency::Strong).await.is_ok(), "what is open can still be read");
    }
}

#[tokio::test]
async fn with_replace_a_removed_file_is_begun_again_and_acknowledged_writes_are_in_it() {
    let file = TestFile::new();
    let (table, reader) = (file.open_to_replace(), file.open_to_replace());
    assert!(table.commit(&put("META", 1)).await.expect("a put").is_done());
    assert_eq!(n(&reader, "META").await, Some(1));
    // The log remains, and must not get into the new file.
    fs::remove_file(file.path()).expect("removed");
    drop(file.open());
    assert!(table.commit(&put("LOCK", 2)).await.expect("a put").is_done());
    assert_eq!(table.replacements().expect("in place"), 1);
    assert_eq!((n(&reader, "LOCK").await, n(&reader, "META").await), (Some(2), None));
    drop((table, reader));
    assert_eq!(n(&file.open(), "LOCK").await, Some(2));
}

#[tokio::test]
async fn a_process_does_not_continue_in_a_directory_that_took_the_place_of_its_own() {
    let file = TestFile::new();
    let path = file.directory.path().join("data/table.db");
    let data = path.parent().expect("a directory");
    fs::create_dir(data).expect("a directory");
    let settings = settings().on_corruption(OnCorruption::Replace);
    let table = SqliteTable::open_with(&path, &settings, file.clock.clone()).expect("a new file");
    assert!(table.commit(&put("META", 1)).await.expect("a put").is_done());
    fs::rename(data, file.directory.path().join("moved")).expect("renamed");
    for _ in 0..2 {
        let error = table.commit(&put("META", 2)).await.expect_err("lost");
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(table.replacements().is_err());
        // It may be an empty directory on which nothing is mounted.
        fs::create_dir_all(data).expect("a directory");
    }
    assert!(!path.exists());
}

/// Two processes write while a third one removes the file: no write that was acknowledged after the last removal is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_continue_with_a_new_file_agree_on_it() {
    const ROUNDS: i64 = 30;
    let file = TestFile::new();
    let (one, other) = (file.open_to_replace(), file.open_to_replace());
    for round in 0..ROUNDS {
        fs::remove_file(file.path()).expect("removed");
        let (left, right) = (put("one", round), put("other", round));
        let (left, right) = tokio::join!(one.commit(&left), other.commit(&right));
        assert!(left.expect("a put").is_done() && right.expect("a put").is_done());
        let fresh = file.open();
        assert_eq!((n(&fresh, "one").await, n(&fresh, "other").await), (Some(round), Some(round)));
    }
}
