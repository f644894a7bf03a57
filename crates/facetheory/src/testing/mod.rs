//! Fixtures that the test suites of the workspace share: a clock that follows tokio's paused time, tables whose calls a
//! test observes or changes, and a site over them. Compiled only with the feature `testing`; not part of the stable API.

mod clock;
mod counted_table;
mod observed_table;
mod site;

pub use clock::RuntimeClock;
pub use counted_table::CountedTable;
pub use observed_table::{Call, ObservedTable, TableHooks};
pub use site::{Site, settle};
