//! Damaged files of blobs.

use std::path::Path;

use tabletheory::SqliteBlobs;

use super::*;

/// The bytes of a file of blobs.
async fn stored(blobs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let file = TestFile::new();
    let store = open(&file.path()).expect("a new file");
    for (name, bytes) in blobs {
        assert!(store.create(name, bytes.clone()).await.expect("a create"));
    }
    drop(store);
    std::fs::read(file.path()).expect("the file after a checkpoint")
}

fn open(path: &Path) -> tabletheory::Result<SqliteBlobs> {
    let settings = SqliteSettings::default().busy_timeout(Duration::from_millis(20));
    SqliteBlobs::open_with(path, &settings, Arc::new(ManualClock::at(Timestamp::from_seconds(NOW))))
}

#[tokio::test]
async fn a_blob_is_never_read_under_another_name() {
    let (name, other) = ("a/one", "a/two");
    let bytes = stored(&[(name.to_owned(), b"bytes".to_vec())]).await;
    let places: Vec<usize> =
        (0..bytes.len()).filter(|at| bytes[*at..].starts_with(name.as_bytes())).collect();
    assert_eq!(places.len(), 2, "in the row and in the index");
    let mut damages: Vec<Vec<usize>> = places.iter().map(|place| vec![*place]).collect();
    damages.push(places);
    for damage in damages {
        let mut damaged = bytes.clone();
        for place in &damage {
            damaged[*place..][..other.len()].copy_from_slice(other.as_bytes());
        }
        let file = TestFile::new();
        std::fs::write(file.path(), &damaged).expect("the damaged file");
        let store = open(&file.path()).expect("the file opens");
        let read = store.get(other).await;
        assert!(!matches!(read, Ok(Some(_))), "{damage:?}: {read:?}");
        assert_eq!(store.try_get(other), None, "{damage:?}");
    }
}

#[tokio::test]
async fn the_space_of_deleted_blobs_is_counted_and_can_be_returned_to_the_disk() {
    let file = TestFile::new();
    let store = open(&file.path()).expect("a new file");
    for n in 0..20 {
        assert!(store.create(&n.to_string(), vec![0; 100_000]).await.expect("a create"));
    }
    let full = store.usage().await.expect("a reading");
    assert!(full.used_bytes() >= 2_000_000 && full.free_bytes < 100_000, "{full:?}");
    for n in 0..19 {
        assert!(store.delete(&n.to_string()).await.expect("a delete"));
    }
    let free = store.usage().await.expect("a reading");
    assert!(free.free_bytes >= 1_900_000, "{free:?}");
    assert_eq!(free.file_bytes, full.file_bytes, "deleting does not shrink the file");
    store.shrink(1_000_000).await.expect("a part of it");
    let smaller = store.usage().await.expect("a reading");
    let returned = free.file_bytes - smaller.file_bytes;
    assert!((1_000_000..1_100_000).contains(&returned), "{returned}");
    assert_eq!(store.get("19").await.expect("a get").expect("a blob").bytes, vec![0; 100_000]);
}

#[tokio::test]
async fn the_lengths_of_recorded_files_are_added_up_once_each() {
    let file = TestFile::new();
    let store = open(&file.path()).expect("a new file");
    for (name, length) in [("a", 10), ("b", 5), ("a", 10)] {
        store.record_file(name, length).await.expect("a record");
    }
    assert_eq!(open(&file.path()).expect("another process").recorded_bytes().await.expect("a sum"), 15);
    for name in ["a", "a", "none"] {
        store.forget_file(name).await.expect("no error");
    }
    assert_eq!(store.recorded_bytes().await.expect("a sum"), 5);
}

/// Every blob that is read from a damaged file must be the one that was stored.
#[tokio::test]
async fn flipped_bits_and_truncated_files_never_return_wrong_bytes() {
    let random = SeededRandom::new(71);
    let up_to = |most: usize| usize::try_from(random.next_u64() % most as u64).expect("a small number");
    let lengths = (0..60).map(|n| up_to([100, 5_000, 40_000][n % 3]));
    let blobs: Vec<(String, Vec<u8>)> = lengths
        .enumerate()
        .map(|(n, length)| {
            (format!("a/{n:02}"), (0..length).map(|at| (at % 251 + n).to_le_bytes()[0]).collect())
        })
        .collect();
    let bytes = stored(&blobs).await;
    let mut outcomes = std::collections::BTreeMap::new();
    for round in 0..400 {
        let mut damaged = bytes.clone();
        if round % 4 == 0 {
            damaged.truncate(up_to(bytes.len()));
        } else {
            for _ in 0..=up_to(8) {
                damaged[up_to(bytes.len())] ^= 1 << up_to(8);
            }
        }
        let file = TestFile::new();
        std::fs::write(file.path(), &damaged).expect("the damaged file");
        let outcome = read_everything(&file.path(), &blobs).await;
        *outcomes.entry(outcome).or_insert(0) += 1;
    }
    println!("{outcomes:?}");
    assert!(outcomes["corrupt"] > 100, "damage is detected: {outcomes:?}");
}

async fn read_everything(path: &Path, blobs: &[(String, Vec<u8>)]) -> &'static str {
    let check = |error: tabletheory::Error| {
        assert!(matches!(error.kind(), Kind::Corrupt | Kind::Invalid), "{error:?}");
        "corrupt"
    };
    let store = match open(path) {
        Ok(store) => store,
        Err(error) => return check(error),
    };
    let mut outcome = "intact";
    for (name, bytes) in blobs {
        match store.get(name).await {
            Ok(Some(found)) => assert!(&found.bytes == bytes, "wrong bytes of {name}"),
            Ok(None) => outcome = "missing",
            Err(error) => outcome = check(error),
        }
        assert!(store.try_get(name).is_none_or(|found| found == *bytes), "wrong bytes of {name}");
    }
    // Neither listing nor writing may panic.
    if let Err(error) = store.list("", None, 1000).await {
        outcome = check(error);
    }
    match store.replace("a/00", b"new".to_vec()).await {
        Ok(()) => match store.get("a/00").await {
            // A damaged index can hide a blob from a replacement, which it then finds again.
            Ok(found) => {
                let is_a_version = |bytes: &[u8]| bytes == b"new" || bytes == blobs[0].1;
                assert!(found.is_none_or(|found| is_a_version(&found.bytes)), "wrong bytes of a/00");
            }
            Err(error) => outcome = check(error),
        },
        Err(error) => outcome = check(error),
    }
    outcome
}
