//! How often faults and operations may happen in an exploration.

/// A fault, or an operation of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A request is delayed, duplicated or rejected, or its response is lost.
    Fault,
    /// A writer crashes.
    Crash,
    /// The lock is deleted by its `ttl`, late or far too early.
    LockExpiry,
    /// Another row is deleted by its `ttl`, late or far too early. Rows have a `ttl` only in scopes with this event.
    RowExpiry,
    /// The wall clocks are set, forward or back by more than the interval and the margin.
    ClockStep,
    /// Any row is damaged.
    Damage,
    /// The page is invalidated.
    Soft,
    Hard,
    /// The tag is invalidated.
    Tag,
    HardTag,
    /// A service in another language replaces the row of the tag.
    PutTag,
    RollBack,
    /// A service in another language moves the pointer.
    Swap,
    /// A version, or an orphaned object, is deleted.
    Collect,
    /// The page is evicted.
    Evict,
}

const EVENTS: usize = Event::Evict as usize + 1;

/// How often each event may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Budget([u8; EVENTS]);

impl Budget {
    pub(super) const NOTHING: Budget = Budget([0; EVENTS]);

    /// These events, so many times each.
    pub(super) const fn of(events: &[(Event, u8)]) -> Budget {
        Budget::NOTHING.with(events)
    }

    /// This budget with other limits for these events.
    pub(super) const fn with(mut self, events: &[(Event, u8)]) -> Budget {
        let mut index = 0;
        while index < events.len() {
            let (event, times) = events[index];
            self.0[event as usize] = times;
            index += 1;
        }
        self
    }

    /// Whether an event may still happen.
    pub(super) fn has(&self, event: Event) -> bool {
        self.0[event as usize] > 0
    }

    /// Counts an event. Returns false if it may not happen again.
    pub(super) fn take(&mut self, event: Event) -> bool {
        let left = &mut self.0[event as usize];
        let is_left = *left > 0;
        *left = left.saturating_sub(1);
        is_left
    }
}
