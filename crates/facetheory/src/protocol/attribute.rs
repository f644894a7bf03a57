//! The names of attributes in the table. All but the last group are shared with other languages.

use tabletheory::{Attr, Set, Value};

pub(crate) const PK: Attr<String> = Attr::new("pk");

// META and VER#.
pub(crate) const S3_KEY: Attr<String> = Attr::new("s3_key");
pub(crate) const GENERATED_AT: Attr<i64> = Attr::new("generated_at");
pub(crate) const REVALIDATE_SECONDS: Attr<i64> = Attr::new("revalidate_seconds");
pub(crate) const ETAG: Attr<String> = Attr::new("etag");
pub(crate) const TTL: Attr<i64> = Attr::new("ttl");
pub(crate) const CURRENT_SK: Attr<String> = Attr::new("current_sk");
pub(crate) const VERSION: Attr<u64> = Attr::new("version");

// LOCK and REQ#.
pub(crate) const LEASE_TOKEN: Attr<String> = Attr::new("lease_token");
pub(crate) const LEASE_EXPIRES_AT: Attr<i64> = Attr::new("lease_expires_at");
pub(crate) const REQUEST_HASH: Attr<String> = Attr::new("request_hash");
pub(crate) const STATUS: Attr<String> = Attr::new("status");
pub(crate) const RESULT_S3_KEY: Attr<String> = Attr::new("result_s3_key");

// Tags.
pub(crate) const INVALIDATED_AT: Attr<i64> = Attr::new("invalidated_at");
pub(crate) const SEQ: Attr<u64> = Attr::new("seq");
// Of META too, where it is our own.
pub(crate) const EXPIRED_AT: Attr<i64> = Attr::new("expired_at");

// The change feed.
pub(crate) const CHANGED: Attr<String> = Attr::new("changed");

// Our own: no reader may require them, and a put of META by another language removes them.
pub(crate) const CACHE_KEY: Attr<String> = Attr::new("cache_key");
pub(crate) const PATH: Attr<String> = Attr::new("path");
pub(crate) const HTTP_STATUS: Attr<u16> = Attr::new("http_status");
pub(crate) const CONTENT_TYPE: Attr<String> = Attr::new("content_type");
pub(crate) const HEADERS: Attr<Value> = Attr::new("headers");
pub(crate) const DIGEST: Attr<String> = Attr::new("digest");
pub(crate) const TAGS: Attr<Set<String>> = Attr::new("tags");
pub(crate) const INITIAL_AGE: Attr<i64> = Attr::new("initial_age");
pub(crate) const VARIANT: Attr<String> = Attr::new("variant");
pub(crate) const DEPLOYMENT: Attr<String> = Attr::new("deployment");
pub(crate) const STALE_SINCE: Attr<i64> = Attr::new("stale_since");
pub(crate) const MUST_NOT_SERVE: Attr<bool> = Attr::new("must_not_serve");
pub(crate) const PINNED_UNTIL: Attr<i64> = Attr::new("pinned_until");
pub(crate) const USED_AT: Attr<i64> = Attr::new(tabletheory::USED_AT);
pub(crate) const MARK: Attr<String> = Attr::new("mark");
pub(crate) const EPOCHS: Attr<Value> = Attr::new("epochs");
pub(crate) const SEQ_BASE: Attr<u64> = Attr::new("seq_base");
pub(crate) const SEQ_AT: Attr<i64> = Attr::new("seq_at");
pub(crate) const EXPIRED_SEQ: Attr<u64> = Attr::new("expired_seq");
pub(crate) const EXPIRED_SEQ_AT: Attr<i64> = Attr::new("expired_seq_at");
pub(crate) const OWNER: Attr<String> = Attr::new("owner");
pub(crate) const IN_PROGRESS_UNTIL: Attr<i64> = Attr::new("in_progress_until");
