//! Writes and transactions.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::cond::Cond;
use crate::error::{Error, Result};
use crate::item::{Item, Key};
use crate::random::Random;
use crate::update::Update;

/// A write to one row, with an optional condition.
///
/// ```
/// use tabletheory::{Attr, Item, Key, Write};
///
/// const PK: Attr<String> = Attr::new("pk");
///
/// let new = Write::put(Key::new("CACHE#1", "META"), Item::new()).when(PK.absent());
/// assert_eq!(new.key(), &Key::new("CACHE#1", "META"));
/// ```
#[derive(Clone, Debug, PartialEq, Hash)]
#[must_use = "a write has no effect until its transaction is committed"]
pub struct Write {
    pub(crate) key: Key,
    pub(crate) op: Op,
    pub(crate) cond: Option<Cond>,
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum Op {
    Put(Item),
    Update(Update),
    Delete,
    Check,
}

impl Write {
    /// Replaces or creates the row.
    ///
    /// If the item has a `pk` or `sk`, they must match the key.
    ///
    /// ```
    /// use tabletheory::{Item, Key, Value, Write};
    ///
    /// let write = Write::put(Key::new("CACHE#1", "META"), Item::from([("version", Value::from(1))]));
    /// assert_eq!(write.key().sk, "META");
    /// ```
    pub fn put(key: Key, item: Item) -> Self {
        Write::new(key, Op::Put(item))
    }

    /// Updates attributes of the row, or creates it with them.
    ///
    /// ```
    /// use tabletheory::{Attr, Key, Update, Write};
    ///
    /// let stale = Update::new([Attr::<i64>::new("revalidate_seconds").set(0)]);
    /// let write = Write::update(Key::new("CACHE#1", "META"), stale);
    /// assert_eq!(write.key().pk, "CACHE#1");
    /// ```
    pub fn update(key: Key, update: Update) -> Self {
        Write::new(key, Op::Update(update))
    }

    /// Deletes the row. Succeeds if there is no row.
    ///
    /// ```
    /// use tabletheory::{Attr, Key, Write};
    ///
    /// let release = Write::delete(Key::new("CACHE#1", "LOCK")).when(Attr::<String>::new("lease_token").is("t"));
    /// assert_eq!(release.key().sk, "LOCK");
    /// ```
    pub fn delete(key: Key) -> Self {
        Write::new(key, Op::Delete)
    }

    /// Writes nothing, but makes the transaction depend on this condition.
    ///
    /// ```
    /// use tabletheory::{Attr, Key, Write};
    ///
    /// let exists = Write::check(Key::new("CACHE#1", "VER#1"), Attr::<String>::new("pk").exists());
    /// assert_eq!(exists.key().sk, "VER#1");
    /// ```
    pub fn check(key: Key, cond: Cond) -> Self {
        Write::new(key, Op::Check).when(cond)
    }

    fn new(key: Key, op: Op) -> Self {
        Write { key, op, cond: None }
    }

    /// Adds a condition; all conditions of a write must be true.
    ///
    /// ```
    /// use tabletheory::{Attr, Item, Key, Write};
    ///
    /// let write = Write::put(Key::new("CACHE#1", "LOCK"), Item::new())
    ///     .when(Attr::<i64>::new("lease_expires_at").le(1_700_000_000));
    /// assert_eq!(write.condition().unwrap().to_string(), "lease_expires_at <= 1700000000");
    /// ```
    pub fn when(mut self, cond: Cond) -> Self {
        self.cond = Some(match self.cond {
            Some(existing) => existing.and(cond),
            None => cond,
        });
        self
    }

    /// Returns the key of the row.
    ///
    /// ```
    /// use tabletheory::{Key, Write};
    ///
    /// assert_eq!(Write::delete(Key::new("a", "b")).key(), &Key::new("a", "b"));
    /// ```
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the condition, if there is one.
    ///
    /// ```
    /// use tabletheory::{Key, Write};
    ///
    /// assert!(Write::delete(Key::new("a", "b")).condition().is_none());
    /// ```
    #[must_use]
    pub fn condition(&self) -> Option<&Cond> {
        self.cond.as_ref()
    }
}

/// A transaction: 1 to 100 writes to distinct rows, of which all are applied or none.
///
/// ```
/// use tabletheory::{Attr, Item, Key, MemoryTable, Table, Txn, Write};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// let table = MemoryTable::new();
/// let key = Key::new("CACHE#1", "META");
/// let publish = Txn::new([
///     Write::put(key.clone(), Item::new()),
///     Write::delete(key.sibling("LOCK")).when(Attr::<String>::new("lease_token").is("t-1")),
/// ]);
/// // The lease is not held, so nothing is published.
/// assert!(table.commit(&publish).await?.is_refused());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transaction has no effect until it is committed"]
pub struct Txn {
    // Shared, because a backend that commits in a thread of its own needs a copy.
    pub(crate) writes: Arc<Vec<Write>>,
    pub(crate) token: Option<ClientToken>,
    /// Whether the writes are on disk once the commit is acknowledged.
    pub(crate) is_durable: bool,
}

impl Txn {
    /// Creates a transaction. It is validated when it is committed, or by [`check`](Txn::check).
    ///
    /// ```
    /// use tabletheory::{Key, Txn, Write};
    ///
    /// let txn = Txn::new([Write::delete(Key::new("a", "b"))]);
    /// assert_eq!(txn.writes().len(), 1);
    /// ```
    pub fn new(writes: impl IntoIterator<Item = Write>) -> Self {
        Txn { writes: Arc::new(writes.into_iter().collect()), token: None, is_durable: true }
    }

    /// Sets a client token, which makes it safe to commit the transaction again.
    ///
    /// ```
    /// use tabletheory::{ClientToken, Key, Txn, Write};
    ///
    /// let txn = Txn::new([Write::delete(Key::new("a", "b"))]).with_token(ClientToken::new("attempt-1")?);
    /// assert!(txn.token().is_some());
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn with_token(mut self, token: ClientToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Lets a table on a local disk acknowledge the commit before the writes are on the disk. They are visible to all processes,
    /// and survive them; a failure of the machine loses them, unless a later durable commit to the table was acknowledged.
    ///
    /// For rows that mean nothing once all processes of the machine have ended, such as leases. Other tables ignore it.
    ///
    /// ```
    /// use tabletheory::{Key, Txn, Write};
    ///
    /// let release = Txn::from(Write::delete(Key::new("JOB#1", "LOCK"))).without_sync();
    /// assert_eq!(release.writes().len(), 1);
    /// ```
    pub fn without_sync(mut self) -> Self {
        self.is_durable = false;
        self
    }

    /// Returns the writes. [`Commit::Refused`] contains an index into them.
    ///
    /// ```
    /// assert!(tabletheory::Txn::new([]).writes().is_empty());
    /// ```
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Returns the client token, if there is one.
    ///
    /// ```
    /// assert!(tabletheory::Txn::new([]).token().is_none());
    /// ```
    #[must_use]
    pub fn token(&self) -> Option<&ClientToken> {
        self.token.as_ref()
    }

    /// Identifies the writes, to detect a client token that is reused for other writes.
    pub(crate) fn digest(&self) -> [u8; 32] {
        // The derived `Hash` covers every part of every write. Digests are stored for minutes only, so it may change between
        // versions.
        let mut hasher = Sha256Hasher(Sha256::new());
        self.writes.hash(&mut hasher);
        hasher.0.finalize().into()
    }
}

/// Collects what is hashed into a SHA-256 digest.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        u64::from_ne_bytes(digest.first_chunk().copied().unwrap_or_default())
    }
}

impl From<Write> for Txn {
    fn from(write: Write) -> Self {
        Txn::new([write])
    }
}

/// Identifies one attempt at a transaction. A transaction that is committed again with the same token within ten minutes is
/// not applied again, and the result is [`Commit::Done`] as before.
///
/// ```
/// use tabletheory::{ClientToken, SeededRandom};
///
/// assert_eq!(ClientToken::new("attempt-1")?.as_str(), "attempt-1");
/// assert!(ClientToken::new("x".repeat(37)).is_err());
/// assert_eq!(ClientToken::random(&SeededRandom::new(1)).as_str().len(), 32);
/// # Ok::<(), tabletheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientToken(String);

impl ClientToken {
    /// Maximum length in bytes.
    pub const MAX: usize = 36;

    /// Creates a token of 1 to 36 bytes.
    ///
    /// ```
    /// assert!(tabletheory::ClientToken::new("").is_err());
    /// ```
    pub fn new(token: impl Into<String>) -> Result<Self> {
        let (token, max) = (token.into(), Self::MAX);
        match token.len() {
            1..=Self::MAX => Ok(ClientToken(token)),
            bytes => {
                Err(Error::invalid(format!("a client token has {bytes} bytes; it must have 1 to {max}")))
            }
        }
    }

    /// Creates a unique token: 128 random bits in hexadecimal.
    ///
    /// ```
    /// use tabletheory::{ClientToken, SystemRandom};
    ///
    /// assert_ne!(ClientToken::random(&SystemRandom), ClientToken::random(&SystemRandom));
    /// ```
    pub fn random(random: &dyn Random) -> Self {
        ClientToken(format!("{:016x}{:016x}", random.next_u64(), random.next_u64()))
    }

    /// Returns the token as text.
    ///
    /// ```
    /// assert_eq!(tabletheory::ClientToken::new("a")?.as_str(), "a");
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The result of a transaction. A refusal is a value, not an error.
///
/// ```
/// use tabletheory::{Attr, Commit, Item, Key, MemoryTable, Table, Txn, Write};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// let table = MemoryTable::new();
/// let new = Txn::from(Write::put(Key::new("a", "b"), Item::new()).when(Attr::<String>::new("pk").absent()));
/// assert!(table.commit(&new).await?.is_done());
/// match table.commit(&new).await? {
///     Commit::Refused { index, seen } => assert_eq!((index, seen.is_some()), (0, true)),
///     Commit::Done => unreachable!("the row exists"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a refused transaction wrote nothing"]
pub enum Commit {
    /// All writes were applied.
    Done,
    /// No write was applied, because a condition was false.
    Refused {
        /// Index of the first write whose condition was false.
        index: usize,
        /// The stored row that the condition was evaluated on, `None` if there is no row.
        seen: Option<Item>,
    },
}

impl Commit {
    /// Whether all writes were applied.
    ///
    /// ```
    /// assert!(tabletheory::Commit::Done.is_done());
    /// ```
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Commit::Done)
    }

    /// Whether the transaction was refused.
    ///
    /// ```
    /// use tabletheory::Commit;
    ///
    /// assert!(Commit::Refused { index: 0, seen: None }.is_refused());
    /// ```
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.is_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    #[test]
    fn both_halves_of_random_tokens_are_unique() {
        let random = SeededRandom::new(1);
        let tokens: Vec<_> = (0..100).map(|_| ClientToken::random(&random)).collect();
        let halves: std::collections::HashSet<_> =
            tokens.iter().flat_map(|token| [&token.as_str()[..16], &token.as_str()[16..]]).collect();
        assert_eq!(halves.len(), 200);
    }
}
