//! The state of everything that takes part, small enough to keep millions of them.

use super::protocol::Request;
use super::table::{RowId, Rows};

/// The most leases in one exploration.
pub(super) const LEASES: usize = 4;
/// The versions that are there at the beginning: an old one, and the one that is served.
pub(super) const OLD: u8 = 0;
pub(super) const SERVED: u8 = 1;
/// The body of the first lease; the next ones follow.
pub(super) const FIRST: u8 = 2;
/// How many bodies there can be.
pub(super) const BODIES: usize = FIRST as usize + LEASES;
/// How many requests can be under way that nobody waits for any more.
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

/// What a writer is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// It waits for the lease, for the second time if `again`.
    Acquiring {
        again: bool,
    },
    /// It has the lease, and has not looked at the page since.
    Granted,
    Rendering,
    /// It waits for another term, and renders meanwhile.
    Refreshing,
    /// It waits for its publish, for the second time if `again`.
    Publishing {
        again: bool,
    },
    /// The publish has no answer, or none that settles it, and it gives the lease up to find out.
    Resolving,
    /// The lease is gone, and it looks at the page to find out.
    Judging,
    /// Somebody else has published, and it gives the lease back.
    Leaving,
}

/// One who regenerates the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Writer {
    pub(super) phase: Phase,
    /// The number of its lease, which is also its token.
    pub(super) lease: u8,
    /// `META` as it was read last.
    pub(super) seen: RowId,
    /// When the render began, by its own clock.
    pub(super) generated_at: i8,
    pub(super) refreshed: bool,
    /// What it waits for.
    pub(super) request: Option<Request>,
}

/// What a writer says of its publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Report {
    #[default]
    Nothing,
    Done,
    NotPublished,
    /// Superseded, or not known.
    Open,
}

/// One who invalidates, rolls back or collects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Operator {
    #[default]
    Idle,
    Waiting(Request),
    /// A version is gone, and its body is next.
    Deleting(u8),
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) faults: u8,
    pub(super) crashes: u8,
    pub(super) expiries: u8,
    pub(super) row_expiries: u8,
    pub(super) soft: u8,
    pub(super) hard: u8,
    pub(super) tag: u8,
    pub(super) roll_back: u8,
    pub(super) collect: u8,
}

/// What has happened, which nobody in the protocol can look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    /// The bodies whose render has begun.
    pub(super) begun: Set,
    /// The bodies whose render began before an invalidation.
    pub(super) outdated: Set,
    /// The bodies whose render had begun when a tag was last invalidated: the row may be written much later.
    pub(super) tagged: Set,
    /// The leases that have published.
    pub(super) published: Set,
    /// When each lease was granted, in the order of grants from 1.
    pub(super) grants: [u8; LEASES],
    pub(super) granted: u8,
    /// The grant that has published last.
    pub(super) last: u8,
    pub(super) reports: [Report; LEASES],
}

/// Everything at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// Seconds since the beginning.
    pub(super) time: i8,
    pub(super) rows: Rows,
    /// The objects that are there.
    pub(super) objects: Set,
    /// The objects that were ever written.
    pub(super) written: Set,
    /// The client tokens that the table remembers.
    pub(super) spent: Set,
    pub(super) writers: [Writer; 3],
    pub(super) operators: [Operator; 3],
    /// What nobody waits for any more, and what may arrive all the same.
    pub(super) under_way: [Option<Request>; UNDER_WAY],
    /// How many leases were asked for.
    pub(super) leases: u8,
    /// How many things operators have set out to do.
    pub(super) operations: u8,
    pub(super) left: Budget,
    pub(super) past: Past,
}

impl State {
    /// Sends a request on its way without waiting for it. False if too many are under way.
    pub(super) fn send_off(&mut self, request: Request) -> bool {
        let Some(place) = self.under_way.iter_mut().find(|place| place.is_none()) else { return false };
        *place = Some(request);
        // The order in which they were sent means nothing, so equal states must not differ by it.
        self.under_way.sort_unstable();
        true
    }

    pub(super) fn report(&mut self, lease: u8, report: Report) {
        self.past.reports[usize::from(lease)] = report;
    }
}
