//! The steps of the protocol, for programs that run their own regeneration loop or read the rows themselves.
//!
//! Most programs need none of this: [`Isr`](crate::Isr) and [`Pages`](crate::Pages) perform these steps. Everything here is
//! data and pure functions: rows and the time go in, a [`Txn`](tabletheory::Txn) or a decision comes out.
//! [`PageStore`](crate::PageStore) runs the transactions on a table.
//!
//! | step | types | transaction |
//! |---|---|---|
//! | decide whether a page is fresh | [`Meta`], [`Freshness`], [`Epoch`], [`EpochTerms`], [`SeenEpochs`] | none: [`Meta::freshness_with`] |
//! | acquire the lease | [`Lease`], [`LeaseTerms`], [`Acquire`], [`Lock`] | [`Lease::acquire`] puts `LOCK` if it is free or expired |
//! | refresh it while rendering | [`Refresh`] | [`Lease::refresh`] extends `LOCK` if the token is still ours |
//! | publish the render | [`Publication`], [`Generation`], [`Content`], [`Guards`], [`Published`] | [`Publication`] writes `META` (and `VER#`) and deletes `LOCK` |
//! | give the lease back | [`Lease`] | [`Lease::release`] deletes `LOCK` if the token is ours |
//! | execute a request once | [`request_hash`], [`Request`], [`RequestTerms`], [`Begin`], [`Claim`] | `REQ#` is created together with `LOCK`, completed together with `META` |
//! | announce a change to other processes | [`FeedEntry`] | `FEED#` rows are put after the change |
//! | retain earlier versions | [`Version`], [`VersionId`], [`Ttls`] | `VER#` rows are written by a publish, and expire by `ttl` |
//!
//! The wire format of the rows, which services in other languages share, is described in `docs/reference/wire-format.md`.

pub(crate) mod attribute;
pub(crate) mod cache_key;
pub(crate) mod digest;
pub(crate) mod epoch;
pub(crate) mod eviction;
pub(crate) mod extend;
pub(crate) mod feed;
pub(crate) mod freshness;
pub(crate) mod generation;
pub(crate) mod invalidate;
pub(crate) mod javascript;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod path_of_key;
pub(crate) mod pointer;
pub(crate) mod publish;
pub(crate) mod quota;
pub(crate) mod replacement;
pub(crate) mod request;
pub(crate) mod request_hash;
pub(crate) mod retention;
pub(crate) mod rollback;
pub(crate) mod row;
pub(crate) mod seen_epochs;
pub(crate) mod tag;
pub(crate) mod ttl;
pub(crate) mod version_id;

pub use epoch::{Epoch, EpochTerms};
pub use feed::FeedEntry;
pub use freshness::Freshness;
pub use generation::{Content, Generation};
pub use key::MAX_CACHE_KEY_BYTES;
pub use lease::{Acquire, Lease, LeaseTerms, Refresh};
pub use publish::{Guards, Publication, Published};
pub use request::{Begin, Claim, RequestTerms};
pub use request_hash::request_hash;
pub use row::{Lock, Meta, Request, RequestStatus, Version, View};
pub use seen_epochs::SeenEpochs;
pub use ttl::Ttls;
pub use version_id::VersionId;

pub(crate) use invalidate::{Found, Invalidated, InvalidationMode};
pub(crate) use key::{PageKey, Tenant};
pub(crate) use pointer::StoredMeta;
pub(crate) use publish::History;
pub(crate) use request::{IdempotentRequest, RequestDecision, RequestStep};
pub(crate) use retention::Retention;
pub(crate) use rollback::{Rollback, RolledBack};
pub(crate) use tag::Tag;
