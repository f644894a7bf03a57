//! Rows that several tests save and read.
#![allow(dead_code, reason = "each test uses some of them")]

use tabletheory::Model;

pub(crate) const NOW: i64 = 1_700_000_000;

/// The seeds' metadata row.
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

/// The seeds' lease row.
#[derive(Model, Clone, Debug, PartialEq)]
pub(crate) struct CacheLease {
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    pub(crate) lease_token: String,
    pub(crate) lease_expires_at: i64,
    #[model(ttl)]
    pub(crate) ttl: Option<i64>,
}

/// A row with every role.
#[derive(Model, Clone, Debug, Default, PartialEq)]
pub(crate) struct Document {
    #[model(pk)]
    pub(crate) pk: String,
    #[model(sk)]
    pub(crate) sk: String,
    pub(crate) title: String,
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
