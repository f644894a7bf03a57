//! Scopes: the actors of an exploration, and how many faults may happen.

/// How a writer publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipe {
    InPlace,
    Versioned,
    /// Every render has the body of the current page.
    Unchanged,
}

/// How often each operation of an operator may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Operations {
    pub(super) soft: u8,
    pub(super) hard: u8,
    pub(super) tag: u8,
    pub(super) roll_back: u8,
    pub(super) collect: u8,
    /// A service in another language moves the pointer.
    pub(super) swap: u8,
}

/// The bounds of an exploration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub(super) name: &'static str,
    pub(super) recipe: Recipe,
    /// Whether there is no page initially.
    pub(super) empty: bool,
    /// The number of writers. Their clocks are one second behind, correct, and one second ahead.
    pub(super) writers: u8,
    /// How many leases they request in total.
    pub(super) leases: u8,
    /// How many seconds pass.
    pub(super) seconds: i8,
    /// How often a request is delayed, duplicated or rejected, or its response is lost.
    pub(super) faults: u8,
    pub(super) crashes: u8,
    /// How often the lock is deleted by its `ttl`, late or far too early.
    pub(super) expiries: u8,
    /// How often another row is deleted by its `ttl`, late or far too early; if 0, no row has a `ttl`.
    pub(super) row_expiries: u8,
    /// Whether each writer may refresh its lease, once.
    pub(super) refreshes: bool,
    /// Whether the writers execute one request with an idempotency key.
    pub(super) request: bool,
    /// How many seconds a page that is rolled back is pinned.
    pub(super) pin: u64,
    pub(super) operations: Operations,
}

impl Scope {
    const NOTHING: Operations = Operations { soft: 0, hard: 0, tag: 0, roll_back: 0, collect: 0, swap: 0 };

    /// Two writers and no faults: the base of the other scopes.
    const BASE: Scope = Scope {
        name: "base",
        recipe: Recipe::Versioned,
        empty: false,
        writers: 2,
        leases: 2,
        seconds: 4,
        faults: 0,
        crashes: 0,
        expiries: 0,
        row_expiries: 0,
        refreshes: false,
        request: false,
        pin: 2,
        operations: Scope::NOTHING,
    };

    /// All actors and all faults.
    pub(super) const EVERYTHING: Scope = Scope {
        name: "everything",
        writers: 3,
        leases: 4,
        seconds: 5,
        faults: 2,
        crashes: 1,
        expiries: 1,
        row_expiries: 1,
        refreshes: true,
        operations: Operations { soft: 1, hard: 1, tag: 1, roll_back: 1, collect: 2, swap: 0 },
        ..Scope::BASE
    };

    /// Three writers that compete for one lease, and leases that expire during a render.
    pub(super) const RACE: Scope = Scope {
        name: "race",
        writers: 3,
        leases: 3,
        crashes: 1,
        expiries: 1,
        refreshes: true,
        ..Scope::BASE
    };

    /// Requests and responses that are delayed, duplicated or lost.
    pub(super) const NETWORK: Scope =
        Scope { name: "network", seconds: 2, faults: 3, expiries: 1, refreshes: true, ..Scope::BASE };

    /// One writer whose requests are delayed, duplicated or lost.
    pub(super) const ALONE: Scope = Scope {
        name: "alone",
        writers: 1,
        leases: 1,
        seconds: 2,
        faults: 3,
        expiries: 1,
        refreshes: true,
        ..Scope::BASE
    };

    /// One writer that publishes in place, where only the lock reveals a retry.
    pub(super) const ALONE_IN_PLACE: Scope =
        Scope { name: "alone, in place", recipe: Recipe::InPlace, ..Scope::ALONE };

    /// One writer that extends an unchanged page, where only the mark reveals a retry.
    pub(super) const ALONE_UNCHANGED: Scope =
        Scope { name: "alone, unchanged", recipe: Recipe::Unchanged, ..Scope::ALONE };

    /// Publishing in place, where the writer computes the version from the row that it read.
    pub(super) const IN_PLACE: Scope = Scope {
        name: "in place",
        recipe: Recipe::InPlace,
        leases: 3,
        seconds: 3,
        faults: 2,
        operations: Operations { roll_back: 1, soft: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// Renders that do not change the body.
    pub(super) const UNCHANGED: Scope = Scope {
        name: "unchanged",
        recipe: Recipe::Unchanged,
        faults: 2,
        operations: Operations { roll_back: 1, hard: 1, collect: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// One writer whose render does not change the body, and everybody else who changes the page meanwhile.
    pub(super) const EXTENSION: Scope = Scope {
        name: "extension",
        writers: 1,
        leases: 1,
        seconds: 1,
        faults: 0,
        operations: Operations { soft: 1, roll_back: 1, swap: 1, ..Scope::NOTHING },
        ..Scope::UNCHANGED
    };

    /// A writer that loses its lease before it reads `META`, and whose clock finds the next page stale at once.
    pub(super) const LATE_LOOKUP: Scope = Scope {
        name: "late lookup",
        writers: 3,
        leases: 2,
        seconds: 0,
        expiries: 1,
        operations: Scope::NOTHING,
        ..Scope::EXTENSION
    };

    /// A page that is invalidated a second time while it is regenerated after the first.
    pub(super) const INVALIDATED_TWICE: Scope = Scope {
        name: "invalidated twice",
        operations: Operations { soft: 2, ..Scope::NOTHING },
        ..Scope::EXTENSION
    };

    /// Invalidation of the page while it is regenerated.
    pub(super) const INVALIDATION: Scope = Scope {
        name: "invalidation",
        seconds: 3,
        faults: 1,
        expiries: 1,
        operations: Operations { soft: 1, hard: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// A writer whose lock is deleted while another takes over.
    pub(super) const TAKEOVER: Scope = Scope {
        name: "takeover",
        seconds: 1,
        operations: Operations { soft: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// One writer, and operators that delete its lock.
    pub(super) const FENCE: Scope = Scope {
        name: "fence",
        recipe: Recipe::InPlace,
        writers: 1,
        leases: 1,
        seconds: 2,
        faults: 1,
        operations: Operations { soft: 1, roll_back: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// Invalidation of a tag while a writer with another clock regenerates the page.
    pub(super) const TAG: Scope = Scope {
        name: "tag",
        writers: 3,
        leases: 2,
        operations: Operations { tag: 2, roll_back: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// Rollback to a version, and its garbage collection, while the page is regenerated.
    pub(super) const HISTORY: Scope = Scope {
        name: "history",
        seconds: 2,
        faults: 2,
        operations: Operations { roll_back: 2, collect: 2, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// Versions that expire during a rollback to them.
    pub(super) const EXPIRY: Scope = Scope {
        name: "expiry",
        seconds: 2,
        faults: 1,
        row_expiries: 2,
        operations: Operations { roll_back: 2, collect: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// The first page, which expires as soon as it is published.
    pub(super) const FIRST_EXPIRES: Scope =
        Scope { name: "first expires", empty: true, row_expiries: 1, ..Scope::ALONE };

    /// A request whose row expires while it is executed.
    pub(super) const FORGOTTEN: Scope =
        Scope { name: "forgotten", faults: 1, row_expiries: 2, ..Scope::REQUEST };

    /// A rollback without a pin to a version that was invalidated.
    pub(super) const UNPINNED: Scope = Scope {
        name: "unpinned",
        pin: 0,
        operations: Operations { roll_back: 1, soft: 1, collect: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// One request, delivered to several writers.
    pub(super) const REQUEST: Scope =
        Scope { name: "request", leases: 3, faults: 2, crashes: 1, request: true, ..Scope::BASE };

    /// A page that has not been rendered yet.
    pub(super) const EMPTY: Scope = Scope {
        name: "empty",
        empty: true,
        seconds: 3,
        faults: 1,
        operations: Operations { soft: 1, hard: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// All scopes.
    pub(super) const ALL: [Scope; 22] = [
        Scope::RACE,
        Scope::ALONE,
        Scope::ALONE_IN_PLACE,
        Scope::ALONE_UNCHANGED,
        Scope::NETWORK,
        Scope::IN_PLACE,
        Scope::UNCHANGED,
        Scope::EXTENSION,
        Scope::LATE_LOOKUP,
        Scope::INVALIDATED_TWICE,
        Scope::INVALIDATION,
        Scope::FENCE,
        Scope::TAKEOVER,
        Scope::TAG,
        Scope::HISTORY,
        Scope::EXPIRY,
        Scope::FIRST_EXPIRES,
        Scope::FORGOTTEN,
        Scope::UNPINNED,
        Scope::REQUEST,
        Scope::EMPTY,
        Scope::EVERYTHING,
    ];
}
