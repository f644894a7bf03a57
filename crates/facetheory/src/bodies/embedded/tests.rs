//! Unit tests of the embedded object store.

mod differential;

use tabletheory::{Random as _, SeededRandom};

use super::*;

const LARGE: usize = MAX_BLOB_BYTES + 1;

fn open(directory: &tempfile::TempDir) -> EmbeddedObjects {
    let files = LocalFileSystem::new_with_prefix(directory.path()).expect("a directory");
    EmbeddedObjects::open(directory.path(), files.with_automatic_cleanup(true)).expect("a store")
}

async fn create(objects: &dyn ObjectStore, name: &str, length: usize) -> Result<PutResult> {
    let options = PutOptions::from(PutMode::Create);
    objects.put_opts(&Path::from(name), vec![b'x'; length].into(), options).await
}

async fn names(objects: &EmbeddedObjects, prefix: Option<&str>) -> Vec<String> {
    let prefix = prefix.map(Path::from);
    let listed: Vec<ObjectMeta> = objects.list(prefix.as_ref()).try_collect().await.expect("a list");
    listed.iter().map(|object| object.location.to_string()).collect()
}

#[tokio::test]
async fn small_objects_are_in_one_file_and_large_ones_in_files_of_their_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let objects = open(&directory);
    for (name, length) in [("isr/a/1", MAX_BLOB_BYTES), ("isr/a/2", LARGE)] {
        create(&objects, name, length).await.expect("created");
        assert_eq!(directory.path().join(name).exists(), length == LARGE, "{name}");
        let read = objects.get(&Path::from(name)).await.expect("it is there");
        assert_eq!(read.meta.size, u64::try_from(length).expect("a small number"));
        assert_eq!(read.bytes().await.expect("bytes").len(), length);
        let taken = create(&objects, name, length).await.expect_err("the name is taken");
        assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken}");
        objects.delete(&Path::from(name)).await.expect("deleted");
        let missing = objects.get(&Path::from(name)).await.expect_err("it is gone");
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    }
}

#[tokio::test]
async fn an_object_can_be_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let objects = open(&directory);
    let path = Path::from("isr/probe");
    for text in ["one", "two"] {
        objects.put(&path, text.into()).await.expect("stored");
        let read = objects.get(&path).await.expect("it is there").bytes().await.expect("bytes");
        assert_eq!(read, text);
    }
}

#[tokio::test]
async fn the_objects_of_a_directory_are_listed_together_and_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let objects = open(&directory);
    for number in 0..BLOBS_PER_READ {
        create(&objects, &format!("isr/b/{number:04}"), 1).await.expect("created");
    }
    for (name, length) in [
        ("isr/a/2", LARGE),
        ("isr/a/1", 1),
        ("isr/b/large", LARGE),
        ("isr/c/1", LARGE),
        ("isr/d/1", 1),
        ("x/1", 1),
    ] {
        create(&objects, name, length).await.expect("created");
    }
    let names = names(&objects, Some("isr")).await;
    let mut directories: Vec<&str> = names.iter().map(|name| &name[..5]).collect();
    directories.dedup();
    assert_eq!(directories, ["isr/a", "isr/b", "isr/d", "isr/c"], "none comes twice");
    assert_eq!(names.len(), 5 + BLOBS_PER_READ as usize);
    let unique: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    let below = objects.list_with_delimiter(Some(&Path::from("isr"))).await.expect("a list");
    let prefixes: Vec<&str> = below.common_prefixes.iter().map(Path::as_ref).collect();
    assert_eq!((prefixes, below.objects.len()), (vec!["isr/a", "isr/b", "isr/c", "isr/d"], 0));
    let below = objects.list_with_delimiter(Some(&Path::from("isr/a"))).await.expect("a list");
    assert_eq!(below.objects.len(), 2);
}

#[tokio::test]
async fn a_directory_of_an_earlier_version_is_read_listed_and_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = LocalFileSystem::new_with_prefix(directory.path()).expect("a directory");
    create(&files, "isr/a/1", 5).await.expect("created");
    let objects = open(&directory);
    assert_eq!(
        objects.get(&Path::from("isr/a/1")).await.expect("a file").bytes().await.expect("bytes").len(),
        5
    );
    assert_eq!(names(&objects, None).await, ["isr/a/1"], "the SQLite file is not an object");
    objects.delete(&Path::from("isr/a/1")).await.expect("deleted");
    assert!(!directory.path().join("isr/a/1").exists());
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_a_new_one_is_begun() {
    let damages: [fn(&mut Vec<u8>); 3] = [
        |bytes| bytes[3] ^= 1,
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes.iter_mut().skip(4096).for_each(|byte| *byte = 7),
    ];
    for (index, damage) in damages.into_iter().enumerate() {
        let directory = tempfile::tempdir().expect("a directory");
        let objects = open(&directory);
        for number in 0..100 {
            create(&objects, &format!("isr/a/{number}"), 8192).await.expect("created");
        }
        drop(objects);
        let file = directory.path().join(FILE);
        let mut bytes = std::fs::read(&file).expect("a file");
        damage(&mut bytes);
        std::fs::write(&file, bytes).expect("damage");
        let objects = open(&directory);
        let last = Path::from("isr/a/99");
        let missing = objects.get(&last).await.expect_err("damaged");
        assert!(matches!(missing, Error::NotFound { .. }), "damage {index}: {missing}");
        create(&objects, "isr/a/new", 8192).await.expect("created");
        create(&objects, "isr/a/99", 1).await.expect("created");
        assert_eq!(objects.get(&last).await.expect("it is there").meta.size, 1, "damage {index}");
        assert!(directory.path().join("bodies.db.damaged").exists(), "damage {index}");
    }
}

#[tokio::test]
async fn a_damaged_object_counts_as_missing() {
    let directory = tempfile::tempdir().expect("a directory");
    let objects = open(&directory);
    create(&objects, "isr/a/1", 8192).await.expect("created");
    drop(objects);
    let file = directory.path().join(FILE);
    let mut bytes = std::fs::read(&file).expect("a file");
    let at = bytes.windows(64).rposition(|window| window == [b'x'; 64]).expect("the object");
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).expect("damage");
    let missing = open(&directory).get(&Path::from("isr/a/1")).await.expect_err("damaged");
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
}

/// Flips bits and cuts the file off: an object is read as it was stored, or it is missing, and new ones can be stored.
#[tokio::test]
async fn random_damage_never_returns_wrong_bytes_and_never_prevents_storing() {
    let bytes_of = |number: u8| vec![number; usize::from(number) * 400];
    let directory = tempfile::tempdir().expect("a directory");
    let objects = open(&directory);
    for number in 0..60 {
        let name = Path::from(format!("isr/a/{number}"));
        objects.put(&name, bytes_of(number).into()).await.expect("stored");
    }
    drop(objects);
    let intact = std::fs::read(directory.path().join(FILE)).expect("a file");
    let random = SeededRandom::new(72);
    let up_to = |most: usize| usize::try_from(random.next_u64() % most as u64).expect("a small number");
    let mut missing = 0;
    for round in 0..100 {
        let mut bytes = intact.clone();
        if round % 4 == 0 {
            bytes.truncate(up_to(bytes.len()));
        } else {
            for _ in 0..=up_to(8) {
                // The header, which says what the file is, has a test of its own.
                bytes[100 + up_to(intact.len() - 100)] ^= 1 << up_to(8);
            }
        }
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join(FILE), bytes).expect("damage");
        let objects = open(&directory);
        for number in 0..60 {
            match objects.get(&Path::from(format!("isr/a/{number}"))).await {
                Ok(found) => {
                    let read = found.bytes().await.expect("bytes");
                    assert!(read == bytes_of(number), "round {round}: wrong bytes of {number}");
                }
                Err(Error::NotFound { .. }) => missing += 1,
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        create(&objects, "isr/b/new", 8192).await.expect("created");
        assert!(objects.get(&Path::from("isr/b/new")).await.is_ok(), "round {round}");
    }
    assert!(missing > 100, "damage is detected: {missing}");
}
