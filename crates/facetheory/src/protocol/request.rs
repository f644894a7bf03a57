//! Idempotent requests: a request to regenerate is executed once, however often it is delivered.

use std::time::Duration;

use tabletheory::{Cond, Key, Timestamp, Txn, Update, Write};

use crate::protocol::{Lease, LeaseTerms, Lock, Request, RequestStatus, attribute as name, ttl::after};

/// How long requests count as in progress, and how long they are stored.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(facetheory::protocol::RequestTerms::default().ttl, Duration::from_secs(86_400));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestTerms {
    /// How long a request counts as in progress; after that another worker may take it over.
    pub in_progress: Duration,
    /// How long after it started the row may be deleted by TTL.
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
    /// The request with this idempotency key and hash.
    ///
    /// ```
    /// assert_eq!(facetheory::IdempotentRequest::new("order-7", "sha256:1").hash, "sha256:1");
    /// ```
    pub fn new(key: impl Into<String>, hash: impl Into<String>) -> Self {
        IdempotentRequest { key: key.into(), hash: hash.into() }
    }
}

/// The right of a worker to complete a request, together with its publish.
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

/// Whether a request was started.
///
/// ```
/// assert_ne!(facetheory::protocol::Begin::Fresh, facetheory::protocol::Begin::OtherRequest);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request that was started must be committed or failed"]
#[non_exhaustive]
pub enum Begin {
    /// It was started: render, then commit or fail it.
    Started {
        /// The right to publish.
        lease: Lease,
        /// The right to complete the request.
        claim: Claim,
    },
    /// The page is fresh, so there is nothing to do.
    Fresh,
    /// It was completed before.
    Replayed {
        /// The body that it produced, if its writer recorded one.
        s3_key: Option<String>,
    },
    /// Another worker executes it.
    InProgress {
        /// Until when it counts as in progress, in epoch seconds, if that is known.
        until: Option<i64>,
    },
    /// Another worker regenerates the page for another reason.
    Held {
        /// Until when, in epoch seconds.
        until: i64,
    },
    /// The idempotency key was used for another request before.
    OtherRequest,
}

/// The next step for a request, given its row.
#[derive(Debug, PartialEq)]
pub(crate) enum RequestStep {
    /// Try to start it: one transaction creates or takes over the row, and acquires the lease.
    Start(Box<Txn>, Claim),
    /// It was completed.
    Replay(Option<String>),
    /// Another worker executes it.
    InProgress(Option<i64>),
    /// The idempotency key was used for another request before.
    Mismatch,
}

/// Everything that decides about a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestDecision<'a> {
    /// The key of the row.
    pub(crate) key: &'a Key,
    /// The hash of the request.
    pub(crate) hash: &'a str,
    /// The row, if there is one.
    pub(crate) found: Option<&'a Request>,
    /// The lease on the page that was read with it.
    pub(crate) lock: Option<&'a Lock>,
    pub(crate) lease_terms: &'a LeaseTerms,
    pub(crate) terms: &'a RequestTerms,
    pub(crate) now: Timestamp,
}

impl RequestDecision<'_> {
    /// Decides the next step. `lease` is the lease under which the request would be started.
    pub(crate) fn next(&self, lease: &Lease) -> RequestStep {
        let RequestDecision { key, now, .. } = *self;
        let take_over = match self.found {
            None => name::PK.absent(),
            Some(request) if request.request_hash != self.hash => return RequestStep::Mismatch,
            Some(request) => match request.status {
                RequestStatus::Completed => return RequestStep::Replay(request.result_s3_key.clone()),
                RequestStatus::Failed => is_as_read(request),
                RequestStatus::Started => match (request.in_progress_until, self.lock) {
                    (Some(until), _) if until > now.seconds() => return RequestStep::InProgress(Some(until)),
                    // A service that writes no expiry is in progress as long as the lease is held.
                    (None, Some(lock)) if lock.is_held(now) => {
                        return RequestStep::InProgress(Some(lock.lease_expires_at));
                    }
                    _ => is_as_read(request),
                },
            },
        };
        let mut row = Request::started(self.hash, after(now, self.terms.ttl));
        row.owner = Some(lease.token().to_owned());
        row.in_progress_until = Some(after(now, self.terms.in_progress));
        let put = Write::put(key.clone(), row.to_item()).when(take_over);
        let acquire = lease.acquire(now, self.lease_terms);
        let txn = Txn::new([put].into_iter().chain(acquire.writes().iter().cloned()));
        RequestStep::Start(Box::new(txn), Claim { key: key.clone(), token: lease.token().to_owned() })
    }
}

/// Records the request that an idempotency key was used for, unless it was used for another one.
pub(crate) fn bind_key(key: &Key, hash: &str, terms: &RequestTerms, now: Timestamp) -> Txn {
    let row = Request::started(hash, after(now, terms.ttl));
    Txn::from(Write::put(key.clone(), row.to_item()).when(name::PK.absent().or(name::REQUEST_HASH.is(hash))))
}

/// The row has not changed since it was read.
fn is_as_read(request: &Request) -> Cond {
    /// Only the empty string sorts before this.
    const LEAST_TEXT: &str = "\0";
    let owner = match &request.owner {
        Some(owner) => name::OWNER.is(owner.as_str()),
        // The attribute is absent, empty, or not a string.
        None => !name::OWNER.ge(LEAST_TEXT),
    };
    name::STATUS
        .is(request.status.as_str())
        .and(name::REQUEST_HASH.is(request.request_hash.as_str()))
        .and(owner)
}

impl Claim {
    /// The write that completes the request, as a part of the transaction that publishes.
    pub(crate) fn complete(&self, s3_key: &str) -> Write {
        self.end(Update::new([
            name::STATUS.set(RequestStatus::Completed.as_str()),
            name::RESULT_S3_KEY.set(s3_key),
            name::IN_PROGRESS_UNTIL.remove(),
        ]))
    }

    /// Fails the request, so that anyone may try again.
    pub(crate) fn fail(&self) -> Write {
        self.end(Update::new([
            name::STATUS.set(RequestStatus::Failed.as_str()),
            name::IN_PROGRESS_UNTIL.remove(),
        ]))
    }

    /// Ends the request, if this worker still has it.
    fn end(&self, update: Update) -> Write {
        let ours = name::STATUS.is(RequestStatus::Started.as_str()).and(name::OWNER.is(self.token.as_str()));
        Write::update(self.key.clone(), update).when(ours)
    }
}
