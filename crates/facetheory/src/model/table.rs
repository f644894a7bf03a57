//! The table: real rows, real transactions, a real backend. Results are memoized.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tabletheory::{Consistency, Item, Key, MemoryTable, Table, Txn, Write};

use super::mutant::Mutant;
use super::network::Response;
use super::protocol::{self, Request};
use super::scope::Scope;
use super::state::BODIES;
use crate::protocol::epoch::Epoch;
use crate::protocol::key::PageKey;
use crate::protocol::lease::{Acquire, LeaseTerms};
use crate::protocol::row;
use crate::protocol::tag::Tag;

/// The number of a row; 0 if it does not exist.
pub(super) type RowId = u16;

/// The number of rows: `META`, `LOCK`, `REQ#`, the tag's, and one version for each body.
const PLACES: usize = 4 + BODIES;
pub(super) const META: usize = 0;
pub(super) const LOCK: usize = 1;
pub(super) const REQUEST: usize = 2;
pub(super) const TAG: usize = 3;

/// The place of a body's version.
pub(super) fn version_place(body: u8) -> usize {
    4 + usize::from(body)
}

/// All rows of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Rows(pub(super) [RowId; PLACES]);

/// A row, as production reads it.
#[derive(Debug)]
pub(super) enum Row {
    Meta(row::Meta),
    Lock(row::Lock),
    Request(row::Request),
    Epoch(Epoch),
    Version(row::Version),
    Damaged,
}

#[derive(Debug)]
struct StoredRow {
    item: Item,
    row: Row,
}

/// The result of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitResult {
    /// The rows after it; `None` if it was not applied.
    pub(super) written: Option<Rows>,
    /// The response to the sender.
    pub(super) response: Response,
}

/// The protocol under test, and all rows so far.
#[derive(Debug)]
pub(super) struct World {
    pub(super) scope: Scope,
    pub(super) mutant: Option<Mutant>,
    /// Whether a publish without the lock is not a violation by itself, but only its consequences are.
    pub(super) ignore_lock_ownership: bool,
    pub(super) page: PageKey,
    pub(super) tag: Tag,
    pub(super) terms: LeaseTerms,
    keys: [Key; PLACES],
    stored: Vec<StoredRow>,
    numbers: HashMap<(usize, String), RowId>,
    results: HashMap<(Rows, Request), CommitResult>,
}

impl World {
    pub(super) fn new(scope: Scope, mutant: Option<Mutant>) -> Self {
        let page = PageKey::new("/").expect("a page");
        let tag = Tag::new("news").expect("a tag");
        let keys = std::array::from_fn(|place| match place {
            META => page.meta(),
            LOCK => page.lock(),
            REQUEST => page.request("once").expect("a key"),
            TAG => tag.key(None),
            version => page.version(&protocol::version_id(version - 4)),
        });
        World {
            scope,
            mutant,
            ignore_lock_ownership: false,
            page,
            tag,
            terms: protocol::terms(),
            keys,
            stored: Vec::new(),
            numbers: HashMap::new(),
            results: HashMap::new(),
        }
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// How many different rows and transactions there were.
    pub(super) fn known(&self) -> (usize, usize) {
        (self.stored.len(), self.results.len())
    }

    pub(super) fn key(&self, place: usize) -> &Key {
        &self.keys[place]
    }

    fn row(&self, id: RowId) -> Option<&Row> {
        id.checked_sub(1).map(|index| &self.stored[usize::from(index)].row)
    }

    /// The attributes of a row.
    pub(super) fn item(&self, id: RowId) -> Option<&Item> {
        id.checked_sub(1).map(|index| &self.stored[usize::from(index)].item)
    }

    pub(super) fn meta(&self, id: RowId) -> Option<&row::Meta> {
        self.row(id).and_then(|row| if let Row::Meta(meta) = row { Some(meta) } else { None })
    }

    pub(super) fn lock(&self, id: RowId) -> Option<&row::Lock> {
        self.row(id).and_then(|row| if let Row::Lock(lock) = row { Some(lock) } else { None })
    }

    pub(super) fn request(&self, id: RowId) -> Option<&row::Request> {
        self.row(id).and_then(|row| if let Row::Request(request) = row { Some(request) } else { None })
    }

    pub(super) fn epoch(&self, id: RowId) -> Option<&Epoch> {
        self.row(id).and_then(|row| if let Row::Epoch(epoch) = row { Some(epoch) } else { None })
    }

    pub(super) fn version(&self, id: RowId) -> Option<&row::Version> {
        self.row(id).and_then(|row| if let Row::Version(version) = row { Some(version) } else { None })
    }

    pub(super) fn is_damaged(&self, id: RowId) -> bool {
        matches!(self.row(id), Some(Row::Damaged))
    }

    /// The number of the damaged row at a place.
    pub(super) fn damaged(&mut self, place: usize) -> RowId {
        let row = Item::damaged(&self.keys[place]);
        self.number(place, Some(&row))
    }

    /// Whether a row has a `ttl`.
    pub(super) fn expires(&self, id: RowId) -> bool {
        id.checked_sub(1).is_some_and(|index| self.stored[usize::from(index)].item.get("ttl").is_some())
    }

    /// The number of a row at its place.
    pub(super) fn number(&mut self, place: usize, item: Option<&Item>) -> RowId {
        let Some(item) = item else { return 0 };
        let name = (place, if item.is_damaged() { "damaged".to_owned() } else { item.to_json() });
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let row = match place {
            _ if item.is_damaged() => Row::Damaged,
            META => Row::Meta(row::Meta::read(item).expect("META")),
            LOCK => Row::Lock(row::Lock::read(item).expect("LOCK")),
            REQUEST => Row::Request(row::Request::read(item).expect("REQ#")),
            TAG => Row::Epoch(Epoch::read(item).expect("TAG")),
            _ => Row::Version(row::Version::read(item).expect("VER#")),
        };
        self.stored.push(StoredRow { item: item.clone(), row });
        let number = RowId::try_from(self.stored.len()).expect("few different rows");
        self.numbers.insert(name, number);
        number
    }

    /// The result of a request to a table with these rows.
    pub(super) fn commit(&mut self, rows: Rows, request: Request) -> CommitResult {
        if let Some(result) = self.results.get(&(rows, request)) {
            return *result;
        }
        let result = self.run(rows, request);
        self.results.insert((rows, request), result);
        result
    }

    fn run(&mut self, rows: Rows, request: Request) -> CommitResult {
        let table = MemoryTable::new();
        for (place, id) in rows.0.iter().enumerate() {
            if let Some(index) = id.checked_sub(1) {
                let item = self.stored[usize::from(index)].item.clone();
                let put = Txn::from(Write::put(self.keys[place].clone(), item));
                assert!(at_once(table.commit(&put)).expect("a put").is_done());
                if self.is_damaged(*id) {
                    assert!(table.damage(&self.keys[place]));
                }
            }
        }
        let txn = protocol::transaction(self, rows, request);
        let commit = at_once(table.commit(&txn)).expect("a transaction that can be done");
        let applied = commit.is_done();
        let response = match request {
            _ if applied => Response::Applied,
            Request::Acquire { lease, now } => match protocol::lease(self, lease, now).acquired(commit) {
                Acquire::Granted(_) => Response::Applied,
                Acquire::Held { .. } => Response::Refused,
            },
            // The row shows that an earlier attempt was applied.
            Request::Extend { lease, .. } if self.is_marked(rows, lease) => Response::Applied,
            Request::Publish { lease, now, .. }
                if protocol::lease(self, lease, now).is_gone(&txn, &commit) =>
            {
                Response::LeaseLost
            }
            _ => Response::Refused,
        };
        let items = at_once(table.batch_get(&self.keys, Consistency::Strong)).expect("rows");
        let mut after = Rows::default();
        for (place, item) in items.iter().enumerate() {
            after.0[place] = self.number(place, item.as_ref());
        }
        CommitResult { written: applied.then_some(after), response }
    }
}

impl World {
    /// Whether `META` was published under a lease.
    fn is_marked(&self, rows: Rows, lease: u8) -> bool {
        let mark = self.meta(rows.0[META]).and_then(|meta| meta.mark.as_deref());
        mark == Some(protocol::token(lease).as_str())
    }
}

/// The table in memory never waits, so the first poll is ready.
fn at_once<T>(response: impl Future<Output = T>) -> T {
    match pin!(response).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(response) => response,
        Poll::Pending => unreachable!("the table in memory does not wait"),
    }
}
