//! What a cached page is, and how it is renewed by exactly one worker.

mod attribute;
mod cache_key;
mod epoch;
mod error;
mod generation;
mod key;
mod row;

pub use cache_key::CacheKey;
pub use epoch::{Epoch, Tag};
pub use error::{Error, Kind, Result};
pub use generation::{Content, Generation};
pub use key::{KeyScheme, MAX_CACHE_KEY_BYTES, PageKey, Tenant};
pub use row::{Lock, Meta, Request, RequestStatus, Version};
