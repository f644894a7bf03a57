//! Typed rows, conditions and transactions: the same code on one file on a laptop and on DynamoDB.

mod ambient;
mod attr;
mod backend;
mod cond;
mod decide;
mod error;
mod faulty;
mod item;
mod json;
pub mod limit;
mod number;
mod query;
mod size;
mod table;
mod ttl;
mod txn;
mod update;
mod value;

pub use ambient::{Clock, ManualClock, Random, SeededRandom, SystemClock, SystemRandom, Timestamp};
pub use attr::{Attr, Size};
pub use backend::memory::MemoryTable;
#[cfg(feature = "sqlite")]
pub use backend::sqlite::{SqliteSettings, SqliteTable, SweepSettings};
pub use cond::Cond;
pub use error::{Error, Kind, Result};
pub use faulty::{FaultCounts, Faults, Faulty};
pub use item::{Item, Key};
pub use number::Number;
pub use query::{Consistency, Cursor, Page, Query, Scan};
pub use table::Table;
pub use txn::{ClientToken, Commit, Txn, Write};
pub use update::{Change, Update};
pub use value::{Set, Value};
