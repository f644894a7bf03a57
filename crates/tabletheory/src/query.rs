//! Reading several rows: queries of one partition, scans of all, and the pages that both return.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::{Error, Result};
use crate::item::{Item, Key};

/// Whether a read must see every write that was acknowledged before it.
///
/// ```
/// use tabletheory::Consistency;
///
/// assert_ne!(Consistency::Strong, Consistency::Eventual);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// It must. On DynamoDB it costs twice as much.
    #[default]
    Strong,
    /// It may be a moment behind, where the backend has such a thing.
    Eventual,
}

/// The rows of one partition, all or those whose sort key fits, in the order of their sort keys.
///
/// ```
/// use tabletheory::Query;
///
/// let newest = Query::of("CACHE#1").begins_with("VER#").backward().limit(5);
/// assert_eq!(newest.pk(), "CACHE#1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until it is used in a call"]
pub struct Query {
    pub(crate) pk: String,
    pub(crate) sort: Sort,
    pub(crate) backward: bool,
    pub(crate) limit: Option<usize>,
    pub(crate) after: Option<Cursor>,
    pub(crate) consistency: Consistency,
}

/// Which sort keys fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    All,
    Is(String),
    Lt(String),
    Le(String),
    Gt(String),
    Ge(String),
    Between(String, String),
    BeginsWith(String),
}

macro_rules! sort_conditions {
    ($($(#[$doc:meta])* $method:ident => $sort:ident),* $(,)?) => {
        impl Query {
            $($(#[$doc])*
            pub fn $method(mut self, sk: impl Into<String>) -> Self {
                self.sort = Sort::$sort(sk.into());
                self
            })*
        }
    };
}

sort_conditions! {
    /// Only the row with this sort key.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_is("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_is => Is,
    /// Only rows whose sort key is less.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_lt("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_lt => Lt,
    /// Only rows whose sort key is less or equal.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_le("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_le => Le,
    /// Only rows whose sort key is greater.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_gt("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_gt => Gt,
    /// Only rows whose sort key is greater or equal.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_ge("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_ge => Ge,
    /// Only rows whose sort key starts so.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").begins_with("VER#"), Query::of("CACHE#1"));
    /// ```
    begins_with => BeginsWith,
}

impl Query {
    /// Every row of a partition.
    ///
    /// ```
    /// assert_eq!(tabletheory::Query::of("CACHE#1").pk(), "CACHE#1");
    /// ```
    pub fn of(pk: impl Into<String>) -> Self {
        Query {
            pk: pk.into(),
            sort: Sort::All,
            backward: false,
            limit: None,
            after: None,
            consistency: Consistency::Strong,
        }
    }

    /// Only rows whose sort key is at least `low` and at most `high`.
    ///
    /// ```
    /// let query = tabletheory::Query::of("CACHE#1").sk_between("VER#1", "VER#5");
    /// assert_eq!(query.pk(), "CACHE#1");
    /// ```
    pub fn sk_between(mut self, low: impl Into<String>, high: impl Into<String>) -> Self {
        self.sort = Sort::Between(low.into(), high.into());
        self
    }

    /// The greatest sort key first.
    ///
    /// ```
    /// let query = tabletheory::Query::of("CACHE#1").backward();
    /// assert_ne!(query, tabletheory::Query::of("CACHE#1"));
    /// ```
    pub fn backward(mut self) -> Self {
        self.backward = true;
        self
    }

    /// At most so many rows a page.
    ///
    /// ```
    /// let query = tabletheory::Query::of("CACHE#1").limit(10);
    /// assert_ne!(query, tabletheory::Query::of("CACHE#1"));
    /// ```
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = Some(rows);
        self
    }

    /// The rows after those of an earlier page.
    ///
    /// ```
    /// use tabletheory::{Cursor, Key, Query};
    ///
    /// let cursor = Cursor::after(Key::new("CACHE#1", "META"));
    /// assert_ne!(Query::of("CACHE#1").after(cursor), Query::of("CACHE#1"));
    /// ```
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Content with an answer that is a moment old, for half the price on DynamoDB.
    ///
    /// ```
    /// let query = tabletheory::Query::of("CACHE#1").eventual();
    /// assert_ne!(query, tabletheory::Query::of("CACHE#1"));
    /// ```
    pub fn eventual(mut self) -> Self {
        self.consistency = Consistency::Eventual;
        self
    }

    /// The partition that it reads.
    ///
    /// ```
    /// assert_eq!(tabletheory::Query::of("CACHE#1").pk(), "CACHE#1");
    /// ```
    #[must_use]
    pub fn pk(&self) -> &str {
        &self.pk
    }
}

/// Every row of the table, a page at a time, in an order of the backend's own: for maintenance.
///
/// ```
/// let scan = tabletheory::Scan::new().limit(100);
/// assert_ne!(scan, tabletheory::Scan::new());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "it does nothing until it is used in a call"]
pub struct Scan {
    pub(crate) limit: Option<usize>,
    pub(crate) after: Option<Cursor>,
}

impl Scan {
    /// From the beginning.
    ///
    /// ```
    /// assert_eq!(tabletheory::Scan::new(), tabletheory::Scan::default());
    /// ```
    pub fn new() -> Self {
        Scan::default()
    }

    /// At most so many rows a page.
    ///
    /// ```
    /// assert_ne!(tabletheory::Scan::new().limit(1), tabletheory::Scan::new());
    /// ```
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = Some(rows);
        self
    }

    /// The rows after those of an earlier page.
    ///
    /// ```
    /// use tabletheory::{Cursor, Key, Scan};
    ///
    /// let cursor = Cursor::after(Key::new("CACHE#1", "META"));
    /// assert_ne!(Scan::new().after(cursor), Scan::new());
    /// ```
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }
}

/// Some rows, and where to go on.
///
/// ```
/// let end = tabletheory::Page::<()>::default();
/// assert!(end.next.is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T = Item> {
    /// The rows, at most the limit and at most about a megabyte of them; there may be none.
    pub items: Vec<T>,
    /// Where the next page begins; none when there are no more rows. A page may be followed by an empty one.
    pub next: Option<Cursor>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Page { items: Vec::new(), next: None }
    }
}

/// Where a page ended. As text it can be kept, and used by another process.
///
/// ```
/// use tabletheory::{Cursor, Key};
///
/// let cursor = Cursor::after(Key::new("CACHE#1", "VER#2"));
/// let kept = cursor.to_string();
/// assert_eq!(kept.parse::<Cursor>()?, cursor);
/// assert!("nonsense".parse::<Cursor>().is_err());
/// # Ok::<(), tabletheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub(crate) Key);

impl Cursor {
    /// The place right after this row, which need not exist.
    ///
    /// ```
    /// use tabletheory::{Cursor, Key};
    ///
    /// let cursor = Cursor::after(Key::new("CACHE#1", "META"));
    /// assert_eq!(cursor, cursor.to_string().parse()?);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    #[must_use]
    pub fn after(key: Key) -> Self {
        Cursor(key)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = serde_json::json!([self.0.pk, self.0.sk]).to_string();
        f.write_str(&URL_SAFE_NO_PAD.encode(parts))
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("this is not a cursor that a page returned");
        let parts = URL_SAFE_NO_PAD.decode(text).map_err(|cause| wrong().caused_by(cause))?;
        let (pk, sk): (String, String) =
            serde_json::from_slice(&parts).map_err(|cause| wrong().caused_by(cause))?;
        Ok(Cursor(Key { pk, sk }))
    }
}
