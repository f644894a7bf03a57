//! Atomic cells that hold the small states of a connection.
//!
//! Each cell is one atomic word with relaxed ordering: a cell is only compared with itself, or read by the ticker, which
//! reads again a moment later.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What the client has to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// A request, of which nothing has arrived.
    Request,
    /// The rest of a request head.
    Head,
    /// The rest of a request body.
    Body,
    /// Nothing: the connection is a tunnel.
    Nothing,
}

/// What the client has to send next, and the tick since when. One word, so that no reader sees one without the other.
#[derive(Debug)]
pub(super) struct ExpectedSince(AtomicU64);

impl ExpectedSince {
    pub(super) fn new(expected: Expected, tick: u32) -> Self {
        ExpectedSince(AtomicU64::new(Self::pack(expected, tick)))
    }

    const fn pack(expected: Expected, tick: u32) -> u64 {
        (expected as u64) << 32 | tick as u64
    }

    pub(super) fn get(&self) -> (Expected, u32) {
        let word = self.0.load(Relaxed);
        let expected = match word >> 32 {
            0 => Expected::Request,
            1 => Expected::Head,
            2 => Expected::Body,
            _ => Expected::Nothing,
        };
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the tick")]
        (expected, word as u32)
    }

    /// Changes what is expected. The tick stays if nothing changes.
    pub(super) fn set(&self, expected: Expected, now: u32) {
        if self.0.load(Relaxed) >> 32 != expected as u64 {
            self.0.store(Self::pack(expected, now), Relaxed);
        }
    }
}

/// A tick, or none: the tick plus one, or zero.
#[derive(Debug, Default)]
pub(super) struct OptionalTick(AtomicU32);

impl OptionalTick {
    pub(super) fn set(&self, tick: u32) {
        self.0.store(tick.wrapping_add(1), Relaxed);
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    pub(super) fn get(&self) -> Option<u32> {
        match self.0.load(Relaxed) {
            0 => None,
            word => Some(word.wrapping_sub(1)),
        }
    }
}

/// Whether the connection leaves HTTP after a request with an `Upgrade` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// No undecided request has asked for an upgrade.
    None,
    /// The stream holds back what follows the request until the service decides.
    Requested,
    Declined,
    Accepted,
}

/// An [`Upgrade`]. The stream requests, the service decides once, and the stream takes the decision.
#[derive(Debug, Default)]
pub(super) struct UpgradeCell(AtomicU8);

impl UpgradeCell {
    pub(super) fn request(&self) {
        self.0.store(Upgrade::Requested as u8, Relaxed);
    }

    pub(super) fn is_requested(&self) -> bool {
        self.0.load(Relaxed) == Upgrade::Requested as u8
    }

    /// Returns false if there is no undecided request.
    pub(super) fn decide(&self, decision: Upgrade) -> bool {
        // The bytes that were held back are owned by the stream, so no other memory has to be ordered with this.
        self.0.compare_exchange(Upgrade::Requested as u8, decision as u8, Relaxed, Relaxed).is_ok()
    }

    /// The decision, which is returned once.
    pub(super) fn take(&self) -> Upgrade {
        let decision = match self.0.load(Relaxed) {
            2 => Upgrade::Declined,
            3 => Upgrade::Accepted,
            _ => return Upgrade::Requested,
        };
        self.0.store(Upgrade::None as u8, Relaxed);
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expected_state_is_read_as_it_was_written() {
        let cell = ExpectedSince::new(Expected::Request, 3);
        for expected in [Expected::Head, Expected::Body, Expected::Nothing, Expected::Request] {
            cell.set(expected, u32::MAX);
            assert_eq!(cell.get(), (expected, u32::MAX));
            cell.set(expected, 9);
            assert_eq!(cell.get(), (expected, u32::MAX), "the wait began earlier");
        }
    }

    #[test]
    fn every_tick_but_the_last_is_read_as_it_was_written() {
        let cell = OptionalTick::default();
        for tick in [0, 1, u32::MAX - 1] {
            cell.set(tick);
            assert_eq!(cell.get(), Some(tick));
        }
        cell.clear();
        assert_eq!(cell.get(), None);
    }

    #[test]
    fn an_upgrade_is_decided_once_and_only_if_requested() {
        let cell = UpgradeCell::default();
        assert!(!cell.decide(Upgrade::Accepted));
        cell.request();
        assert_eq!(cell.take(), Upgrade::Requested);
        assert!(cell.decide(Upgrade::Accepted));
        assert!(!cell.decide(Upgrade::Declined), "it is decided once");
        assert_eq!(cell.take(), Upgrade::Accepted);
        assert!(!cell.decide(Upgrade::Accepted));
    }
}
