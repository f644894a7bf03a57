//! Requests: what became of their rows, and what those who delivered them were told.

use facetheory::PageKey;
use facetheory::protocol::{Begin, Lock, Meta, Request, RequestStatus};
use tabletheory::{Item, Key};

use super::{Ledger, State, short};
use crate::tally::Count;
use crate::violation::Invariant;

/// Clocks of workers differ by so many seconds at most.
const CLOCKS_DIFFER: i64 = 2;

/// The row of a request when it was delivered.
#[derive(Debug)]
pub(crate) struct Delivered {
    key: Key,
    life: u64,
    row: Option<Request>,
}

impl Ledger {
    /// A request is about to be delivered.
    pub(crate) fn delivering(&self, page: &PageKey, idempotency_key: &str) -> Delivered {
        let key = page.request(idempotency_key).expect("a plain key");
        let state = self.state();
        Delivered { life: state.life(&key), row: state.request(&key), key }
    }

    /// It was answered.
    pub(crate) fn answered(&self, delivered: &Delivered, hash: &str, answer: &Begin) {
        let mut state = self.state();
        let (key, before) = (&delivered.key, delivered.row.as_ref());
        let now = state.request(key);
        let other = |row: Option<&Request>| row.is_some_and(|row| row.request_hash != hash);
        if *answer == Begin::OtherRequest {
            state.count(Count::RequestMismatched);
            let right = other(before) || other(now.as_ref());
            state
                .ensure(right, Invariant::OtherHash, || format!("{hash} was refused as another than itself"));
            return;
        }
        // A row that lived all the while was there to be seen.
        let lived = state.life(key) == delivered.life;
        state.ensure(!(lived && other(before)), Invariant::OtherHash, || {
            format!("{} was begun as {before:?}, and {hash} was answered with {answer:?}", key.sk)
        });
        match answer {
            Begin::Replayed { s3_key } => {
                state.count(Count::RequestReplayed);
                let result = |row: Option<&Request>| {
                    row.is_some_and(|row| {
                        row.status == RequestStatus::Completed && row.result_s3_key == *s3_key
                    })
                };
                let right = result(before) || result(now.as_ref());
                state.ensure(right, Invariant::OneResult, || {
                    format!("{} was replayed as {s3_key:?}; its row is {now:?}", key.sk)
                });
            }
            Begin::InProgress { .. } => state.count(Count::RequestInProgress),
            _ => {}
        }
    }

    /// The keys of requests that count as worked on, with their hashes and until when.
    pub(crate) fn open_requests(&self, page: &PageKey) -> Vec<(Key, Request)> {
        let state = self.state();
        let rows = state.rows_of(page.pk(), "REQ#");
        let read = rows.filter_map(|(key, row)| Some((key.clone(), Request::read(row).ok()?)));
        read.filter(|(_, request)| request.status == RequestStatus::Started).collect()
    }
}

impl State {
    fn life(&self, key: &Key) -> u64 {
        self.request_lives.get(key).copied().unwrap_or(0)
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
            self.ensure(false, Invariant::OneResult, || format!("{} was deleted by a commit", key.sk));
            return;
        };
        let what = format!("{} {}", short(&key.pk), key.sk);
        if let Some(before) = &before {
            let same = before.request_hash == after.request_hash;
            self.ensure(same, Invariant::OtherHash, || format!("{what} was begun over with another hash"));
            let done = before.status == RequestStatus::Completed;
            self.ensure(!done, Invariant::OneResult, || format!("{what} was done, and became {after:?}"));
        }
        match after.status {
            RequestStatus::Started => {
                self.count(Count::RequestStarted);
                self.note(format!("{what} started"));
                let holds = lock.map(|lock| &lock.lease_token) == after.owner.as_ref();
                self.ensure(holds, Invariant::Together, || format!("{what} was begun without the lease"));
                if let Some(before) = before {
                    self.count(Count::RequestTakenOver);
                    let latest = self.now.seconds() + CLOCKS_DIFFER;
                    let open = before.in_progress_until.is_none_or(|until| until <= latest);
                    self.ensure(open, Invariant::OneResult, || {
                        format!("{what} was taken over while in progress")
                    });
                }
            }
            RequestStatus::Completed => {
                self.count(Count::RequestCompleted);
                self.note(format!("{what} completed"));
                let published = publisher.is_some() && publisher == after.owner.as_deref();
                let result = self.meta(&key.pk).map(|meta| meta.generation.s3_key);
                let right = published && after.result_s3_key == result;
                self.ensure(right, Invariant::Together, || {
                    format!("{what} was completed without its publish")
                });
            }
            RequestStatus::Failed => {
                self.count(Count::RequestFailed);
                self.note(format!("{what} given up"));
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
        self.ensure(left.is_none(), Invariant::Together, || format!("a publish left {left:?} open"));
    }
}
