//! What a cached page is, and how it is renewed by exactly one worker.

mod attribute;
mod cache_key;
mod epoch;
mod error;
mod freshness;
mod generation;
mod key;
mod lease;
mod publish;
mod row;
mod store;
mod version_id;

pub use cache_key::CacheKey;
pub use epoch::{Epoch, Tag};
pub use error::{Error, Kind, Result};
pub use freshness::Freshness;
pub use generation::{Content, Generation};
pub use key::{KeyScheme, MAX_CACHE_KEY_BYTES, PageKey, Tenant};
pub use lease::{Acquire, Lease, LeaseTerms};
pub use publish::{Guards, Publication};
pub use row::{Lock, Meta, Request, RequestStatus, Version};
pub use store::{Keep, PageStore, Published, Refresh, View};
pub use version_id::VersionId;
