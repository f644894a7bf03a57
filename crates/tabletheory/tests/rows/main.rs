//! Typed rows: saves with versions and times, queries, and transactions of several models.

mod interop;
#[path = "../support/row.rs"]
mod row;
mod saving;
mod transaction;

use std::sync::Arc;
use std::time::Duration;

use row::{CacheLease, CacheMetadata, Document, NOW, lease, metadata};
use tabletheory::{
    ClientToken, Commit, Consistency, Item, Key, ManualClock, MemoryTable, Model, Query, Saved, Set, Table,
    TableExt, Timestamp, Txn, Update, Value, Write,
};

/// A table with a manual clock.
fn table() -> (MemoryTable, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
    (MemoryTable::with_clock(clock.clone()), clock)
}

fn document(title: &str) -> Document {
    Document { pk: "DOC#1".into(), sk: "BODY".into(), title: title.into(), ..Document::default() }
}

/// A model whose version may be absent.
#[derive(Model, Clone, Debug)]
struct Versioned {
    #[model(pk)]
    pk: String,
    #[model(sk)]
    sk: String,
    #[model(version, omitempty)]
    version: i64,
}
