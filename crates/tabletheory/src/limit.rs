//! Limits on keys, items, transactions and conditions. They are DynamoDB's, and every backend enforces them before it
//! writes anything.
//!
//! ```
//! use tabletheory::limit;
//!
//! assert_eq!(limit::MAX_WRITES, 100);
//! assert_eq!(limit::MAX_ITEM_BYTES, 409_600);
//! ```

/// Maximum number of writes in a transaction.
pub const MAX_WRITES: usize = 100;
/// Maximum size of a transaction in bytes.
pub const MAX_TXN_BYTES: usize = 4 * 1024 * 1024;
/// Maximum size of an item in bytes, names and values together.
pub const MAX_ITEM_BYTES: usize = 400 * 1024;
/// Maximum size of a partition key in bytes.
pub const MAX_PK_BYTES: usize = 2048;
/// Maximum size of a sort key in bytes.
pub const MAX_SK_BYTES: usize = 1024;
/// Maximum size of an attribute's name in bytes: the smallest of DynamoDB's limits for names.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum nesting depth of lists and maps in a value, and of conditions in a condition.
pub const MAX_DEPTH: usize = 32;
/// Maximum number of terms (tests, values of an `IN`, and connectives) in a condition: as many as fit in DynamoDB's 4 KB.
pub const MAX_TERMS: usize = 90;
/// Maximum size of a condition in bytes: its text, names and values together.
pub const MAX_COND_BYTES: usize = 1024 * 1024;
/// Maximum number of changes in an update: as many as fit in DynamoDB's 4 KB.
pub const MAX_CHANGES: usize = 80;
/// Size in bytes of the rows after which a page ends, approximately.
pub const PAGE_BYTES: usize = 1024 * 1024;
