//! The state of all actors, small enough to hold millions of them.

use super::budget::Budget;
use super::protocol::Request;
use super::table::{RowId, Rows};

/// The most leases in one exploration.
pub(super) const LEASES: usize = 4;
/// The initial versions: an old one, and the current one.
pub(super) const OLD: u8 = 0;
pub(super) const SERVED: u8 = 1;
/// The body of the first lease; those of the other leases follow.
pub(super) const FIRST: u8 = 2;
/// How many bodies there can be.
pub(super) const BODIES: usize = FIRST as usize + LEASES;
/// How many requests can be under way whose senders no longer wait.
pub(super) const UNDER_WAY: usize = 3;

/// A set of small numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Set(u32);

impl Set {
    pub(super) fn of(members: &[u8]) -> Self {
        let mut set = Set::default();
        members.iter().for_each(|member| set.insert(*member));
        set
    }

    pub(super) fn has(self, member: u8) -> bool {
        self.0 & (1 << member) != 0
    }

    pub(super) fn insert(&mut self, member: u8) {
        self.0 |= 1 << member;
    }

    pub(super) fn remove(&mut self, member: u8) {
        self.0 &= !(1 << member);
    }

    pub(super) fn extend(&mut self, other: Set) {
        self.0 |= other.0;
    }
}

/// The phase of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// Waits for the lease, for the second time if `again`.
    Acquiring { again: bool },
    /// The response to its put of `LOCK` was lost, and it reads the row to find out.
    ReadingLock,
    /// Has the lease, and has not read `META` since.
    Granted,
    /// Renders, and has refreshed its lease if `refreshed`.
    Rendering { refreshed: bool },
    /// Waits for a refresh, and renders meanwhile.
    Refreshing,
    /// Waits for the update of an unchanged page, for the second time if `again`.
    Extending { again: bool },
    /// Waits for its publish, for the second time if `again`.
    Publishing { again: bool },
    /// The response to the publish was lost or does not decide, and it releases the lease to find out.
    Resolving,
    /// The lease is gone, and it reads `META` to find out.
    ReadingBack,
    /// It has extended the page, another writer has published, or it gave up, and it releases the lease.
    Leaving,
}

/// A worker that regenerates the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Writer {
    pub(super) phase: Phase,
    /// The number of its lease, which is also its token.
    pub(super) lease: u8,
    /// The lease that it requested before, if the response was lost: its put may still arrive.
    pub(super) given_up: Option<u8>,
    /// `META` as it was read last.
    pub(super) seen: RowId,
    pub(super) render: Render,
    /// The request whose response it waits for.
    pub(super) request: Option<Request>,
}

/// The beginning of a render.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Render {
    /// The row of the tag.
    pub(super) epoch: RowId,
    /// When it began, by the clock of the writer.
    pub(super) generated_at: i8,
}

/// The report of a writer about its publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Report {
    #[default]
    Nothing,
    Done,
    NotPublished,
    /// Superseded, or unknown.
    Open,
}

/// An operator that invalidates, rolls back or collects garbage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Operator {
    #[default]
    Idle,
    Waiting(Request),
    /// A version was deleted, and its body is next.
    Deleting(u8),
    /// A page was evicted, and its bodies are next.
    Evicted(Set),
}

/// A body that may be replaced, and is deleted early then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Replaced {
    #[default]
    No,
    /// It was replaced at this time, or may be by the publish under this lease, whose outcome is unknown.
    Waiting { since: i8, lease: Option<u8> },
    /// The rows were read, and none named it.
    Unused,
}

/// A reader that has read `META`, and may read the body that it named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reader {
    pub(super) body: u8,
    pub(super) since: i8,
}

/// The history of the run, which no actor can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    /// The bodies whose render has begun.
    pub(super) begun: Set,
    /// The bodies whose render began before an invalidation.
    pub(super) outdated: Set,
    /// The bodies whose render began before a hard invalidation of the tag.
    pub(super) expired: Set,
    /// The bodies whose render had begun when a tag was last invalidated: the row may be written much later.
    pub(super) tagged: Set,
    /// The leases that have published.
    pub(super) published: Set,
    /// The order in which each lease was granted, from 1.
    pub(super) grants: [u8; LEASES],
    pub(super) granted: u8,
    /// The grant that published last.
    pub(super) last: u8,
    pub(super) reports: [Report; LEASES],
    /// The row of the tag when the render under each lease began.
    pub(super) epochs: [RowId; LEASES],
    /// `META` before it was damaged.
    pub(super) damaged_meta: RowId,
}

/// The time, and by how many seconds the wall clocks were set forward or back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Clock {
    /// Seconds since the start.
    pub(super) time: i8,
    pub(super) step: i8,
}

/// The objects of the bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Objects {
    /// Those that exist.
    there: Set,
    /// Those that were ever written.
    written: Set,
}

impl Objects {
    pub(super) fn of(there: Set) -> Self {
        Objects { there, written: there }
    }

    pub(super) fn has(&self, body: u8) -> bool {
        self.there.has(body)
    }

    /// Returns whether the object was written before.
    pub(super) fn write(&mut self, body: u8) -> bool {
        let rewritten = self.written.has(body);
        self.there.insert(body);
        self.written.insert(body);
        rewritten
    }

    pub(super) fn delete(&mut self, body: u8) {
        self.there.remove(body);
    }
}

/// The state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) rows: Rows,
    pub(super) objects: Objects,
    /// The client tokens that the table has seen.
    pub(super) spent: Set,
    pub(super) writers: [Writer; 3],
    pub(super) operators: [Operator; 3],
    pub(super) replaced: [Replaced; BODIES],
    pub(super) reader: Option<Reader>,
    /// Requests whose senders no longer wait, and that may still arrive.
    pub(super) under_way: [Option<Request>; UNDER_WAY],
    /// How many leases were requested.
    pub(super) leases: u8,
    /// How many operations were requested.
    pub(super) operations: u8,
    pub(super) left: Budget,
    pub(super) past: Past,
}

impl State {
    /// The time by a wall clock that is exact except for the steps.
    pub(super) fn wall(&self) -> i8 {
        self.clock.time + self.clock.step
    }

    /// Leaves a request under way whose sender no longer waits. Returns false if too many are under way.
    pub(super) fn leave_under_way(&mut self, request: Request) -> bool {
        let Some(place) = self.under_way.iter_mut().find(|place| place.is_none()) else { return false };
        *place = Some(request);
        // The order in which they were sent is irrelevant, so equal states must not differ by it.
        self.under_way.sort_unstable();
        true
    }

    pub(super) fn report(&mut self, lease: u8, report: Report) {
        self.past.reports[usize::from(lease)] = report;
    }
}
