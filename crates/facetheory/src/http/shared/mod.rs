//! A shared HTTP cache (RFC 9111): pages whose origin says by its own headers how they are kept. One more source of policy
//! for the same engine, rows, leases and bodies, and not a second cache.
//!
//! Here are the decisions, without I/O and without a clock: what is stored (`storing`), for how long it is fresh
//! (`freshness`), how old it is (`age`), by whose directives (`directive`, `targeted`), which stored response a request
//! selects (`variant`), what it may be used for (`choice`), how a 304 changes it (`update`), and what an unsafe request
//! makes stale (`invalidation`). `fetch` asks the origin, `reply` answers a visitor.
//!
//! The crate `http-cache-semantics` is not used. It reads dates in the format of mail only, takes no list in `Age`, knows
//! neither targeted fields nor `must-understand` nor the windows of RFC 5861, and keeps a copy of the request and of the
//! response of its own, while a page has a row that other processes and other languages read.

pub(super) mod age;
pub(super) mod choice;
pub(super) mod crowd;
pub(super) mod directive;
pub(super) mod fetch;
pub(super) mod freshness;
pub(super) mod invalidation;
pub(super) mod reply;
pub(super) mod storing;
pub(super) mod targeted;
pub(super) mod update;
pub(super) mod variant;

pub(crate) use choice::Stored;
pub(crate) use variant::key as variant_key;
