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
    /// The page is evicted.
    pub(super) evict: u8,
    /// A service in another language replaces the row of the tag.
    pub(super) put_tag: u8,
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
    /// How often the wall clocks are set, forward or back by more than the interval and the margin.
    pub(super) clock_steps: u8,
    /// Whether the rows of pages have the counts of their tags, unlike those of other languages.
    pub(super) counts: bool,
    /// How often any row is damaged.
    pub(super) damages: u8,
    /// Whether each writer may refresh its lease, once.
    pub(super) refreshes: bool,
    /// Whether the writers execute one request with an idempotency key.
    pub(super) request: bool,
    /// Whether replaced bodies are deleted early while somebody reads, and the page has no versions initially.
    pub(super) early_deletion: bool,
    /// How many seconds a page that is rolled back is pinned.
    pub(super) pin: u64,
    pub(super) operations: Operations,
}

impl Scope {
    const NOTHING: Operations =
        Operations { soft: 0, hard: 0, tag: 0, roll_back: 0, collect: 0, swap: 0, evict: 0, put_tag: 0 };

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
        clock_steps: 0,
        counts: true,
        damages: 0,
        refreshes: false,
        request: false,
        early_deletion: false,
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
        damages: 1,
        refreshes: true,
        operations: Operations {
            soft: 1,
            hard: 1,
            tag: 1,
            roll_back: 1,
            collect: 2,
            evict: 1,
            ..Scope::NOTHING
        },
        clock_steps: 1,
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

    /// Invalidation of a tag while the wall clocks are set.
    pub(super) const CLOCKS: Scope = Scope {
        name: "clocks",
        recipe: Recipe::InPlace,
        writers: 1,
        leases: 1,
        seconds: 1,
        clock_steps: 1,
        operations: Operations { tag: 2, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// Invalidation of a tag while the wall clocks are set and the render does not change the body.
    pub(super) const CLOCKS_UNCHANGED: Scope =
        Scope { name: "clocks, unchanged", recipe: Recipe::Unchanged, ..Scope::CLOCKS };

    /// Invalidation of a tag while the wall clocks are set, with several writers and faults.
    pub(super) const CLOCKS_AND_FAULTS: Scope = Scope {
        name: "clocks and faults",
        writers: 2,
        leases: 2,
        seconds: 2,
        clock_steps: 2,
        faults: 1,
        ..Scope::CLOCKS
    };

    /// Invalidation of a tag whose row another service replaces.
    pub(super) const REPLACED_TAG: Scope = Scope {
        name: "replaced tag",
        recipe: Recipe::InPlace,
        writers: 1,
        leases: 1,
        seconds: 1,
        operations: Operations { tag: 2, put_tag: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// Invalidation of a tag while a writer with another clock regenerates the page, whose row has no counts.
    pub(super) const TAG: Scope = Scope {
        name: "tag",
        counts: false,
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

    /// Eviction of a page that is regenerated and rolled back.
    pub(super) const EVICTION: Scope = Scope {
        name: "eviction",
        seconds: 3,
        faults: 1,
        expiries: 1,
        operations: Operations { roll_back: 1, evict: 2, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// Eviction of a page whose render does not change the body.
    pub(super) const EVICTION_OF_UNCHANGED: Scope =
        Scope { name: "eviction of unchanged", recipe: Recipe::Unchanged, ..Scope::EVICTION };

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

    /// Bodies that are deleted soon after they were replaced, and a reader with an older pointer.
    pub(super) const EARLY_DELETION: Scope = Scope {
        name: "early deletion",
        recipe: Recipe::InPlace,
        seconds: 3,
        faults: 1,
        early_deletion: true,
        operations: Operations { soft: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// Early deletion of bodies whose publish has an unknown outcome.
    pub(super) const EARLY_DELETION_ALONE: Scope = Scope {
        name: "early deletion, alone",
        writers: 1,
        leases: 1,
        seconds: 4,
        faults: 3,
        operations: Scope::NOTHING,
        ..Scope::EARLY_DELETION
    };

    /// Early deletion of the bodies of versions, and rollbacks to them.
    pub(super) const EARLY_DELETION_OF_VERSIONS: Scope = Scope {
        name: "early deletion of versions",
        recipe: Recipe::Versioned,
        operations: Operations { roll_back: 2, collect: 2, ..Scope::NOTHING },
        ..Scope::EARLY_DELETION
    };

    /// Rows that are damaged while two writers regenerate the page, and operators change it.
    pub(super) const DAMAGE: Scope = Scope {
        name: "damage",
        seconds: 1,
        damages: 2,
        operations: Operations { soft: 1, roll_back: 1, collect: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// Rows that are damaged after a tag was invalidated.
    pub(super) const DAMAGED_TAG: Scope = Scope {
        name: "damaged tag",
        writers: 1,
        seconds: 2,
        damages: 1,
        operations: Operations { tag: 1, ..Scope::NOTHING },
        ..Scope::BASE
    };

    /// A row that is damaged while several writers execute one request.
    pub(super) const DAMAGED_REQUEST: Scope =
        Scope { name: "damaged request", seconds: 2, faults: 0, crashes: 0, damages: 1, ..Scope::REQUEST };

    /// All scopes.
    pub(super) const ALL: [Scope; 34] = [
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
        Scope::CLOCKS,
        Scope::CLOCKS_UNCHANGED,
        Scope::CLOCKS_AND_FAULTS,
        Scope::REPLACED_TAG,
        Scope::HISTORY,
        Scope::EVICTION,
        Scope::EVICTION_OF_UNCHANGED,
        Scope::EXPIRY,
        Scope::FIRST_EXPIRES,
        Scope::FORGOTTEN,
        Scope::UNPINNED,
        Scope::REQUEST,
        Scope::EMPTY,
        Scope::EARLY_DELETION,
        Scope::EARLY_DELETION_ALONE,
        Scope::EARLY_DELETION_OF_VERSIONS,
        Scope::DAMAGE,
        Scope::DAMAGED_TAG,
        Scope::DAMAGED_REQUEST,
        Scope::EVERYTHING,
    ];
}
