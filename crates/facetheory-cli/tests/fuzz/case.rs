//! One connection of a visitor: what is sent on it, in which pieces, and how it ends. A seed and a number decide it all.

use std::time::Duration;

use crate::dice::Dice;
use crate::mutation::mutate;
use crate::support::http2::PREFACE;
use crate::{frame, grammar, seed, stream};

/// In so many of a hundred cases HTTP/2 is spoken.
const HTTP2: usize = 30;
/// How many pieces bytes are sent in at most.
const PIECES: usize = 12;

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// All that is sent.
    pub(crate) bytes: Vec<u8>,
    /// Where it is cut into pieces, in order.
    pub(crate) cuts: Vec<usize>,
    /// How long the visitor rests after each piece.
    pub(crate) rest: Duration,
    pub(crate) ending: Ending,
}

/// What a visitor does when all is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Waits for its answers and goes.
    Answered,
    /// Goes at once. What it has not read makes that a reset.
    Gone,
    /// Says that nothing more will come, and reads to the end.
    HalfClosed,
    /// Waits for the gateway to close the connection.
    Patient,
}

impl Case {
    /// The case of this number.
    pub(crate) fn of(seed: u64, number: u64) -> Case {
        let mut dice = Dice::of(seed, number);
        let is_http2 = dice.percent(HTTP2);
        let bytes = if is_http2 { http2(&mut dice, number) } else { http1(&mut dice, number) };
        let pieces = if dice.percent(50) { 0 } else { dice.below(PIECES) };
        let mut cuts: Vec<usize> = (0..pieces).map(|_| dice.below(bytes.len().max(1))).collect();
        cuts.sort_unstable();
        let rest = if dice.percent(3) { dice.one(&[20, 50, 100]) } else { dice.one(&[0, 1]) };
        let ending = match dice.below(100) {
            0..10 => Ending::Gone,
            10..20 => Ending::HalfClosed,
            20..23 => Ending::Patient,
            _ => Ending::Answered,
        };
        Case { bytes, cuts, rest: Duration::from_millis(rest), ending }
    }

    /// These bytes, sent at once, to see what comes of them alone.
    pub(crate) fn plain(bytes: Vec<u8>) -> Case {
        Case { bytes, cuts: Vec::new(), rest: Duration::ZERO, ending: Ending::Patient }
    }

    /// Whether the gateway takes it for HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.bytes.starts_with(PREFACE)
    }

    /// What is sent, piece by piece.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain([self.bytes.len()]);
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }
}

fn http1(dice: &mut Dice, number: u64) -> Vec<u8> {
    let made = |dice: &mut Dice| match dice.percent(30) {
        true => seed::seed(dice, number),
        false => grammar::connection(dice, number),
    };
    let mut bytes = made(dice);
    if dice.percent(50) {
        let other = made(dice);
        mutate(dice, &mut bytes, &other);
    }
    bytes
}

fn http2(dice: &mut Dice, number: u64) -> Vec<u8> {
    let bytes = frame::connection(dice, number);
    if dice.percent(60) {
        return bytes;
    }
    let mut frames = bytes[PREFACE.len()..].to_vec();
    let other = frame::connection(dice, number)[PREFACE.len()..].to_vec();
    mutate(dice, &mut frames, &other);
    let mutated = [PREFACE, &frames].concat();
    // What cannot be told what it asks for cannot be judged.
    if stream::asked(&mutated).is_some() { mutated } else { bytes }
}

#[test]
fn a_case_is_the_same_whenever_it_is_made_and_nothing_is_lost_by_cutting() {
    for number in 0..200 {
        let case = Case::of(7, number);
        assert_eq!(case.bytes, Case::of(7, number).bytes);
        assert_eq!(case.pieces().collect::<Vec<_>>().concat(), case.bytes);
    }
}
