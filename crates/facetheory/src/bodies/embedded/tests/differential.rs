//! Random operations have the same results as on the object store in memory.

use object_store::GetRange;
use object_store::memory::InMemory;
use tabletheory::{Random as _, SeededRandom};

use super::*;

const SEEDS: u64 = 20;
const OPERATIONS: u32 = 150;
/// Names of small objects end with a digit, those of large ones with `large`: a body is written once, so none ever becomes
/// larger.
const LAST_PARTS: [&str; 6] = ["0", "1", "2", "3", "4", "large"];
const PREFIXES: [&str; 5] = ["isr/a", "isr/b", "isr/b/nested", "isr", "other"];

#[derive(Debug, Clone)]
enum Operation {
    Put { name: String, mode: PutMode, bytes: Bytes },
    Get { name: String, range: Option<GetRange> },
    Head { name: String },
    Delete { name: String },
    List { prefix: Option<Path>, after: Option<Path> },
    ListWithDelimiter { prefix: Option<Path> },
}

fn random_operation(random: &SeededRandom) -> Operation {
    let below = |bound: u64| random.next_u64() % bound;
    let index = |length: usize| usize::try_from(below(length as u64)).expect("a small number");
    let last = LAST_PARTS[index(LAST_PARTS.len())];
    let name = format!("{}/{last}", PREFIXES[index(PREFIXES.len())]);
    let prefix = || (below(6) > 0).then(|| Path::from(PREFIXES[index(PREFIXES.len())]));
    let range = || match below(5) {
        0 => None,
        1 => Some(GetRange::Offset(below(300))),
        2 => Some(GetRange::Suffix(below(300))),
        _ => {
            let start = below(300);
            Some(GetRange::Bounded(start..start + below(100)))
        }
    };
    match below(12) {
        0..=3 => {
            let least = if last == "large" { LARGE } else { 0 };
            let bytes = Bytes::from(vec![u8::try_from(below(256)).expect("a byte"); least + index(300)]);
            let mode = if below(2) == 0 { PutMode::Create } else { PutMode::Overwrite };
            Operation::Put { name, mode, bytes }
        }
        4..=6 => Operation::Get { name, range: range() },
        7 => Operation::Head { name },
        8..=9 => Operation::Delete { name },
        10 => {
            let after = (below(2) == 0).then(|| Path::from(name));
            Operation::List { prefix: prefix(), after }
        }
        _ => Operation::ListWithDelimiter { prefix: prefix() },
    }
}

/// The result of an operation, without the parts that depend on the store: times, tags and the texts of errors.
#[derive(Debug, PartialEq)]
enum Outcome {
    Done,
    Read { bytes: Bytes, range: std::ops::Range<u64>, location: Path, size: u64 },
    Described { location: Path, size: u64 },
    Listed { objects: Vec<(Path, u64)>, prefixes: Vec<Path> },
    NotFound,
    AlreadyExists,
    Failed,
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound { .. } => Outcome::NotFound,
            Error::AlreadyExists { .. } => Outcome::AlreadyExists,
            _ => Outcome::Failed,
        }
    }
}

/// Objects are listed in any order.
fn listed(objects: Vec<ObjectMeta>, mut prefixes: Vec<Path>) -> Outcome {
    let mut objects: Vec<_> = objects.into_iter().map(|object| (object.location, object.size)).collect();
    objects.sort_unstable();
    prefixes.sort_unstable();
    Outcome::Listed { objects, prefixes }
}

async fn perform(objects: &dyn ObjectStore, operation: Operation) -> Outcome {
    try_perform(objects, operation).await.unwrap_or_else(Outcome::from)
}

async fn try_perform(objects: &dyn ObjectStore, operation: Operation) -> Result<Outcome> {
    Ok(match operation {
        Operation::Put { name, mode, bytes } => {
            objects.put_opts(&Path::from(name), bytes.into(), mode.into()).await?;
            Outcome::Done
        }
        Operation::Get { name, range } => {
            let options = GetOptions { range, ..GetOptions::default() };
            let found = objects.get_opts(&Path::from(name), options).await?;
            let (range, location, size) = (found.range.clone(), found.meta.location.clone(), found.meta.size);
            Outcome::Read { bytes: found.bytes().await?, range, location, size }
        }
        Operation::Head { name } => {
            let found = objects.head(&Path::from(name)).await?;
            Outcome::Described { location: found.location, size: found.size }
        }
        Operation::Delete { name } => match objects.delete(&Path::from(name)).await {
            // Stores may tell that the object did not exist.
            Ok(()) | Err(Error::NotFound { .. }) => Outcome::Done,
            Err(error) => return Err(error),
        },
        Operation::List { prefix, after } => {
            let list = match after {
                Some(after) => objects.list_with_offset(prefix.as_ref(), &after),
                None => objects.list(prefix.as_ref()),
            };
            listed(list.try_collect().await?, vec![])
        }
        Operation::ListWithDelimiter { prefix } => {
            let list = objects.list_with_delimiter(prefix.as_ref()).await?;
            listed(list.objects, list.common_prefixes)
        }
    })
}

#[tokio::test]
async fn random_operations_have_the_same_results_as_in_memory() {
    let mut reads = 0;
    for seed in 0..SEEDS {
        let directory = tempfile::tempdir().expect("a directory");
        let (embedded, memory) = (open(&directory), InMemory::new());
        let random = SeededRandom::new(seed);
        for number in 0..OPERATIONS {
            let operation = random_operation(&random);
            let described = match &operation {
                Operation::Put { name, mode, bytes } => format!("put {name} {mode:?} {} bytes", bytes.len()),
                other => format!("{other:?}"),
            };
            let expected = perform(&memory, operation.clone()).await;
            reads += u32::from(matches!(expected, Outcome::Read { .. }));
            let same = perform(&embedded, operation).await == expected;
            assert!(same, "seed {seed}, operation {number}: {described} should have been {expected:?}");
        }
    }
    assert!(reads > 200, "{reads} objects were read");
}
