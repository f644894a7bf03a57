//! Which bodies rows name: a set of fixed size, which may take a name for one of its own but never forgets one.

use std::hash::{DefaultHasher, Hasher as _};

use tabletheory::Random;

/// How many bits stand for a name.
///
/// With the default of 16 MiB, that is 134 million bits, an orphan is taken for a named body with a chance of one in
/// a thousand million where rows name a million bodies, one in 500 where they name ten million, and one in 20 at
/// twenty million. Beyond that the set should be larger.
const BITS_A_NAME: u64 = 7;

/// The names of bodies that must stay, as a Bloom filter.
///
/// An orphan that is taken for a named body stays until the next collection, whose seeds are others.
pub(super) struct References {
    words: Vec<u64>,
    seeds: [u64; 2],
}

impl References {
    /// An empty set of so many bytes.
    pub(super) fn new(bytes: usize, random: &dyn Random) -> Self {
        References {
            words: vec![0; bytes.div_ceil(size_of::<u64>()).max(1)],
            seeds: [random.next_u64(), random.next_u64()],
        }
    }

    pub(super) fn insert(&mut self, name: &str) {
        for place in self.places(name) {
            self.words[place.0] |= place.1;
        }
    }

    /// Whether the name was inserted; it may say so of one that was not.
    pub(super) fn may_contain(&self, name: &str) -> bool {
        self.places(name).all(|(word, bit)| self.words[word] & bit != 0)
    }

    /// The chance that a name which was not inserted is taken for one that was.
    pub(super) fn false_keeps(&self) -> f64 {
        let ones: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        let share = ones as f64 / self.bits() as f64;
        share.powf(BITS_A_NAME as f64)
    }

    fn bits(&self) -> u64 {
        self.words.len() as u64 * u64::from(u64::BITS)
    }

    /// Two hashes give any number of places that are as good as independent ones.
    fn places(&self, name: &str) -> impl Iterator<Item = (usize, u64)> + use<> {
        let [first, step] = self.seeds.map(|seed| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(seed);
            hasher.write(name.as_bytes());
            hasher.finish()
        });
        let bits = self.bits();
        (0..BITS_A_NAME).map(move |index| {
            let place = first.wrapping_add(index.wrapping_mul(step | 1)) % bits;
            let word = usize::try_from(place / u64::from(u64::BITS)).unwrap_or(0);
            (word, 1 << (place % u64::from(u64::BITS)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    #[test]
    fn what_was_inserted_is_never_forgotten() {
        let mut references = References::new(1000, &SeededRandom::new(1));
        for number in 0..10_000 {
            references.insert(&number.to_string());
        }
        assert!((0..10_000).all(|number| references.may_contain(&number.to_string())), "full as it is");
    }

    #[test]
    fn mistakes_are_as_rare_as_told_and_differ_from_run_to_run() {
        const NAMED: u64 = 10_000;
        // As full as 16 MiB are with ten million names.
        let bytes = usize::try_from(NAMED * 16 * 1024 * 1024 / 10_000_000).expect("a small size");
        let mistakes = |seed| {
            let mut references = References::new(bytes, &SeededRandom::new(seed));
            (0..NAMED).for_each(|number| references.insert(&format!("named {number}")));
            let taken = |number: &u64| references.may_contain(&format!("orphan {number}"));
            ((0..100_000).filter(taken).collect::<Vec<u64>>(), references.false_keeps())
        };
        let ((one, told), (other, _)) = (mistakes(1), mistakes(2));
        assert!((100..400).contains(&one.len()), "{} of 100,000, about one in 500", one.len());
        assert!((0.001..0.004).contains(&told), "{told}");
        let both = one.iter().filter(|number| other.contains(number)).count();
        assert!(both < 10, "{both} were mistaken twice");
    }
}
