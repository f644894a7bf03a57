//! Scopes: who takes part in an exploration, and how much may go wrong in it.

/// How a writer publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipe {
    InPlace,
    Versioned,
    /// Every render has the body that is served already.
    Unchanged,
}

/// What operators may do to the page, each at most so often.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Operations {
    pub(super) soft: u8,
    pub(super) hard: u8,
    pub(super) tag: u8,
    pub(super) roll_back: u8,
    pub(super) collect: u8,
}

/// The bounds of an exploration: all that is possible within them is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub(super) name: &'static str,
    pub(super) recipe: Recipe,
    /// Whether there is no page yet.
    pub(super) empty: bool,
    /// How many writers there are. Their clocks are one second behind, right, and one second ahead.
    pub(super) writers: u8,
    /// How many leases they ask for, all together.
    pub(super) leases: u8,
    /// How many seconds pass.
    pub(super) seconds: i8,
    /// How often a request is delayed or delivered twice, its answer is lost, or it is turned away.
    pub(super) faults: u8,
    pub(super) crashes: u8,
    /// How often the lock is deleted because of its `ttl`, late or far too early.
    pub(super) expiries: u8,
    /// How often another row is deleted because of its `ttl`, late or far too early; none has one otherwise.
    pub(super) row_expiries: u8,
    /// How often each writer keeps its lease for another term.
    pub(super) refreshes: bool,
    /// Whether the writers work on one request, with its idempotency key.
    pub(super) request: bool,
    /// For how many seconds a page that is rolled back is pinned.
    pub(super) pin: u64,
    pub(super) operations: Operations,
}

impl Scope {
    const NOTHING: Operations = Operations { soft: 0, hard: 0, tag: 0, roll_back: 0, collect: 0 };

    /// Two writers and nothing that goes wrong: what others build on.
    const CALM: Scope = Scope {
        name: "calm",
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

    /// Everything at once.
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
        operations: Operations { soft: 1, hard: 1, tag: 1, roll_back: 1, collect: 2 },
        ..Scope::CALM
    };

    /// Three writers after the same lease, and leases that end while they render.
    pub(super) const RACE: Scope = Scope {
        name: "race",
        writers: 3,
        leases: 3,
        crashes: 1,
        expiries: 1,
        refreshes: true,
        ..Scope::CALM
    };

    /// Requests and answers that are late, doubled or lost.
    pub(super) const NETWORK: Scope =
        Scope { name: "network", seconds: 2, faults: 3, expiries: 1, refreshes: true, ..Scope::CALM };

    /// One writer whose requests are late, doubled or lost.
    pub(super) const ALONE: Scope = Scope {
        name: "alone",
        writers: 1,
        leases: 1,
        seconds: 2,
        faults: 3,
        expiries: 1,
        refreshes: true,
        ..Scope::CALM
    };

    /// The same in place, where nothing but the lock tells a repetition.
    pub(super) const ALONE_IN_PLACE: Scope =
        Scope { name: "alone, in place", recipe: Recipe::InPlace, ..Scope::ALONE };

    /// In place, where the version is the reader's to count.
    pub(super) const IN_PLACE: Scope = Scope {
        name: "in place",
        recipe: Recipe::InPlace,
        leases: 3,
        seconds: 3,
        faults: 2,
        operations: Operations { roll_back: 1, soft: 1, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// Renders that bring nothing new.
    pub(super) const UNCHANGED: Scope = Scope {
        name: "unchanged",
        recipe: Recipe::Unchanged,
        faults: 2,
        operations: Operations { roll_back: 1, hard: 1, collect: 1, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// Invalidation of the page while it is renewed.
    pub(super) const INVALIDATION: Scope = Scope {
        name: "invalidation",
        seconds: 3,
        faults: 1,
        expiries: 1,
        operations: Operations { soft: 1, hard: 1, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// A writer that is fenced off while another takes over.
    pub(super) const TAKEOVER: Scope = Scope {
        name: "takeover",
        seconds: 1,
        operations: Operations { soft: 1, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// One writer, and operators who fence it off.
    pub(super) const FENCE: Scope = Scope {
        name: "fence",
        recipe: Recipe::InPlace,
        writers: 1,
        leases: 1,
        seconds: 2,
        faults: 1,
        operations: Operations { soft: 1, roll_back: 1, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// Invalidation of a tag while the page is renewed by somebody whose clock differs.
    pub(super) const TAG: Scope = Scope {
        name: "tag",
        writers: 3,
        leases: 2,
        operations: Operations { tag: 2, roll_back: 1, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// Rollback and collection of what it goes back to, while the page is renewed.
    pub(super) const HISTORY: Scope = Scope {
        name: "history",
        seconds: 2,
        faults: 2,
        operations: Operations { roll_back: 2, collect: 2, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// Versions that expire while somebody goes back to them.
    pub(super) const EXPIRY: Scope = Scope {
        name: "expiry",
        seconds: 2,
        faults: 1,
        row_expiries: 2,
        operations: Operations { roll_back: 2, collect: 1, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// The first page, which expires as soon as it is there.
    pub(super) const FIRST_EXPIRES: Scope =
        Scope { name: "first expires", empty: true, row_expiries: 1, ..Scope::ALONE };

    /// A request that is forgotten while writers work on it.
    pub(super) const FORGOTTEN: Scope =
        Scope { name: "forgotten", faults: 1, row_expiries: 2, ..Scope::REQUEST };

    /// A way back that is not pinned, to what was invalidated.
    pub(super) const UNPINNED: Scope = Scope {
        name: "unpinned",
        pin: 0,
        operations: Operations { roll_back: 1, soft: 1, collect: 1, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// One request, delivered to several writers.
    pub(super) const REQUEST: Scope =
        Scope { name: "request", leases: 3, faults: 2, crashes: 1, request: true, ..Scope::CALM };

    /// A page that nobody has rendered yet.
    pub(super) const EMPTY: Scope = Scope {
        name: "empty",
        empty: true,
        seconds: 3,
        faults: 1,
        operations: Operations { soft: 1, hard: 1, ..Scope::NOTHING },
        ..Scope::CALM
    };

    /// What every change is checked against.
    pub(super) const ALL: [Scope; 18] = [
        Scope::RACE,
        Scope::ALONE,
        Scope::ALONE_IN_PLACE,
        Scope::NETWORK,
        Scope::IN_PLACE,
        Scope::UNCHANGED,
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
