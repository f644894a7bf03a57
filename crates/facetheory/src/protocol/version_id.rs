//! Version ids: ULIDs, which sort by age.

use std::fmt;

use tabletheory::{Random, Timestamp};

/// The id of a version, a ULID: 48 bits of time and 80 random bits, as 26 characters that sort by age.
///
/// ```
/// use facetheory::protocol::VersionId;
/// use tabletheory::{SeededRandom, Timestamp};
///
/// let random = SeededRandom::new(1);
/// let older = VersionId::new(Timestamp::from_millis(1_700_000_000_000), &random);
/// let newer = VersionId::new(Timestamp::from_millis(1_700_000_000_001), &random);
/// assert!(older.to_string() < newer.to_string());
/// assert!(older.to_string().starts_with("01HF7YAT00"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionId(u128);

impl VersionId {
    /// Creates an id. A time before 1970 counts as 1970.
    ///
    /// ```
    /// use facetheory::protocol::VersionId;
    /// use tabletheory::{SystemRandom, Timestamp};
    ///
    /// let now = Timestamp::from_seconds(1_700_000_000);
    /// assert_ne!(VersionId::new(now, &SystemRandom), VersionId::new(now, &SystemRandom));
    /// ```
    pub fn new(now: Timestamp, random: &dyn Random) -> Self {
        const TIME_BITS: u32 = 48;
        const RANDOM_BITS: u32 = 80;
        let millis = u128::try_from(now.millis()).unwrap_or(0) & ((1 << TIME_BITS) - 1);
        let randomness =
            (u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())) >> (128 - RANDOM_BITS);
        VersionId(millis << RANDOM_BITS | randomness)
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
        (0..26).rev().try_for_each(|place| {
            let digit = (self.0 >> (5 * place)) & 31;
            let letter = ALPHABET[usize::try_from(digit).unwrap_or(0)];
            fmt::Write::write_char(f, char::from(letter))
        })
    }
}
