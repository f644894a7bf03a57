//! Atomic cells that hold the small states of a connection.
//!
//! Each cell is one atomic word with relaxed ordering: a cell is only compared with itself, or read by the ticker, which
//! reads again a moment later.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The part of a request that the client has to send next.
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

/// An [`Expected`] and the tick since when it is expected. One word, so that no reader sees one without the other.
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
}
