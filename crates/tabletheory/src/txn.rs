//! Writes, and transactions of them.

use sha2::{Digest, Sha256};

use crate::cond::Cond;
use crate::error::{Error, Result};
use crate::item::{Item, Key};
use crate::random::Random;
use crate::update::Update;

/// One write to one row, with the condition under which it may happen.
///
/// ```
/// use tabletheory::{Attr, Item, Key, Write};
///
/// const PK: Attr<String> = Attr::new("pk");
///
/// let new = Write::put(Key::new("CACHE#1", "META"), Item::new()).when(PK.absent());
/// assert_eq!(new.key(), &Key::new("CACHE#1", "META"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it does nothing until it is used in a call"]
pub struct Write {
    pub(crate) key: Key,
    pub(crate) op: Op,
    pub(crate) cond: Option<Cond>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Put(Item),
    Update(Update),
    Delete,
    Check,
}

impl Write {
    /// Replaces the whole row, or makes it.
    ///
    /// The item may carry the same `pk` and `sk`; others are refused.
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

    /// Changes attributes of the row, or makes it of these changes.
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

    /// Deletes the row; that there is none is no error.
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

    /// Writes nothing, but lets the transaction happen only if the row is so.
    ///
    /// ```
    /// use tabletheory::{Attr, Key, Write};
    ///
    /// let there = Write::check(Key::new("CACHE#1", "VER#1"), Attr::<String>::new("pk").exists());
    /// assert_eq!(there.key().sk, "VER#1");
    /// ```
    pub fn check(key: Key, cond: Cond) -> Self {
        Write::new(key, Op::Check).when(cond)
    }

    fn new(key: Key, op: Op) -> Self {
        Write { key, op, cond: None }
    }

    /// The same write, only under this condition too.
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
            Some(already) => already.and(cond),
            None => cond,
        });
        self
    }

    /// The row that it writes.
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

    /// The condition under which it happens, if it has one.
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

/// From one to a hundred writes, each to another row, that happen together or not at all.
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
/// // Nobody holds the lease, so nothing is published.
/// assert!(table.commit(&publish).await?.is_refused());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it does nothing until it is used in a call"]
pub struct Txn {
    pub(crate) writes: Vec<Write>,
    pub(crate) token: Option<ClientToken>,
}

impl Txn {
    /// A transaction of these writes; what is wrong with them is said when it is committed.
    ///
    /// ```
    /// use tabletheory::{Key, Txn, Write};
    ///
    /// let txn = Txn::new([Write::delete(Key::new("a", "b"))]);
    /// assert_eq!(txn.writes().len(), 1);
    /// ```
    pub fn new(writes: impl IntoIterator<Item = Write>) -> Self {
        Txn { writes: writes.into_iter().collect(), token: None }
    }

    /// The same transaction under a client token, which makes committing it again harmless.
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

    /// Its writes, in the order in which a refusal counts them.
    ///
    /// ```
    /// assert!(tabletheory::Txn::new([]).writes().is_empty());
    /// ```
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Its client token, if it has one.
    ///
    /// ```
    /// assert!(tabletheory::Txn::new([]).token().is_none());
    /// ```
    #[must_use]
    pub fn token(&self) -> Option<&ClientToken> {
        self.token.as_ref()
    }

    /// Tells one transaction's writes from another's, to see whether a client token came back with others.
    pub(crate) fn digest(&self) -> [u8; 32] {
        // The derived form shows every part of every write; it is kept for minutes, never for good.
        Sha256::digest(format!("{:?}", self.writes)).into()
    }
}

impl From<Write> for Txn {
    fn from(write: Write) -> Self {
        Txn::new([write])
    }
}

/// Names one attempt at a transaction: committed again under the same token within ten minutes,
/// it is not applied again, and the answer is [`Commit::Done`] as before.
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
    /// The longest token, in bytes.
    pub const MAX: usize = 36;

    /// A token of 1 to 36 bytes.
    ///
    /// ```
    /// assert!(tabletheory::ClientToken::new("").is_err());
    /// ```
    pub fn new(token: impl Into<String>) -> Result<Self> {
        let token = token.into();
        if token.is_empty() || token.len() > Self::MAX {
            return Err(Error::invalid(format!(
                "a client token has {} bytes; it must have 1 to {}",
                token.len(),
                Self::MAX
            )));
        }
        Ok(ClientToken(token))
    }

    /// A token that nobody else has: 128 random bits in hexadecimal.
    ///
    /// ```
    /// use tabletheory::{ClientToken, SystemRandom};
    ///
    /// assert_ne!(ClientToken::random(&SystemRandom), ClientToken::random(&SystemRandom));
    /// ```
    pub fn random(random: &dyn Random) -> Self {
        ClientToken(format!("{:016x}{:016x}", random.next_u64(), random.next_u64()))
    }

    /// The token as text.
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

/// How a transaction ended. A "no" is a value, not an error.
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
///     Commit::Done => unreachable!("the row is there"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a refused transaction wrote nothing"]
pub enum Commit {
    /// Every write happened.
    Done,
    /// No write happened, because of a condition.
    Refused {
        /// The first write whose condition did not hold.
        index: usize,
        /// The row that the condition saw; none when there was no row.
        seen: Option<Item>,
    },
}

impl Commit {
    /// Whether every write happened.
    ///
    /// ```
    /// assert!(tabletheory::Commit::Done.is_done());
    /// ```
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Commit::Done)
    }

    /// Whether a condition refused it.
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
    fn no_half_of_a_random_token_comes_twice() {
        let random = SeededRandom::new(1);
        let tokens: Vec<_> = (0..100).map(|_| ClientToken::random(&random)).collect();
        let halves: std::collections::HashSet<_> =
            tokens.iter().flat_map(|token| [&token.as_str()[..16], &token.as_str()[16..]]).collect();
        assert_eq!(halves.len(), 200);
    }
}
