//! Models for several tests.
#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../examples/cache/mod.rs"]
mod cache;

use tabletheory::Model;

pub(crate) use cache::CacheLease;

pub(crate) const NOW: i64 = 1_700_000_000;

/// The metadata row with `omitempty` instead of options.
#[derive(Model, Clone, Debug, PartialEq)]
#[model(table_env = "FACETHEORY_CACHE_TABLE_NAME")]
pub(crate) struct CacheMetadata {
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    pub(crate) s3_key: String,
    pub(crate) generated_at: i64,
    pub(crate) revalidate_seconds: i64,
    #[model(omitempty)]
    pub(crate) etag: String,
    #[model(ttl, omitempty)]
    pub(crate) ttl: i64,
}

/// A model with all maintained attributes.
#[derive(Model, Clone, Debug, Default, PartialEq)]
pub(crate) struct Document {
    pub(crate) title: String,
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    #[model(version)]
    pub(crate) version: i64,
    #[model(created_at)]
    pub(crate) created: Option<i64>,
    #[model(updated_at)]
    pub(crate) updated: i64,
}

pub(crate) fn metadata() -> CacheMetadata {
    CacheMetadata {
        pk: "CACHE#1".into(),
        sk: "META".into(),
        s3_key: "pages/1.html".into(),
        generated_at: NOW,
        revalidate_seconds: 60,
        etag: "\"abc123\"".into(),
        ttl: NOW + 86_400,
    }
}

pub(crate) fn lease(token: &str) -> CacheLease {
    CacheLease {
        pk: "CACHE#1".into(),
        sk: "LOCK".into(),
        lease_token: token.into(),
        lease_expires_at: NOW + 30,
        ttl: None,
    }
}
