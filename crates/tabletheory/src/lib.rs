//! Typed rows, conditions and transactions, with the same behaviour on SQLite, on DynamoDB and in memory.
//!
//! - Rows are structs that derive [`Model`], saved and read through [`TableExt::rows`].
//! - [`Attr`] creates conditions ([`Cond`]) and changes ([`Update`]); a [`Txn`] combines several writes.
//! - A refused condition is a value ([`Commit::Refused`]); the [`Kind`] of an [`Error`] tells the caller how to react.
//! - [`LeaseManager`] grants leases, for mutual exclusion between processes, on any key.
//! - [`MemoryTable`], `SqliteTable` and `DynamoTable` implement [`Table`]; [`open`] opens any of them by its [`Address`].
//!
//! ```
//! use tabletheory::{Attr, Commit, Item, Key, Table, Txn, Value, Write};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
//! const PK: Attr<String> = Attr::new("pk");
//! const EXPIRES: Attr<i64> = Attr::new("lease_expires_at");
//!
//! let table = tabletheory::open("memory:").await?;
//! let lease = |token: &str, until: i64| {
//!     let row = Item::from([("lease_token", Value::from(token)), ("lease_expires_at", until.into())]);
//!     let free = PK.absent().or(EXPIRES.le(until - 30));
//!     Txn::from(Write::put(Key::new("CACHE#1", "LOCK"), row).when(free))
//! };
//! assert_eq!(table.commit(&lease("one", 130)).await?, Commit::Done);
//! // A second attempt is refused, and the refusal contains the row, which says until when the lease is held.
//! match table.commit(&lease("other", 140)).await? {
//!     Commit::Refused { seen: Some(row), .. } => assert_eq!(row.get("lease_expires_at"), Some(&130.into())),
//!     other => panic!("{other:?}"),
//! }
//! # Ok(()) }
//! ```

mod address;
mod attr;
mod backend;
mod backoff;
mod check;
mod clock;
mod cond;
mod convert;
mod error;
mod eval;
mod expression;
mod faulty;
mod field;
mod item;
mod json;
mod lease;
pub mod limit;
mod log_limit;
mod model;
mod number;
mod private_directory;
mod query;
mod random;
mod rows;
mod size;
mod table;
mod table_ext;
mod time_form;
mod timestamps;
mod transaction;
mod ttl;
mod txn;
mod update;
mod use_order;
mod value;

pub use address::{Address, open};
pub use attr::{Attr, Encoded, Size};
#[cfg(feature = "dynamodb")]
pub use backend::dynamodb::{DynamoSettings, DynamoTable};
pub use backend::memory::MemoryTable;
#[cfg(feature = "sqlite")]
pub use backend::sqlite::{
    Blob, BlobInfo, OnCorruption, SqliteBlobs, SqliteSettings, SqliteTable, SweepSettings,
};
pub use backoff::Backoff;
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use cond::Cond;
pub use convert::{from_value, to_value};
pub use error::{Error, Kind, Result, is_storage_full};
pub use faulty::{FaultCounts, Faults, Faulty};
pub use item::{Item, Key};
pub use lease::{Acquire, Lease, LeaseManager, LeaseTerms, Refresh};
pub use log_limit::LogLimit;
pub use model::{Model, Roles};
pub use number::Number;
pub use private_directory::create_private_directory;
pub use query::{Consistency, Cursor, Page, Query, Scan};
pub use random::{Random, SeededRandom, SystemRandom};
pub use rows::{Edit, Rows, Save, Saved};
pub use table::Table;
pub use table_ext::TableExt;
pub use time_form::TimeForm;
pub use transaction::Transaction;
pub use txn::{ClientToken, Commit, Txn, Write};
pub use update::{Change, Update};
pub use use_order::{FileUsage, TableUsage, USED_AT};
pub use value::{Set, Value};
// For `#[model(with = "tabletheory::string_set")]`: a list in Rust that is stored as a set.
pub use serde_dynamo::{binary_set, number_set, string_set};

/// Used by derived code; not part of the public API.
#[doc(hidden)]
pub mod __private {
    pub use serde::{Deserialize, Serialize};

    pub use crate::field::{RowReader, RowWriter, bytes};
}

/// Types for creating, describing and verifying tables on DynamoDB, and for observing requests to it.
#[cfg(feature = "dynamodb")]
pub mod dynamodb {
    pub use crate::backend::dynamodb::{
        Creation, Description, Feature, KeyPart, OPERATIONS, Observation, Observer, Operation, Permission,
        Problem, Purpose, RequestOutcome, SetupStep, TableSetup, error_code, is_denied,
    };
}
