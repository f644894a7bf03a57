//! Queries of one partition, scans of the whole table, and the pages that both return.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::cond::Comparison;
use crate::error::{Error, Result};
use crate::item::{Item, Key};

/// Whether a read sees every write that was acknowledged before it.
///
/// ```
/// use tabletheory::Consistency;
///
/// assert_ne!(Consistency::Strong, Consistency::Eventual);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// It does. Costs twice as much on DynamoDB.
    #[default]
    Strong,
    /// It may miss recent writes, if the backend supports such reads (only DynamoDB does).
    Eventual,
}

/// A read of the rows of one partition in the order of their sort keys, optionally restricted by sort key.
///
/// ```
/// use tabletheory::Query;
///
/// let newest = Query::of("CACHE#1").begins_with("VER#").backward().limit(5);
/// assert_eq!(newest.pk(), "CACHE#1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a query has no effect until it is passed to a table"]
pub struct Query {
    pub(crate) pk: String,
    pub(crate) sort: Sort,
    pub(crate) limit: Option<usize>,
    pub(crate) backward: bool,
    pub(crate) after: Option<Cursor>,
    pub(crate) consistency: Consistency,
}

/// A condition on sort keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    All,
    /// Never with [`Comparison::NotEqual`].
    Compare(Comparison, String),
    Between(String, String),
    BeginsWith(String),
}

impl Sort {
    pub(crate) fn matches(&self, sk: &str) -> bool {
        match self {
            Sort::All => true,
            Sort::Compare(comparison, bound) => comparison.accepts(sk.cmp(bound)),
            Sort::Between(low, high) => (low.as_str()..=high.as_str()).contains(&sk),
            Sort::BeginsWith(prefix) => sk.starts_with(prefix.as_str()),
        }
    }
}

/// Defines the methods that restrict a query by one comparison of its sort key.
macro_rules! sort_comparisons {
    ($($(#[$doc:meta])* $method:ident => $comparison:ident),* $(,)?) => {
        impl Query {
            $($(#[$doc])*
            pub fn $method(mut self, sk: impl Into<String>) -> Self {
                self.sort = Sort::Compare(Comparison::$comparison, sk.into());
                self
            })*
        }
    };
}

sort_comparisons! {
    /// Restricts the query to the row with this sort key.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_is("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_is => Equal,
    /// Restricts the query to rows with a lesser sort key.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_lt("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_lt => Less,
    /// Restricts the query to rows with a lesser or equal sort key.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_le("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_le => LessOrEqual,
    /// Restricts the query to rows with a greater sort key.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_gt("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_gt => Greater,
    /// Restricts the query to rows with a greater or equal sort key.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").sk_ge("VER#"), Query::of("CACHE#1"));
    /// ```
    sk_ge => GreaterOrEqual,
}

impl Query {
    /// Creates a query for all rows of a partition.
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

    /// Restricts the query to rows whose sort key has this prefix.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert_ne!(Query::of("CACHE#1").begins_with("VER#"), Query::of("CACHE#1"));
    /// ```
    pub fn begins_with(mut self, prefix: impl Into<String>) -> Self {
        self.sort = Sort::BeginsWith(prefix.into());
        self
    }

    /// Restricts the query to rows whose sort key is at least `low` and at most `high`.
    ///
    /// ```
    /// let query = tabletheory::Query::of("CACHE#1").sk_between("VER#1", "VER#5");
    /// assert_eq!(query.pk(), "CACHE#1");
    /// ```
    pub fn sk_between(mut self, low: impl Into<String>, high: impl Into<String>) -> Self {
        self.sort = Sort::Between(low.into(), high.into());
        self
    }

    /// Returns rows in descending order of their sort keys.
    ///
    /// ```
    /// let query = tabletheory::Query::of("CACHE#1").backward();
    /// assert_ne!(query, tabletheory::Query::of("CACHE#1"));
    /// ```
    pub fn backward(mut self) -> Self {
        self.backward = true;
        self
    }

    /// Reads with eventual consistency, at half the price on DynamoDB.
    ///
    /// ```
    /// let query = tabletheory::Query::of("CACHE#1").eventual();
    /// assert_ne!(query, tabletheory::Query::of("CACHE#1"));
    /// ```
    pub fn eventual(mut self) -> Self {
        self.consistency = Consistency::Eventual;
        self
    }

    /// Returns the partition key.
    ///
    /// ```
    /// assert_eq!(tabletheory::Query::of("CACHE#1").pk(), "CACHE#1");
    /// ```
    #[must_use]
    pub fn pk(&self) -> &str {
        &self.pk
    }
}

/// A read of all rows of the table, one page at a time, in an order that depends on the backend. For maintenance.
///
/// ```
/// let scan = tabletheory::Scan::new().limit(100);
/// assert_ne!(scan, tabletheory::Scan::new());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a scan has no effect until it is passed to a table"]
pub struct Scan {
    pub(crate) limit: Option<usize>,
    pub(crate) after: Option<Cursor>,
}

impl Scan {
    /// Creates a scan that starts at the first row.
    ///
    /// ```
    /// assert_eq!(tabletheory::Scan::new(), tabletheory::Scan::default());
    /// ```
    pub fn new() -> Self {
        Scan::default()
    }
}

/// Defines the methods that queries and scans share.
macro_rules! paging {
    ($($request:ty),*) => {$(
        impl $request {
            /// Limits the number of rows per page.
            ///
            /// ```
            /// use tabletheory::{Query, Scan};
            ///
            /// assert_ne!(Query::of("CACHE#1").limit(10), Query::of("CACHE#1"));
            /// assert_ne!(Scan::new().limit(10), Scan::new());
            /// ```
            pub fn limit(mut self, rows: usize) -> Self {
                self.limit = Some(rows);
                self
            }

            /// Continues after an earlier page.
            ///
            /// ```
            /// use tabletheory::{Cursor, Key, Query, Scan};
            ///
            /// let cursor = Cursor::after(Key::new("CACHE#1", "META"));
            /// assert_ne!(Query::of("CACHE#1").after(cursor.clone()), Query::of("CACHE#1"));
            /// assert_ne!(Scan::new().after(cursor), Scan::new());
            /// ```
            pub fn after(mut self, cursor: Cursor) -> Self {
                self.after = Some(cursor);
                self
            }
        }
    )*};
}

paging!(Query, Scan);

/// A page of rows, and the position of the next page.
///
/// ```
/// let end = tabletheory::Page::<()>::default();
/// assert!(end.next.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page<T = Item> {
    /// The rows: at most as many as the limit and about a megabyte. May be empty.
    pub items: Vec<T>,
    /// Position of the next page, `None` if there are no more rows. The next page may be empty.
    pub next: Option<Cursor>,
}

/// The position after a page. Its text form may be stored and used by another process.
///
/// ```
/// use tabletheory::{Cursor, Key};
///
/// let cursor = Cursor::after(Key::new("CACHE#1", "VER#2"));
/// let text = cursor.to_string();
/// assert_eq!(text.parse::<Cursor>()?, cursor);
/// assert!("nonsense".parse::<Cursor>().is_err());
/// # Ok::<(), tabletheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub(crate) Key);

impl Cursor {
    /// Creates a cursor directly after this row, which need not exist.
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
        let invalid = || Error::invalid("invalid cursor: pass the `next` of a page unchanged");
        let parts = URL_SAFE_NO_PAD.decode(text).map_err(|cause| invalid().caused_by(cause))?;
        let (pk, sk): (String, String) =
            serde_json::from_slice(&parts).map_err(|cause| invalid().caused_by(cause))?;
        Ok(Cursor(Key { pk, sk }))
    }
}
