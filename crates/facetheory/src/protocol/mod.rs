//! The protocol as pure functions and data: rows, leases, publishing, requests, invalidation, rollback, freshness, retention.

pub(crate) mod attribute;
pub(crate) mod cache_key;
pub(crate) mod epoch;
pub(crate) mod freshness;
pub(crate) mod generation;
pub(crate) mod invalidate;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod publish;
pub(crate) mod request;
pub(crate) mod retention;
pub(crate) mod rollback;
pub(crate) mod row;
pub(crate) mod ttl;
pub(crate) mod version_id;
