//! Bad input of every kind, with exactly the results that `docs/internals/bad-input.md` lists.
//!
//! The tables of the document are the expectations: the tests run every line, and no line may be missing or left over.

mod attribute;
mod clock;
mod damage;
mod duration;
mod name;
mod number;

use std::sync::Arc;

use facetheory::{Bodies, PageKey, PageStore, Pages};
use tabletheory::{Item, Key, ManualClock, MemoryTable, SeededRandom, Table as _, Timestamp, Txn, Write};

const NOW: i64 = 1_700_000_000;

/// A page in a table whose clock a test sets.
struct Site {
    table: Arc<MemoryTable>,
    clock: Arc<ManualClock>,
    store: PageStore,
    pages: Pages,
    page: PageKey,
}

impl Site {
    fn new() -> Site {
        Site::with(|store| store)
    }

    fn with(change: impl FnOnce(PageStore) -> PageStore) -> Site {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        let table = Arc::new(MemoryTable::with_clock(clock.clone()));
        let store = change(PageStore::new(table.clone()).with_random(Arc::new(SeededRandom::new(7))));
        let pages = Pages::new(store.clone(), Bodies::memory());
        Site { table, clock, store, pages, page: PageKey::new("/").expect("a page") }
    }

    async fn put(&self, key: Key, item: Item) {
        let done = self.table.commit(&Txn::from(Write::put(key, item))).await.expect("no error");
        assert!(done.is_done());
    }

    fn set_clock(&self, seconds: i64) {
        self.clock.set(Timestamp::from_seconds(seconds));
    }
}

/// Fails unless the table under this heading of the document has exactly these lines.
fn assert_documented(heading: &str, tried: &[Vec<String>]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/bad-input.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let lines = document.lines().skip_while(|line| *line != format!("## {heading}")).skip(1);
    let section = lines.take_while(|line| !line.starts_with("## "));
    let table: Vec<&str> = section.filter(|line| line.starts_with('|')).skip(2).collect();
    let tried: Vec<String> = tried.iter().map(|cells| format!("| {} |", cells.join(" | "))).collect();
    assert!(
        table == tried,
        "docs/internals/bad-input.md, \"{heading}\", is\n{}\n\nbut must be\n{}\n",
        table.join("\n"),
        tried.join("\n")
    );
}

/// A result as the document describes it: the value, or the error.
fn describe<T>(result: facetheory::Result<T>, describe: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => describe(value),
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}
