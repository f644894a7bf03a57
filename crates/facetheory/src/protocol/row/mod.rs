//! The rows of a page: `META`, `LOCK`, `VER#` and `REQ#`.
//!
//! Services in other languages write these rows too. So the [`codec`] is more tolerant than
//! `#[derive(Model)]` of `tabletheory`, which is why none of these rows derives it:
//!
//! - A model fails on an attribute of the wrong type. Here an optional attribute of the wrong type counts as absent, and a
//!   fractional or oversized number is cut off or saturated: one odd attribute must not make a page unreadable.
//! - A model contains its key. These values exist before their key does, and the same [`Generation`] is written into
//!   `META` and into `VER#`; a model has no nested fields that become attributes of the same row.
//! - `META` must be updated without removing attributes that it does not know, but with every known one that is absent
//!   removed. [`codec::Row::visit`] derives that update from the row.
//!
//! This holds for `VER#` (it repeats `META`) and `REQ#` (services in other languages write it too). The tag
//! [`Epoch`](crate::protocol::Epoch) has a single number, read with the same tolerance.

pub(crate) mod codec;

use std::borrow::Cow;

use tabletheory::{Item, Value};

use self::codec::{Field, Place, Reader, Row as _};
use crate::error::{Error, Result};
use crate::protocol::attribute as name;
use crate::protocol::generation::Generation;
use crate::protocol::version_id::is_version_sk;

codec::row! {
    "META"
    /// `META`: the current generation of a page, and what happened to it since it was published.
    ///
    /// ```
    /// use facetheory::protocol::{Generation, Meta};
    /// use tabletheory::Item;
    ///
    /// let foreign = r#"{"generated_at":{"N":"1700000000"},"revalidate_seconds":{"N":"60"},"s3_key":{"S":"a.html"}}"#;
    /// let meta = Meta::read(&Item::from_json(foreign)?)?;
    /// assert_eq!(meta, Meta::of(Generation::new("a.html", 1_700_000_000, 60)));
    /// assert_eq!(meta.to_item().len(), 3);
    ///
    /// let error = Meta::read(&Item::new()).unwrap_err();
    /// assert_eq!(error.to_string(), "META: attribute `s3_key` is missing");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Meta {
        ..generation: Generation,
        /// When the row may be deleted by TTL, in epoch seconds.
        pub ttl: Option<i64> = TTL,
        /// When the page was last used, as far as is known, in epoch seconds: it was published then, or served while it was
        /// fresh. The least recently used pages are evicted first.
        pub used_at: Option<i64> = USED_AT,
        /// The sort key of the current version, if the page has versions.
        pub current_sk: Option<String> = CURRENT_SK => |sk: Option<String>| sk.filter(|sk| is_version_sk(sk)),
        /// How often the pointer has moved, if the page has versions.
        pub version: Option<u64> = VERSION,
        /// Since when the page is invalidated, in epoch seconds.
        pub stale_since: Option<i64> = STALE_SINCE,
        /// Whether the page must not be served, not even while it is regenerated.
        pub must_not_serve: bool = MUST_NOT_SERVE,
        /// When an earlier generation was last hard invalidated, in epoch seconds.
        pub expired_at: Option<i64> = EXPIRED_AT,
        /// Until when a page that was rolled back is pinned, in epoch seconds.
        pub pinned_until: Option<i64> = PINNED_UNTIL,
        /// The token of the lease that published it last.
        pub mark: Option<String> = MARK,
    }
}

impl Meta {
    /// The row of a generation that was just published.
    ///
    /// ```
    /// use facetheory::protocol::{Generation, Meta};
    ///
    /// assert!(!Meta::of(Generation::new("a.html", 1, 60)).must_not_serve);
    /// ```
    #[must_use]
    pub fn of(generation: Generation) -> Self {
        Meta { generation, ..Meta::default() }
    }
}

codec::row! {
    "LOCK"
    /// `LOCK`: the lease on a page.
    ///
    /// ```
    /// use facetheory::protocol::Lock;
    ///
    /// let lock = Lock::new("t", 1_700_000_030);
    /// assert_eq!(Lock::read(&lock.to_item())?, lock);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub struct Lock {
        /// The token, known to the holder alone.
        pub lease_token: String = LEASE_TOKEN,
        /// When the lease expires, in epoch seconds.
        pub lease_expires_at: i64 = LEASE_EXPIRES_AT,
        /// When the row may be deleted by TTL, in epoch seconds.
        pub ttl: Option<i64> = TTL,
        /// The name of the holder, for humans.
        pub owner: Option<String> = OWNER,
    }
}

impl Lock {
    /// The row of a lease with this token that expires at this time, in epoch seconds.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Lock::new("t", 1_700_000_030).ttl, None);
    /// ```
    pub fn new(lease_token: impl Into<String>, lease_expires_at: i64) -> Self {
        Lock { lease_token: lease_token.into(), lease_expires_at, ..Lock::default() }
    }
}

/// `META` and `LOCK` of a page, read in one query.
///
/// ```
/// assert!(facetheory::protocol::View::default().meta.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The page; `None` if there is no row, or none that can be read.
    pub meta: Option<Meta>,
    /// The lease, expired or not.
    pub lock: Option<Lock>,
}

/// `VER#<id>`: a stored generation, to compare with and to roll back to.
///
/// ```
/// use facetheory::protocol::{Generation, Version};
///
/// let version = Version::of(Generation::new("a.html", 1, 60));
/// assert_eq!(Version::read(&version.to_item())?, version);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Version {
    /// The attributes of a [`Generation`].
    pub generation: Generation,
    /// When the row may be deleted by TTL, in epoch seconds; `None` while it is the current version.
    pub ttl: Option<i64>,
    /// Whether the row has no `revalidate_seconds`, as other languages may write it: the interval is that of `META`, or else
    /// of the policy. Its generation has an interval of 0 then.
    pub inherits_interval: bool,
}

impl Version {
    /// The row of the current generation, which has no `ttl`.
    ///
    /// ```
    /// # use facetheory::protocol::{Generation, Version};
    /// assert_eq!(Version::of(Generation::new("a.html", 1, 60)).ttl, None);
    /// ```
    #[must_use]
    pub fn of(generation: Generation) -> Self {
        Version { generation, ..Version::default() }
    }

    /// Reads a `VER#` row.
    ///
    /// A required attribute that is missing or mistyped is [`Kind::Corrupt`](crate::Kind::Corrupt). An optional one that is
    /// mistyped counts as absent.
    pub fn read(item: &Item) -> Result<Self> {
        let role = "VER#";
        let interval: Option<i64> = Reader { role, item }.field(&name::REVALIDATE_SECONDS)?;
        let mut item = Cow::Borrowed(item);
        if interval.is_none() {
            item.to_mut().set(name::REVALIDATE_SECONDS.name(), 0);
        }
        let row = Reader { role, item: &item };
        Ok(Version {
            generation: Generation::read(&row)?,
            ttl: row.field(&name::TTL)?,
            inherits_interval: interval.is_none(),
        })
    }

    /// The attributes of the row, without its key.
    #[must_use]
    pub fn to_item(&self) -> Item {
        let mut item = self.generation.to_attributes();
        if self.inherits_interval {
            item.remove(name::REVALIDATE_SECONDS.name());
        }
        if let Some(ttl) = self.ttl {
            item.set(name::TTL.name(), ttl);
        }
        item
    }
}

codec::row! {
    "REQ#"
    /// `REQ#<idempotency key>`: a request to regenerate, which is executed once however often it is repeated.
    ///
    /// ```
    /// use facetheory::protocol::{Request, RequestStatus};
    ///
    /// let request = Request::started("hash", 1_700_086_400);
    /// assert_eq!(request.status, RequestStatus::Started);
    /// assert_eq!(Request::read(&request.to_item())?, request);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub struct Request {
        /// How far it has come.
        pub status: RequestStatus = STATUS,
        /// The hash of the request. The same key with another hash is rejected.
        pub request_hash: String = REQUEST_HASH,
        /// The body that it produced.
        pub result_s3_key: Option<String> = RESULT_S3_KEY,
        /// When the row may be deleted by TTL, in epoch seconds.
        pub ttl: Option<i64> = TTL,
        /// The token of the lease under which it is executed.
        pub owner: Option<String> = OWNER,
        /// Until when it counts as in progress, in epoch seconds.
        pub in_progress_until: Option<i64> = IN_PROGRESS_UNTIL,
    }
}

impl Request {
    /// The row of a request that has just started.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Request::started("h", 9).ttl, Some(9));
    /// ```
    pub fn started(request_hash: impl Into<String>, ttl: i64) -> Self {
        Request { request_hash: request_hash.into(), ttl: Some(ttl), ..Request::default() }
    }
}

/// How far a [`Request`] has come.
///
/// ```
/// assert_ne!(facetheory::protocol::RequestStatus::Started, facetheory::protocol::RequestStatus::Completed);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestStatus {
    /// A worker executes it, or stopped before it was done.
    #[default]
    Started,
    /// It is done, and its result is recorded.
    Completed,
    /// It failed, and may be tried again.
    Failed,
}

impl RequestStatus {
    const ALL: [RequestStatus; 3] = [RequestStatus::Started, RequestStatus::Completed, RequestStatus::Failed];

    /// The word on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RequestStatus::Started => "STARTED",
            RequestStatus::Completed => "COMPLETED",
            RequestStatus::Failed => "FAILED",
        }
    }
}

impl Field for RequestStatus {
    fn read(place: Place<'_>, value: Option<&Value>) -> Result<Self> {
        let word = String::read(place, value)?;
        RequestStatus::ALL.into_iter().find(|status| status.as_str() == word).ok_or_else(|| {
            let role = place.role;
            Error::corrupt(format!(
                "{role}: unknown status {word:?}; it must be STARTED, COMPLETED or FAILED"
            ))
        })
    }

    fn to_value(&self) -> Option<Value> {
        Some(self.as_str().into())
    }
}
