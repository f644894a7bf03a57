//! Scopes: the actors of an exploration, and how many faults may happen.

use super::budget::Budget;
use super::budget::Event::{
    ClockStep, Collect, Crash, Damage, Evict, Fault, Hard, HardTag, LockExpiry, PutTag, RollBack, RowExpiry,
    Soft, Swap, Tag,
};

/// How a writer publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipe {
    InPlace,
    Versioned,
    /// Every render has the body of the current page.
    Unchanged,
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
    /// How often faults and operations may happen.
    pub(super) budget: Budget,
    /// Whether the rows of pages have the counts of their tags, unlike those of other languages.
    pub(super) counts: bool,
    /// Whether each writer may refresh its lease, once.
    pub(super) refreshes: bool,
    /// Whether the writers execute one request with an idempotency key.
    pub(super) request: bool,
    /// Whether replaced bodies are deleted early while somebody reads, and the page has no versions initially.
    pub(super) early_deletion: bool,
    /// How many seconds a page that is rolled back is pinned.
    pub(super) pin: u64,
}

impl Scope {
    /// Two writers and no faults: the base of the other scopes.
    const BASE: Scope = Scope {
        name: "base",
        recipe: Recipe::Versioned,
        empty: false,
        writers: 2,
        leases: 2,
        seconds: 4,
        counts: true,
        refreshes: false,
        request: false,
        early_deletion: false,
        pin: 2,
        budget: Budget::NOTHING,
    };

    /// All actors and all faults.
    pub(super) const EVERYTHING: Scope = Scope {
        name: "everything",
        writers: 3,
        leases: 4,
        seconds: 5,
        refreshes: true,
        budget: Budget::of(&[
            (Fault, 2),
            (Crash, 1),
            (LockExpiry, 1),
            (RowExpiry, 1),
            (ClockStep, 1),
            (Damage, 1),
            (Soft, 1),
            (Hard, 1),
            (Tag, 1),
            (RollBack, 1),
            (Collect, 2),
            (Evict, 1),
        ]),
        ..Scope::BASE
    };

    /// Three writers that compete for one lease, and leases that expire during a render.
    pub(super) const RACE: Scope = Scope {
        name: "race",
        writers: 3,
        leases: 3,
        refreshes: true,
        budget: Budget::of(&[(Crash, 1), (LockExpiry, 1)]),
        ..Scope::BASE
    };

    /// Requests and responses that are delayed, duplicated or lost.
    pub(super) const NETWORK: Scope = Scope {
        name: "network",
        seconds: 2,
        refreshes: true,
        budget: Budget::of(&[(Fault, 3), (LockExpiry, 1)]),
        ..Scope::BASE
    };

    /// One writer whose requests are delayed, duplicated or lost.
    pub(super) const ALONE: Scope = Scope {
        name: "alone",
        writers: 1,
        leases: 1,
        seconds: 2,
        refreshes: true,
        budget: Budget::of(&[(Fault, 3), (LockExpiry, 1)]),
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
        budget: Budget::of(&[(Fault, 2), (Soft, 1), (RollBack, 1)]),
        ..Scope::BASE
    };

    /// Renders that do not change the body.
    pub(super) const UNCHANGED: Scope = Scope {
        name: "unchanged",
        recipe: Recipe::Unchanged,
        budget: Budget::of(&[(Fault, 2), (Hard, 1), (RollBack, 1), (Collect, 1)]),
        ..Scope::BASE
    };

    /// One writer whose render does not change the body, and everybody else who changes the page meanwhile.
    pub(super) const EXTENSION: Scope = Scope {
        name: "extension",
        writers: 1,
        leases: 1,
        seconds: 1,
        budget: Budget::of(&[(Soft, 1), (RollBack, 1), (Swap, 1)]),
        ..Scope::UNCHANGED
    };

    /// A writer that loses its lease before it reads `META`, and whose clock finds the next page stale at once.
    pub(super) const LATE_LOOKUP: Scope = Scope {
        name: "late lookup",
        writers: 3,
        leases: 2,
        seconds: 0,
        budget: Budget::of(&[(LockExpiry, 1)]),
        ..Scope::EXTENSION
    };

    /// A page that is invalidated a second time while it is regenerated after the first.
    pub(super) const INVALIDATED_TWICE: Scope =
        Scope { name: "invalidated twice", budget: Budget::of(&[(Soft, 2)]), ..Scope::EXTENSION };

    /// Invalidation of the page while it is regenerated.
    pub(super) const INVALIDATION: Scope = Scope {
        name: "invalidation",
        seconds: 3,
        budget: Budget::of(&[(Fault, 1), (LockExpiry, 1), (Soft, 1), (Hard, 1)]),
        ..Scope::BASE
    };

    /// A writer whose lock is deleted while another takes over.
    pub(super) const TAKEOVER: Scope =
        Scope { name: "takeover", seconds: 1, budget: Budget::of(&[(Soft, 1)]), ..Scope::BASE };

    /// One writer, and operators that delete its lock.
    pub(super) const FENCE: Scope = Scope {
        name: "fence",
        recipe: Recipe::InPlace,
        writers: 1,
        leases: 1,
        seconds: 2,
        budget: Budget::of(&[(Fault, 1), (Soft, 1), (RollBack, 1)]),
        ..Scope::BASE
    };

    /// Invalidation of a tag while the wall clocks are set.
    pub(super) const CLOCKS: Scope = Scope {
        name: "clocks",
        recipe: Recipe::InPlace,
        writers: 1,
        leases: 1,
        seconds: 1,
        budget: Budget::of(&[(ClockStep, 1), (Tag, 2)]),
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
        budget: Scope::CLOCKS.budget.with(&[(Fault, 1), (ClockStep, 2)]),
        ..Scope::CLOCKS
    };

    /// Soft and hard invalidation of a tag while the wall clocks are set. A request may arrive late.
    pub(super) const HARD_TAG: Scope = Scope {
        name: "hard tag",
        leases: 2,
        budget: Budget::of(&[(Fault, 1), (ClockStep, 1), (Tag, 1), (HardTag, 1)]),
        ..Scope::CLOCKS
    };

    /// Invalidation of a tag whose row another service replaces.
    pub(super) const REPLACED_TAG: Scope = Scope {
        name: "replaced tag",
        recipe: Recipe::InPlace,
        writers: 1,
        leases: 1,
        seconds: 1,
        budget: Budget::of(&[(Tag, 2), (PutTag, 1)]),
        ..Scope::BASE
    };

    /// Invalidation of a tag while a writer with another clock regenerates the page, whose row has no counts.
    pub(super) const TAG: Scope = Scope {
        name: "tag",
        counts: false,
        writers: 3,
        leases: 2,
        budget: Budget::of(&[(Tag, 2), (RollBack, 1)]),
        ..Scope::BASE
    };

    /// Rollback to a version, and its garbage collection, while the page is regenerated.
    pub(super) const HISTORY: Scope = Scope {
        name: "history",
        seconds: 2,
        budget: Budget::of(&[(Fault, 2), (RollBack, 2), (Collect, 2)]),
        ..Scope::BASE
    };

    /// Eviction of a page that is regenerated and rolled back.
    pub(super) const EVICTION: Scope = Scope {
        name: "eviction",
        seconds: 3,
        budget: Budget::of(&[(Fault, 1), (LockExpiry, 1), (RollBack, 1), (Evict, 2)]),
        ..Scope::BASE
    };

    /// Eviction of a page whose render does not change the body.
    pub(super) const EVICTION_OF_UNCHANGED: Scope =
        Scope { name: "eviction of unchanged", recipe: Recipe::Unchanged, ..Scope::EVICTION };

    /// Versions that expire during a rollback to them.
    pub(super) const EXPIRY: Scope = Scope {
        name: "expiry",
        seconds: 2,
        budget: Budget::of(&[(Fault, 1), (RowExpiry, 2), (RollBack, 2), (Collect, 1)]),
        ..Scope::BASE
    };

    /// The first page, which expires as soon as it is published.
    pub(super) const FIRST_EXPIRES: Scope = Scope {
        name: "first expires",
        empty: true,
        budget: Scope::ALONE.budget.with(&[(RowExpiry, 1)]),
        ..Scope::ALONE
    };

    /// A request whose row expires while it is executed.
    pub(super) const FORGOTTEN: Scope = Scope {
        name: "forgotten",
        budget: Scope::REQUEST.budget.with(&[(Fault, 1), (RowExpiry, 2)]),
        ..Scope::REQUEST
    };

    /// A rollback without a pin to a version that was invalidated.
    pub(super) const UNPINNED: Scope = Scope {
        name: "unpinned",
        pin: 0,
        budget: Budget::of(&[(Soft, 1), (RollBack, 1), (Collect, 1)]),
        ..Scope::BASE
    };

    /// One request, delivered to several writers.
    pub(super) const REQUEST: Scope = Scope {
        name: "request",
        leases: 3,
        request: true,
        budget: Budget::of(&[(Fault, 2), (Crash, 1)]),
        ..Scope::BASE
    };

    /// A page that has not been rendered yet.
    pub(super) const EMPTY: Scope = Scope {
        name: "empty",
        empty: true,
        seconds: 3,
        budget: Budget::of(&[(Fault, 1), (Soft, 1), (Hard, 1)]),
        ..Scope::BASE
    };

    /// Bodies that are deleted soon after they were replaced, and a reader with an older pointer.
    pub(super) const EARLY_DELETION: Scope = Scope {
        name: "early deletion",
        recipe: Recipe::InPlace,
        seconds: 3,
        early_deletion: true,
        budget: Budget::of(&[(Fault, 1), (Soft, 1)]),
        ..Scope::BASE
    };

    /// Early deletion of bodies whose publish has an unknown outcome.
    pub(super) const EARLY_DELETION_ALONE: Scope = Scope {
        name: "early deletion, alone",
        writers: 1,
        leases: 1,
        seconds: 4,
        budget: Budget::of(&[(Fault, 3)]),
        ..Scope::EARLY_DELETION
    };

    /// Early deletion of the bodies of versions, and rollbacks to them.
    pub(super) const EARLY_DELETION_OF_VERSIONS: Scope = Scope {
        name: "early deletion of versions",
        recipe: Recipe::Versioned,
        budget: Budget::of(&[(Fault, 1), (RollBack, 2), (Collect, 2)]),
        ..Scope::EARLY_DELETION
    };

    /// Rows that are damaged while two writers regenerate the page, and operators change it.
    pub(super) const DAMAGE: Scope = Scope {
        name: "damage",
        seconds: 1,
        budget: Budget::of(&[(Damage, 2), (Soft, 1), (RollBack, 1), (Collect, 1)]),
        ..Scope::BASE
    };

    /// A row that is damaged while one writer regenerates the page, which is invalidated.
    pub(super) const ONE_DAMAGED_ROW: Scope = Scope {
        name: "one damaged row",
        leases: 1,
        budget: Budget::of(&[(Damage, 1), (Soft, 1)]),
        ..Scope::DAMAGE
    };

    /// Rows that are damaged after a tag was invalidated.
    pub(super) const DAMAGED_TAG: Scope = Scope {
        name: "damaged tag",
        writers: 1,
        seconds: 2,
        budget: Budget::of(&[(Damage, 1), (Tag, 1)]),
        ..Scope::BASE
    };

    /// A row that is damaged while several writers execute one request.
    pub(super) const DAMAGED_REQUEST: Scope =
        Scope { name: "damaged request", seconds: 2, budget: Budget::of(&[(Damage, 1)]), ..Scope::REQUEST };

    /// This scope with two writers at most, fewer leases, seconds and faults, and without refreshes.
    const fn within(self, name: &'static str, leases: u8, seconds: i8, faults: u8) -> Scope {
        let writers = if self.writers < 2 { self.writers } else { 2 };
        let budget = self.budget.with(&[(Fault, faults)]);
        Scope { name, writers, leases, seconds, budget, refreshes: false, ..self }
    }

    /// The scopes of which all states are explored: the smaller ones, and parts of the larger ones.
    pub(super) const SMALL: [Scope; 33] = [
        Scope::ALONE,
        Scope::ALONE_IN_PLACE,
        Scope::ALONE_UNCHANGED,
        Scope::EXTENSION,
        Scope::LATE_LOOKUP,
        Scope::INVALIDATED_TWICE,
        Scope::FENCE,
        Scope::TAKEOVER,
        Scope::CLOCKS,
        Scope::CLOCKS_UNCHANGED,
        Scope::REPLACED_TAG,
        Scope::FIRST_EXPIRES,
        Scope::EARLY_DELETION_ALONE,
        Scope::DAMAGED_TAG,
        Scope::DAMAGED_REQUEST,
        Scope::RACE.within("race of two", 2, 2, 0),
        Scope::NETWORK.within("network, one fault", 2, 1, 1),
        Scope::IN_PLACE.within("in place, one lease", 1, 1, 1),
        Scope::UNCHANGED.within("unchanged, one lease", 1, 1, 0),
        Scope::INVALIDATION.within("invalidation, one lease", 1, 1, 1),
        Scope::TAG.within("tag, one lease", 1, 1, 0),
        Scope::CLOCKS_AND_FAULTS.within("clocks of two writers", 1, 0, 0),
        Scope::HISTORY.within("history, one lease", 1, 1, 0),
        Scope::EVICTION.within("eviction, one lease", 1, 1, 0),
        Scope::EVICTION_OF_UNCHANGED.within("eviction of unchanged, one lease", 1, 1, 0),
        Scope::EXPIRY.within("expiry, one lease", 1, 0, 0),
        Scope::FORGOTTEN.within("forgotten, without faults", 2, 1, 0),
        Scope::UNPINNED.within("unpinned, one lease", 1, 1, 0),
        Scope::REQUEST.within("request, one fault", 2, 2, 1),
        Scope::EMPTY.within("empty, without faults", 2, 1, 0),
        Scope::EARLY_DELETION.within("early deletion, without faults", 2, 1, 0),
        Scope::EARLY_DELETION_OF_VERSIONS.within("early deletion of versions, one lease", 1, 0, 0),
        Scope::ONE_DAMAGED_ROW,
    ];

    /// The scopes whose states are too many to explore all of them in a test.
    pub(super) const LARGE: [Scope; 20] = [
        Scope::RACE,
        Scope::NETWORK,
        Scope::IN_PLACE,
        Scope::UNCHANGED,
        Scope::INVALIDATION,
        Scope::TAG,
        Scope::CLOCKS_AND_FAULTS,
        Scope::HARD_TAG,
        Scope::HISTORY,
        Scope::EVICTION,
        Scope::EVICTION_OF_UNCHANGED,
        Scope::EXPIRY,
        Scope::FORGOTTEN,
        Scope::UNPINNED,
        Scope::REQUEST,
        Scope::EMPTY,
        Scope::EARLY_DELETION,
        Scope::EARLY_DELETION_OF_VERSIONS,
        Scope::DAMAGE,
        Scope::EVERYTHING,
    ];
}
