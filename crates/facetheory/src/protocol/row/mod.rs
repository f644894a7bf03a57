//! The rows of a page, between the table and the protocol: strict about what the wire format demands,
//! forgiving about everything else, since services in other languages write them too.

use tabletheory::{Attr, Item, Number, Value};

use crate::error::{Error, Result};
use crate::protocol::attribute as name;
use crate::protocol::generation::Generation;

/// `META`: the current generation of a page, and what has happened to it since.
///
/// ```
/// use facetheory::protocol::{Generation, Meta};
/// use tabletheory::Item;
///
/// let foreign = r#"{"generated_at":{"N":"1700000000"},"revalidate_seconds":{"N":"60"},"s3_key":{"S":"a.html"}}"#;
/// let meta = Meta::read(&Item::from_json(foreign)?)?;
/// assert_eq!(meta, Meta::of(Generation::new("a.html", 1_700_000_000, 60)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Meta {
    /// What is served.
    pub generation: Generation,
    /// When the row may be collected, in epoch seconds.
    pub ttl: Option<i64>,
    /// The sort key of the version that it points at, where versions are kept.
    pub current_sk: Option<String>,
    /// How often the pointer has moved, where versions are kept.
    pub version: Option<u64>,
    /// Since when it is invalid, in epoch seconds.
    pub stale_since: Option<i64>,
    /// Whether it may not be served any more, not even while it is renewed.
    pub must_not_serve: bool,
    /// Until when a rolled-back page is kept as it is, in epoch seconds.
    pub pinned_until: Option<i64>,
    /// The lease that published it last.
    pub mark: Option<String>,
}

impl Meta {
    /// The row of a generation that nothing has happened to yet.
    ///
    /// ```
    /// use facetheory::protocol::{Generation, Meta};
    ///
    /// assert!(!Meta::of(Generation::new("a.html", 1, 60)).must_not_serve);
    /// ```
    #[must_use]
    pub fn of(generation: Generation) -> Self {
        Meta {
            generation,
            ttl: None,
            current_sk: None,
            version: None,
            stale_since: None,
            must_not_serve: false,
            pinned_until: None,
            mark: None,
        }
    }

    /// The row as the table has it.
    ///
    /// A required attribute that is missing or mistyped is [`Kind::Corrupt`](crate::Kind::Corrupt); others are
    /// taken for absent.
    ///
    /// ```
    /// let error = facetheory::protocol::Meta::read(&tabletheory::Item::new()).unwrap_err();
    /// assert_eq!(error.to_string(), "META: attribute `s3_key` is missing");
    /// ```
    pub fn read(item: &Item) -> Result<Self> {
        let row = Reader::of("META", item);
        Ok(Meta {
            generation: Generation::read(&row)?,
            ttl: row.optional_seconds(&name::TTL),
            current_sk: row.optional_text(&name::CURRENT_SK),
            version: row.optional_seconds(&name::VERSION).and_then(|version| u64::try_from(version).ok()),
            stale_since: row.optional_seconds(&name::STALE_SINCE),
            must_not_serve: row.value(&name::MUST_NOT_SERVE) == Some(&Value::Bool(true)),
            pinned_until: row.optional_seconds(&name::PINNED_UNTIL),
            mark: row.optional_text(&name::MARK),
        })
    }

    /// The attributes of the row, without its key.
    ///
    /// ```
    /// use facetheory::protocol::{Generation, Meta};
    ///
    /// assert_eq!(Meta::of(Generation::new("a.html", 1, 60)).to_item().len(), 3);
    /// ```
    #[must_use]
    pub fn to_item(&self) -> Item {
        let mut item = Item::new();
        self.generation.write(&mut item);
        set_optional(&mut item, &name::TTL, self.ttl);
        set_optional(&mut item, &name::CURRENT_SK, self.current_sk.as_deref());
        set_optional(&mut item, &name::VERSION, self.version);
        set_optional(&mut item, &name::STALE_SINCE, self.stale_since);
        set_optional(&mut item, &name::MUST_NOT_SERVE, self.must_not_serve.then_some(true));
        set_optional(&mut item, &name::PINNED_UNTIL, self.pinned_until);
        set_optional(&mut item, &name::MARK, self.mark.as_deref());
        item
    }
}

/// `LOCK`: who regenerates a page, and until when nobody else may.
///
/// ```
/// use facetheory::protocol::Lock;
///
/// let lock = Lock::new("t", 1_700_000_030);
/// assert_eq!(Lock::read(&lock.to_item())?, lock);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lock {
    /// Known to the holder alone.
    pub lease_token: String,
    /// Held while this is later than now, in epoch seconds.
    pub lease_expires_at: i64,
    /// When the row may be collected, in epoch seconds.
    pub ttl: Option<i64>,
    /// Who holds it, for people to read.
    pub owner: Option<String>,
}

impl Lock {
    /// The row of a lease that is held with this token until this time, in epoch seconds.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Lock::new("t", 1_700_000_030).ttl, None);
    /// ```
    pub fn new(lease_token: impl Into<String>, lease_expires_at: i64) -> Self {
        Lock { lease_token: lease_token.into(), lease_expires_at, ttl: None, owner: None }
    }

    /// The row as the table has it.
    ///
    /// ```
    /// assert!(facetheory::protocol::Lock::read(&tabletheory::Item::new()).is_err());
    /// ```
    pub fn read(item: &Item) -> Result<Self> {
        let row = Reader::of("LOCK", item);
        Ok(Lock {
            lease_token: row.text(&name::LEASE_TOKEN)?,
            lease_expires_at: row.seconds(&name::LEASE_EXPIRES_AT)?,
            ttl: row.optional_seconds(&name::TTL),
            owner: row.optional_text(&name::OWNER),
        })
    }

    /// The attributes of the row, without its key.
    ///
    /// ```
    /// use facetheory::protocol::Lock;
    ///
    /// assert_eq!(Lock::new("t", 1).to_item().len(), 2);
    /// ```
    #[must_use]
    pub fn to_item(&self) -> Item {
        let mut item = Item::new();
        item.set(name::LEASE_TOKEN.name(), self.lease_token.as_str());
        item.set(name::LEASE_EXPIRES_AT.name(), self.lease_expires_at);
        set_optional(&mut item, &name::TTL, self.ttl);
        set_optional(&mut item, &name::OWNER, self.owner.as_deref());
        item
    }
}

/// What the table says of a page at one moment.
///
/// ```
/// assert!(facetheory::protocol::View::default().meta.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// What is served; none if there is nothing, or nothing that can be read.
    pub meta: Option<Meta>,
    /// Who renews it, held or not.
    pub lock: Option<Lock>,
}

/// `VER#<id>`: a generation that is kept, to be looked at and rolled back to.
///
/// ```
/// use facetheory::protocol::{Generation, Version};
///
/// let version = Version::of(Generation::new("a.html", 1, 60));
/// assert_eq!(Version::read(&version.to_item())?, version);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Version {
    /// What was rendered.
    pub generation: Generation,
    /// When the row may be collected; absent while it is the current one.
    pub ttl: Option<i64>,
}

impl Version {
    /// The row of a generation that is current, and so has no `ttl`.
    ///
    /// ```
    /// # use facetheory::protocol::{Generation, Version};
    /// assert_eq!(Version::of(Generation::new("a.html", 1, 60)).ttl, None);
    /// ```
    #[must_use]
    pub fn of(generation: Generation) -> Self {
        Version { generation, ttl: None }
    }

    /// The row as the table has it.
    ///
    /// ```
    /// assert!(facetheory::protocol::Version::read(&tabletheory::Item::new()).is_err());
    /// ```
    pub fn read(item: &Item) -> Result<Self> {
        let row = Reader::of("VER#", item);
        Ok(Version { generation: Generation::read(&row)?, ttl: row.optional_seconds(&name::TTL) })
    }

    /// The attributes of the row, without its key.
    ///
    /// ```
    /// use facetheory::protocol::{Generation, Version};
    ///
    /// assert_eq!(Version::of(Generation::new("a", 1, 60)).to_item().len(), 3);
    /// ```
    #[must_use]
    pub fn to_item(&self) -> Item {
        let mut item = Item::new();
        self.generation.write(&mut item);
        set_optional(&mut item, &name::TTL, self.ttl);
        item
    }
}

/// `REQ#<idempotency key>`: one wish to regenerate, however often it is repeated.
///
/// ```
/// use facetheory::protocol::{Request, RequestStatus};
///
/// let request = Request::started("hash", 1_700_086_400);
/// assert_eq!(request.status, RequestStatus::Started);
/// assert_eq!(Request::read(&request.to_item())?, request);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The digest of what was asked for: the same key with another one is an error.
    pub request_hash: String,
    /// How far it has come.
    pub status: RequestStatus,
    /// The body that it produced.
    pub result_s3_key: Option<String>,
    /// When the row may be collected, in epoch seconds.
    pub ttl: i64,
    /// The lease under which it is worked on.
    pub owner: Option<String>,
    /// Until when it counts as worked on, in epoch seconds.
    pub in_progress_until: Option<i64>,
}

/// How far a [`Request`] has come.
///
/// ```
/// assert_ne!(facetheory::protocol::RequestStatus::Started, facetheory::protocol::RequestStatus::Completed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStatus {
    /// Somebody works on it, or has stopped to.
    Started,
    /// It is done, and the result is recorded.
    Completed,
    /// It was given up, and may be tried again.
    Failed,
}

impl RequestStatus {
    /// The word on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RequestStatus::Started => "STARTED",
            RequestStatus::Completed => "COMPLETED",
            RequestStatus::Failed => "FAILED",
        }
    }
}

impl Request {
    /// A request that has just begun.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Request::started("h", 9).ttl, 9);
    /// ```
    pub fn started(request_hash: impl Into<String>, ttl: i64) -> Self {
        Request {
            request_hash: request_hash.into(),
            status: RequestStatus::Started,
            result_s3_key: None,
            ttl,
            owner: None,
            in_progress_until: None,
        }
    }

    /// The row as the table has it.
    ///
    /// ```
    /// assert!(facetheory::protocol::Request::read(&tabletheory::Item::new()).is_err());
    /// ```
    pub fn read(item: &Item) -> Result<Self> {
        let row = Reader::of("REQ#", item);
        let status = match row.text(&name::STATUS)?.as_str() {
            "STARTED" => RequestStatus::Started,
            "COMPLETED" => RequestStatus::Completed,
            "FAILED" => RequestStatus::Failed,
            other => return Err(Error::corrupt(format!("REQ#: the status {other:?} is none of ours"))),
        };
        Ok(Request {
            request_hash: row.text(&name::REQUEST_HASH)?,
            status,
            result_s3_key: row.optional_text(&name::RESULT_S3_KEY),
            ttl: row.seconds(&name::TTL)?,
            owner: row.optional_text(&name::OWNER),
            in_progress_until: row.optional_seconds(&name::IN_PROGRESS_UNTIL),
        })
    }

    /// The attributes of the row, without its key.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Request::started("h", 9).to_item().len(), 3);
    /// ```
    #[must_use]
    pub fn to_item(&self) -> Item {
        let mut item = Item::new();
        item.set(name::REQUEST_HASH.name(), self.request_hash.as_str());
        item.set(name::STATUS.name(), self.status.as_str());
        set_optional(&mut item, &name::RESULT_S3_KEY, self.result_s3_key.as_deref());
        item.set(name::TTL.name(), self.ttl);
        set_optional(&mut item, &name::OWNER, self.owner.as_deref());
        set_optional(&mut item, &name::IN_PROGRESS_UNTIL, self.in_progress_until);
        item
    }
}

/// What can be the status of a response; anything else in a row is not believed.
pub(crate) const STATUSES: std::ops::RangeInclusive<u16> = 100..=599;

/// An absent optional is an absent attribute, never NULL or "".
pub(crate) fn set_optional<T>(item: &mut Item, attr: &Attr<T>, value: Option<impl Into<Value>>) {
    if let Some(value) = value.map(Into::into).filter(|value| value.as_str() != Some("")) {
        item.set(attr.name(), value);
    }
}

/// Reads the attributes of one row.
pub(crate) struct Reader<'a> {
    role: &'static str,
    item: &'a Item,
}

impl<'a> Reader<'a> {
    /// The row of a role, which messages name.
    pub(crate) fn of(role: &'static str, item: &'a Item) -> Self {
        Reader { role, item }
    }

    pub(crate) fn value<T>(&self, attr: &Attr<T>) -> Option<&Value> {
        self.item.get(attr.name())
    }

    pub(crate) fn text<T>(&self, attr: &Attr<T>) -> Result<String> {
        self.required(attr, "S", |value| value.as_str().map(str::to_owned))
    }

    /// Whole seconds; a fraction, which JavaScript writes now and then, is cut off.
    pub(crate) fn seconds<T>(&self, attr: &Attr<T>) -> Result<i64> {
        self.required(attr, "N", |value| value.as_number().map(whole))
    }

    pub(crate) fn optional_text<T>(&self, attr: &Attr<T>) -> Option<String> {
        self.value(attr).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    pub(crate) fn optional_seconds<T>(&self, attr: &Attr<T>) -> Option<i64> {
        self.value(attr).and_then(Value::as_number).map(whole)
    }

    fn required<T, R>(&self, attr: &Attr<T>, ty: &str, read: impl Fn(&Value) -> Option<R>) -> Result<R> {
        let place = format!("{}: attribute `{}`", self.role, attr.name());
        match self.value(attr) {
            None => Err(Error::corrupt(format!("{place} is missing"))),
            Some(value) => read(value).ok_or_else(|| {
                Error::corrupt(format!("{place} is of type {}; it must be {ty}", value.type_name()))
            }),
        }
    }
}

/// The whole part, and the nearest number of 64 bits for one that is out of their range.
fn whole(number: &Number) -> i64 {
    let text = number.to_string();
    let whole = text.split('.').next().unwrap_or(&text);
    let negative = text.starts_with('-');
    whole.parse().unwrap_or(if negative { i64::MIN } else { i64::MAX })
}
