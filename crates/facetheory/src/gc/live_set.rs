//! The live set: the names of bodies that must not be deleted, as a Bloom filter of constant size.

use std::hash::{DefaultHasher, Hasher as _};

use tabletheory::Random;

/// Bits per name.
///
/// With the default of 16 MiB, which is 134 million bits, an orphan is mistaken for a live body with a probability of one in 10⁹
/// if there are a million live bodies, one in 500 if there are ten million, and one in 20 if there are twenty million. Beyond
/// that the set should be larger.
const HASHES: u64 = 7;

/// A Bloom filter of names.
///
/// It may contain a name that was not inserted, but never lacks one that was. An orphan that is mistaken for a live body is
/// deleted by a later run, which has other seeds.
pub(super) struct LiveSet {
    words: Vec<u64>,
    seeds: [u64; 2],
}

impl LiveSet {
    /// An empty set of this many bytes.
    pub(super) fn new(bytes: usize, random: &dyn Random) -> Self {
        LiveSet {
            words: vec![0; bytes.div_ceil(size_of::<u64>()).max(1)],
            seeds: [random.next_u64(), random.next_u64()],
        }
    }

    pub(super) fn insert(&mut self, name: &str) {
        for (word, bit) in self.positions(name) {
            self.words[word] |= bit;
        }
    }

    /// Whether the name was inserted, or is a false positive.
    pub(super) fn may_contain(&self, name: &str) -> bool {
        self.positions(name).all(|(word, bit)| self.words[word] & bit != 0)
    }

    /// The probability that a name which was not inserted is in the set.
    pub(super) fn false_positives(&self) -> f64 {
        let ones: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        let share = ones as f64 / self.bits() as f64;
        share.powf(HASHES as f64)
    }

    fn bits(&self) -> u64 {
        self.words.len() as u64 * u64::from(u64::BITS)
    }

    /// Derives all bit positions of a name from two hashes (double hashing).
    fn positions(&self, name: &str) -> impl Iterator<Item = (usize, u64)> + use<> {
        let [first, step] = self.seeds.map(|seed| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(seed);
            hasher.write(name.as_bytes());
            hasher.finish()
        });
        let bits = self.bits();
        (0..HASHES).map(move |index| {
            let position = first.wrapping_add(index.wrapping_mul(step | 1)) % bits;
            let word = usize::try_from(position / u64::from(u64::BITS)).unwrap_or(0);
            (word, 1 << (position % u64::from(u64::BITS)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    #[test]
    fn every_inserted_name_is_in_the_set() {
        let mut live = LiveSet::new(1000, &SeededRandom::new(1));
        for number in 0..10_000 {
            live.insert(&number.to_string());
        }
        assert!((0..10_000).all(|number| live.may_contain(&number.to_string())), "even though it is full");
    }

    #[test]
    fn false_positives_are_as_rare_as_documented_and_differ_between_runs() {
        const LIVE: u64 = 10_000;
        // As full as 16 MiB with ten million names.
        let bytes = usize::try_from(LIVE * 16 * 1024 * 1024 / 10_000_000).expect("a small size");
        let run = |seed| {
            let mut live = LiveSet::new(bytes, &SeededRandom::new(seed));
            (0..LIVE).for_each(|number| live.insert(&format!("named {number}")));
            let is_taken = |number: &u64| live.may_contain(&format!("orphan {number}"));
            ((0..100_000).filter(is_taken).collect::<Vec<u64>>(), live.false_positives())
        };
        let ((one, estimated), (other, _)) = (run(1), run(2));
        assert!((100..400).contains(&one.len()), "{} of 100,000, about one in 500", one.len());
        assert!((0.001..0.004).contains(&estimated), "{estimated}");
        let both = one.iter().filter(|number| other.contains(number)).count();
        assert!(both < 10, "{both} false positives in both runs");
    }
}
