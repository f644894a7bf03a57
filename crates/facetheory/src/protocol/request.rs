//! Requests: one wish to regenerate is done once, however often it is delivered.

use std::time::Duration;

use tabletheory::{Cond, Key, Timestamp, Txn, Update, Write};

use crate::protocol::attribute as name;
use crate::protocol::lease::{Lease, LeaseTerms};
use crate::protocol::row::{Lock, Request, RequestStatus};
use crate::protocol::ttl::seconds;

/// For how long requests are worked on and remembered.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(facetheory::protocol::RequestTerms::default().ttl, Duration::from_secs(86_400));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestTerms {
    /// How long one counts as worked on unless it is finished; then another worker may take it over.
    pub in_progress: Duration,
    /// How long its row stays before it may be collected.
    pub ttl: Duration,
}

impl Default for RequestTerms {
    fn default() -> Self {
        RequestTerms { in_progress: Duration::from_secs(300), ttl: Duration::from_secs(86_400) }
    }
}

/// A request to regenerate a page that may be delivered several times, and is executed once.
///
/// ```
/// let request = facetheory::IdempotentRequest::new("order-7", "sha256:1");
/// assert_eq!(request.key, "order-7");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdempotentRequest {
    /// The idempotency key, which the client chose.
    pub key: String,
    /// A hash of the request. The same key with another hash is rejected.
    pub hash: String,
}

impl IdempotentRequest {
    /// The request of this idempotency key and hash.
    ///
    /// ```
    /// assert_eq!(facetheory::IdempotentRequest::new("order-7", "sha256:1").hash, "sha256:1");
    /// ```
    pub fn new(key: impl Into<String>, hash: impl Into<String>) -> Self {
        IdempotentRequest { key: key.into(), hash: hash.into() }
    }
}

/// A worker's hold on a request, to be finished together with the publish.
///
/// ```no_run
/// # async fn f(store: facetheory::PageStore, page: facetheory::PageKey) -> facetheory::Result<()> {
/// if let facetheory::protocol::Begin::Started { lease, claim } = store.begin_request(&page, "order-7", "hash").await? {
///     store.fail_request(&lease, &claim).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    key: Key,
    token: String,
}

/// What became of a request.
///
/// ```
/// assert_ne!(facetheory::protocol::Begin::Fresh, facetheory::protocol::Begin::OtherRequest);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request that was started must be finished or given up"]
#[non_exhaustive]
pub enum Begin {
    /// It is yours: render, then commit or fail it.
    Started {
        /// The right to publish.
        lease: Lease,
        /// The hold on the request.
        claim: Claim,
    },
    /// The page is fresh: nothing has to be done.
    Fresh,
    /// It was done before.
    Replayed {
        /// The body that it produced, where its writer recorded one.
        s3_key: Option<String>,
    },
    /// Somebody works on it.
    InProgress {
        /// Until when it counts as worked on, in epoch seconds, where that is known.
        until: Option<i64>,
    },
    /// Somebody renews the page for another reason.
    Held {
        /// Until when, in epoch seconds.
        until: i64,
    },
    /// The same key came with another request before.
    OtherRequest,
}

/// What is to be done about a request, given its row.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Try to start it: creates or takes over the row and takes the lease, together.
    Start(Box<Txn>, Claim),
    /// It is done.
    Replay(Option<String>),
    /// Somebody works on it.
    InProgress(Option<i64>),
    /// The same key came with another request before.
    Mismatch,
}

/// A request as it comes from outside.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) key: &'a Key,
    pub(crate) hash: &'a str,
}

/// Decides about a request from its row and the page's lock.
pub(crate) fn next(
    wish: Wish<'_>,
    found: Option<&Request>,
    lock: Option<&Lock>,
    lease: &Lease,
    (lease_terms, terms): (&LeaseTerms, &RequestTerms),
    now: Timestamp,
) -> Next {
    let free = !lock.is_some_and(|lock| lock.is_held(now));
    let take_over = match found {
        None => name::PK.absent(),
        Some(request) if request.request_hash != wish.hash => return Next::Mismatch,
        Some(request) => match request.status {
            RequestStatus::Completed => return Next::Replay(request.result_s3_key.clone()),
            RequestStatus::Failed => is_as_read(request),
            RequestStatus::Started => match request.in_progress_until {
                Some(until) if until > now.seconds() => return Next::InProgress(Some(until)),
                // A service that writes no expiry is believed as long as somebody holds the lease.
                None if !free => return Next::InProgress(lock.map(|lock| lock.lease_expires_at)),
                Some(_) | None => is_as_read(request),
            },
        },
    };
    let mut row = Request::started(wish.hash, now.seconds().saturating_add(seconds(terms.ttl)));
    row.owner = Some(lease.token().to_owned());
    row.in_progress_until = Some(now.seconds().saturating_add(seconds(terms.in_progress)));
    let put = Write::put(wish.key.clone(), row.to_item()).when(take_over);
    let mut writes = vec![put];
    writes.extend(lease.acquire(now, lease_terms).writes().iter().cloned());
    let claim = Claim { key: wish.key.clone(), token: lease.token().to_owned() };
    Next::Start(Box::new(Txn::new(writes)), claim)
}

/// Notes what an idempotency key stands for, unless it stands for something else.
pub(crate) fn bind(key: &Key, hash: &str, terms: &RequestTerms, now: Timestamp) -> Txn {
    let row = Request::started(hash, now.seconds().saturating_add(seconds(terms.ttl)));
    Txn::from(Write::put(key.clone(), row.to_item()).when(name::PK.absent().or(name::REQUEST_HASH.is(hash))))
}

/// No text but the empty one sorts before this.
const LEAST_TEXT: &str = "\0";

/// The row has not moved since it was read.
fn is_as_read(request: &Request) -> Cond {
    let owner = match &request.owner {
        Some(owner) => name::OWNER.is(owner.as_str()),
        // Nothing, or nothing that is text.
        None => !name::OWNER.ge(LEAST_TEXT),
    };
    name::STATUS
        .is(request.status.as_str())
        .and(name::REQUEST_HASH.is(request.request_hash.as_str()))
        .and(owner)
}

impl Claim {
    /// The write that finishes it, for the transaction that publishes.
    pub(crate) fn complete(&self, s3_key: &str) -> Write {
        let done = Update::new([
            name::STATUS.set(RequestStatus::Completed.as_str()),
            name::RESULT_S3_KEY.set(s3_key),
            name::IN_PROGRESS_UNTIL.remove(),
        ]);
        Write::update(self.key.clone(), done).when(self.is_ours())
    }

    /// Gives it up together with the lease, so that anyone may try again.
    pub(crate) fn fail(&self, lease: &Lease) -> Txn {
        Txn::new([self.failed(), Write::delete(lease.page().lock()).when(lease.is_ours())])
    }

    /// Gives it up where the lease is lost already.
    pub(crate) fn fail_alone(&self) -> Txn {
        Txn::from(self.failed())
    }

    fn failed(&self) -> Write {
        let failed =
            Update::new([name::STATUS.set(RequestStatus::Failed.as_str()), name::IN_PROGRESS_UNTIL.remove()]);
        Write::update(self.key.clone(), failed).when(self.is_ours())
    }

    fn is_ours(&self) -> Cond {
        name::STATUS.is(RequestStatus::Started.as_str()).and(name::OWNER.is(self.token.as_str()))
    }
}
