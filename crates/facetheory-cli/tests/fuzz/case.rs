//! One client connection: its bytes, their pieces, and its end. All are derived from a seed and a case number.

use std::time::Duration;

use crate::mutation::mutate;
use crate::random::Random;
use crate::support::http2::PREFACE;
use crate::{frame, grammar, seed, stream};

/// The percentage of HTTP/2 cases.
const HTTP2: usize = 30;
/// The most pieces in which bytes are sent.
const PIECES: usize = 12;

/// The behaviour of a client after it has sent everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ConnectionEnd {
    /// Waits for the responses and closes.
    AfterResponses,
    /// Closes immediately; unread bytes make this a reset.
    Abort,
    /// Closes the sending direction and reads to the end.
    HalfClosed,
    /// Waits for the gateway to close the connection.
    WaitForClose,
}

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// All bytes.
    pub(crate) bytes: Vec<u8>,
    /// The positions of the cuts, in order.
    pub(crate) cuts: Vec<usize>,
    /// The pause after each piece.
    pub(crate) rest: Duration,
    pub(crate) connection_end: ConnectionEnd,
}

impl Case {
    /// The case with this number.
    pub(crate) fn of(seed: u64, number: u64) -> Case {
        let mut random = Random::of(seed, number);
        let is_http2 = random.percent(HTTP2);
        let bytes = if is_http2 { http2(&mut random, number) } else { http1(&mut random, number) };
        let pieces = if random.percent(50) { 0 } else { random.below(PIECES) };
        let mut cuts: Vec<usize> = (0..pieces).map(|_| random.below(bytes.len().max(1))).collect();
        cuts.sort_unstable();
        let rest = if random.percent(3) { random.one(&[20, 50, 100]) } else { random.one(&[0, 1]) };
        let connection_end = match random.below(100) {
            0..10 => ConnectionEnd::Abort,
            10..20 => ConnectionEnd::HalfClosed,
            20..23 => ConnectionEnd::WaitForClose,
            _ => ConnectionEnd::AfterResponses,
        };
        Case { bytes, cuts, rest: Duration::from_millis(rest), connection_end }
    }

    /// A case that sends these bytes at once.
    pub(crate) fn plain(bytes: Vec<u8>) -> Case {
        Case { bytes, cuts: Vec::new(), rest: Duration::ZERO, connection_end: ConnectionEnd::WaitForClose }
    }

    /// Whether the gateway detects HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.bytes.starts_with(PREFACE)
    }

    /// The pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain([self.bytes.len()]);
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }
}

fn http1(random: &mut Random, number: u64) -> Vec<u8> {
    let made = |random: &mut Random| match random.percent(30) {
        true => seed::seed(random, number),
        false => grammar::connection(random, number),
    };
    let mut bytes = made(random);
    if random.percent(50) {
        let other = made(random);
        mutate(random, &mut bytes, &other);
    }
    bytes
}

fn http2(random: &mut Random, number: u64) -> Vec<u8> {
    let bytes = frame::connection(random, number);
    if random.percent(60) {
        return bytes;
    }
    let mut frames = bytes[PREFACE.len()..].to_vec();
    let other = frame::connection(random, number)[PREFACE.len()..].to_vec();
    mutate(random, &mut frames, &other);
    let mutated = [PREFACE, &frames].concat();
    // Ambiguous bytes cannot be judged.
    if stream::expected_requests(&mutated).is_some() { mutated } else { bytes }
}

#[test]
fn a_case_is_reproducible_and_its_pieces_are_the_whole() {
    for number in 0..200 {
        let case = Case::of(7, number);
        assert_eq!(case.bytes, Case::of(7, number).bytes);
        assert_eq!(case.pieces().collect::<Vec<_>>().concat(), case.bytes);
    }
}
