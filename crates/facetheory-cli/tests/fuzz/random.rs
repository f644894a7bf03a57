//! Reproducible random numbers.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The generator of one case of a campaign.
    pub(crate) fn of(seed: u64, case: u64) -> Random {
        let mut random = Random { state: seed };
        // Makes neighboring seeds and cases independent.
        random.state = random.next() ^ case.wrapping_mul(0xd134_2543_de82_ef95);
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).expect("a number");
        usize::try_from(self.next() % bound).expect("less than the bound")
    }

    /// True with this probability in percent.
    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// A random byte.
    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// A random element.
    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

#[test]
fn a_seed_repeats_its_numbers_and_differs_from_its_neighbours() {
    let numbers = |seed, case| {
        let mut random = Random::of(seed, case);
        [random.next(), random.next()]
    };
    assert_eq!(numbers(1, 2), numbers(1, 2));
    assert_ne!(numbers(1, 2), numbers(1, 3));
    assert_ne!(numbers(1, 2), numbers(2, 1));
}
