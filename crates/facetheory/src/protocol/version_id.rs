//! Version ids: ULIDs, which sort by age.

use std::fmt;

use sha2::{Digest as _, Sha256};
use tabletheory::limit::MAX_SK_BYTES;
use tabletheory::{Random, Timestamp};

const TIME_BITS: u32 = 48;
const RANDOM_BITS: u32 = 80;
/// The characters of an id that encode its random bits, which are its last.
const RANDOM_CHARACTERS: usize = 16;
/// The start of the sort key of a version.
const PREFIX: &str = "VER#";

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
        let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        VersionId::from_parts(now, bits)
    }

    /// Creates the id of the version with this body. Its random bits are the start of the SHA-256 of the S3 key, which is
    /// random itself: so `META`, which repeats the S3 key, shows whether the copy in it is of the version that it points at.
    ///
    /// ```
    /// use facetheory::protocol::VersionId;
    /// use tabletheory::Timestamp;
    ///
    /// let id = VersionId::of_body(Timestamp::from_millis(1_700_000_000_000), "isr/0/1-a.html");
    /// assert_eq!(id.to_string(), "01HF7YAT004H5NPYFYT3KDBVY3");
    /// ```
    #[must_use]
    pub fn of_body(now: Timestamp, s3_key: &str) -> Self {
        let hash = Sha256::digest(s3_key.as_bytes());
        let bits = hash.iter().take(16).fold(0, |bits: u128, byte| bits << 8 | u128::from(*byte));
        VersionId::from_parts(now, bits)
    }

    /// The id with this time and the first of these bits.
    fn from_parts(now: Timestamp, bits: u128) -> Self {
        let millis = u128::try_from(now.millis()).unwrap_or(0) & ((1 << TIME_BITS) - 1);
        VersionId(millis << RANDOM_BITS | bits >> (128 - RANDOM_BITS))
    }
}

/// Whether a text can be the sort key of a version. Any other text in `current_sk` counts as absent: it could name `META` or
/// `LOCK`, or no row at all.
pub(crate) fn is_version_sk(sk: &str) -> bool {
    sk.starts_with(PREFIX) && sk.len() <= MAX_SK_BYTES
}

/// Whether the version with this sort key was published with this body, as far as its id shows. Ids of other services show
/// nothing.
pub(crate) fn is_version_of(sk: &str, s3_key: &str) -> bool {
    let Some(id) = sk.strip_prefix(PREFIX) else { return false };
    let expected = VersionId::of_body(Timestamp::from_seconds(0), s3_key).to_string();
    let bits = expected.len() - RANDOM_CHARACTERS;
    id.len() == expected.len() && id.get(bits..) == expected.get(bits..)
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
