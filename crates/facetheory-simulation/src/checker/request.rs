//! Idempotent requests: the changes of their rows, and the results of their deliveries.

use facetheory::PageKey;
use facetheory::protocol::{Begin, Lock, Meta, Request, RequestStatus};
use tabletheory::{Item, Key};

use super::{Checker, State, short};
use crate::stats::Counter;
use crate::violation::Invariant;

/// The clocks of two workers differ by at most this many seconds.
const MAX_CLOCK_DIFFERENCE: i64 = 2;

/// The row of a request at the time of a delivery.
#[derive(Debug)]
pub(crate) struct Delivered {
    key: Key,
    expiries: u64,
    row: Option<Request>,
}

impl Checker {
    /// A request is about to be delivered.
    pub(crate) fn request_delivered(&self, page: &PageKey, idempotency_key: &str) -> Delivered {
        let key = page.request(idempotency_key).expect("a valid idempotency key");
        let state = self.state();
        Delivered { expiries: state.expiries(&key), row: state.request(&key), key }
    }

    /// A delivery has returned.
    pub(crate) fn delivery_returned(&self, delivered: &Delivered, hash: &str, result: &Begin) {
        let mut state = self.state();
        let (key, before) = (&delivered.key, delivered.row.as_ref());
        let now = state.request(key);
        let other = |row: Option<&Request>| row.is_some_and(|row| row.request_hash != hash);
        if *result == Begin::OtherRequest {
            state.count(Counter::RequestMismatched);
            let right = other(before) || other(now.as_ref());
            state.ensure(right, Invariant::HashMismatch, || {
                format!("{hash} was rejected although no row has another hash")
            });
            return;
        }
        // Unless the row expired meanwhile, the delivery must have seen its hash.
        let alive = state.expiries(key) == delivered.expiries;
        state.ensure(!(alive && other(before)), Invariant::HashMismatch, || {
            format!("the row of {} was {before:?}, and the delivery of {hash} returned {result:?}", key.sk)
        });
        match result {
            Begin::Replayed { s3_key } => {
                state.count(Counter::RequestReplayed);
                let recorded = |row: Option<&Request>| {
                    row.is_some_and(|row| {
                        row.status == RequestStatus::Completed && row.result_s3_key == *s3_key
                    })
                };
                let right = recorded(before) || recorded(now.as_ref());
                state.ensure(right, Invariant::SingleResult, || {
                    format!("{} was replayed as {s3_key:?}, but its row is {now:?}", key.sk)
                });
            }
            Begin::InProgress { .. } => state.count(Counter::RequestInProgress),
            _ => {}
        }
    }

    /// The requests of a page that are in progress.
    pub(crate) fn open_requests(&self, page: &PageKey) -> Vec<(Key, Request)> {
        let state = self.state();
        let rows = state.rows_of(page.pk(), "REQ#");
        let read = rows.filter_map(|(key, row)| Some((key.clone(), Request::read(row).ok()?)));
        read.filter(|(_, request)| request.status == RequestStatus::Started).collect()
    }
}

impl State {
    fn expiries(&self, key: &Key) -> u64 {
        self.request_expiries.get(key).copied().unwrap_or(0)
    }

    fn request(&self, key: &Key) -> Option<Request> {
        self.rows.get(key).and_then(|row| Request::read(row).ok())
    }

    /// A commit has changed the row of a request.
    pub(super) fn check_request(
        &mut self,
        key: &Key,
        before: Option<&Item>,
        after: Option<&Item>,
        publisher: Option<&str>,
        lock: Option<&Lock>,
    ) {
        let read = |row: Option<&Item>| row.and_then(|row| Request::read(row).ok());
        let before = read(before);
        let Some(after) = read(after) else {
            self.ensure(false, Invariant::SingleResult, || format!("{} was deleted by a commit", key.sk));
            return;
        };
        let what = format!("{} {}", short(&key.pk), key.sk);
        if let Some(before) = &before {
            let same = before.request_hash == after.request_hash;
            self.ensure(same, Invariant::HashMismatch, || format!("{what} was restarted with another hash"));
            let done = before.status == RequestStatus::Completed;
            self.ensure(!done, Invariant::SingleResult, || {
                format!("{what} was completed, and became {after:?}")
            });
        }
        match after.status {
            RequestStatus::Started => {
                self.count(Counter::RequestStarted);
                self.note(format!("{what} started"));
                let holds = lock.map(|lock| &lock.lease_token) == after.owner.as_ref();
                self.ensure(holds, Invariant::AtomicPublish, || {
                    format!("{what} was started without the lease")
                });
                if let Some(before) = before {
                    self.count(Counter::RequestTakenOver);
                    let latest = self.now().seconds() + MAX_CLOCK_DIFFERENCE;
                    let open = before.in_progress_until.is_none_or(|until| until <= latest);
                    self.ensure(open, Invariant::SingleResult, || {
                        format!("{what} was taken over while in progress")
                    });
                }
            }
            RequestStatus::Completed => {
                self.count(Counter::RequestCompleted);
                self.note(format!("{what} completed"));
                let published = publisher.is_some() && publisher == after.owner.as_deref();
                let result = self.meta(&key.pk).map(|meta| meta.generation.s3_key);
                let right = published && after.result_s3_key == result;
                self.ensure(right, Invariant::AtomicPublish, || {
                    format!("{what} was completed without its publish")
                });
            }
            RequestStatus::Failed => {
                self.count(Counter::RequestFailed);
                self.note(format!("{what} failed"));
            }
        }
    }

    /// A publish completes the requests for which its lease was taken.
    pub(super) fn check_claims(&mut self, pk: &str, token: &str, meta: &Meta) {
        let left = self.rows_of(pk, "REQ#").find(|(_, row)| {
            Request::read(row).is_ok_and(|request| {
                let ours = request.owner.as_deref() == Some(token);
                ours && request.result_s3_key.as_ref() != Some(&meta.generation.s3_key)
            })
        });
        let left = left.map(|(key, _)| key.sk.clone());
        self.ensure(left.is_none(), Invariant::AtomicPublish, || format!("a publish left {left:?} open"));
    }
}
