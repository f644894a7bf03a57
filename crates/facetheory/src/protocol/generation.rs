//! What one render produced, as `META` and `VER#` rows tell it.

use tabletheory::{Item, Set, Value};

use crate::error::Result;
use crate::protocol::attribute as name;
use crate::protocol::row::{Reader, STATUSES, set_optional};

/// One render of a page: where its body is, when it was made, and how long it is good for.
///
/// ```
/// use facetheory::protocol::Generation;
///
/// let page = Generation::new("isr/0123/1-a.html", 1_700_000_000, 60);
/// assert_eq!(page.etag, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Generation {
    /// The key of the body's object.
    pub s3_key: String,
    /// When the render started, in epoch seconds.
    pub generated_at: i64,
    /// For how many seconds it is fresh.
    pub revalidate_seconds: i64,
    /// The entity tag for clients.
    pub etag: Option<String>,
    /// What only our own rows know.
    pub content: Content,
}

/// What our rows add about a body. A row of another language has none of it.
///
/// ```
/// assert_eq!(facetheory::protocol::Content::default().status, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
    /// The HTTP status.
    pub status: Option<u16>,
    /// The content type.
    pub content_type: Option<String>,
    /// The other headers that are kept with the page, in order.
    pub headers: Vec<(String, String)>,
    /// `sha256:` and the hexadecimal digest of the body.
    pub digest: Option<String>,
    /// The tags by which it can be invalidated.
    pub tags: Vec<String>,
    /// The deployment that rendered it.
    pub deployment: Option<String>,
    /// How old it was when it was asked for, in seconds, if its origin says by its own headers how it is kept; none for a
    /// page that is kept by a rule.
    pub initial_age: Option<i64>,
    /// What of a request selects it, where its origin says that this matters (`Vary`).
    pub variant: Option<String>,
}

impl Generation {
    /// Whether it was stored as its origin's own headers say, perhaps for some visitors only.
    pub(crate) fn follows_origin(&self) -> bool {
        self.content.initial_age.is_some()
    }

    /// A render that started at this time, with its body in this object.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Generation::new("a.html", 1, 60).s3_key, "a.html");
    /// ```
    pub fn new(s3_key: impl Into<String>, generated_at: i64, revalidate_seconds: i64) -> Self {
        Generation {
            s3_key: s3_key.into(),
            generated_at,
            revalidate_seconds,
            etag: None,
            content: Content::default(),
        }
    }

    pub(crate) fn read(row: &Reader<'_>) -> Result<Self> {
        Ok(Generation {
            s3_key: row.text(&name::S3_KEY)?,
            generated_at: row.seconds(&name::GENERATED_AT)?,
            revalidate_seconds: row.seconds(&name::REVALIDATE_SECONDS)?.max(0),
            etag: row.optional_text(&name::ETAG),
            content: Content::read(row),
        })
    }

    pub(crate) fn write(&self, item: &mut Item) {
        item.set(name::S3_KEY.name(), self.s3_key.as_str());
        item.set(name::GENERATED_AT.name(), self.generated_at);
        item.set(name::REVALIDATE_SECONDS.name(), self.revalidate_seconds);
        set_optional(item, &name::ETAG, self.etag.as_deref().filter(|etag| !etag.is_empty()));
        self.content.write(item);
    }
}

impl Content {
    fn read(row: &Reader<'_>) -> Self {
        Content {
            status: row
                .optional_seconds(&name::HTTP_STATUS)
                .and_then(|status| u16::try_from(status).ok())
                .filter(|status| STATUSES.contains(status)),
            content_type: row.optional_text(&name::CONTENT_TYPE),
            headers: read_headers(row.value(&name::HEADERS)),
            digest: row.optional_text(&name::DIGEST),
            tags: match row.value(&name::TAGS) {
                Some(Value::Ss(tags)) => tags.members().to_vec(),
                _ => Vec::new(),
            },
            deployment: row.optional_text(&name::DEPLOYMENT),
            initial_age: row.optional_seconds(&name::INITIAL_AGE).map(|age| age.max(0)),
            variant: row.optional_text(&name::VARIANT),
        }
    }

    fn write(&self, item: &mut Item) {
        set_optional(item, &name::HTTP_STATUS, self.status);
        set_optional(item, &name::CONTENT_TYPE, self.content_type.as_deref());
        if !self.headers.is_empty() {
            let pair = |(name, value): &(String, String)| {
                Value::L(vec![name.as_str().into(), value.as_str().into()])
            };
            item.set(name::HEADERS.name(), Value::L(self.headers.iter().map(pair).collect()));
        }
        set_optional(item, &name::DIGEST, self.digest.as_deref());
        let tags: std::collections::BTreeSet<String> = self.tags.iter().cloned().collect();
        if let Ok(tags) = Set::new(tags) {
            item.set(name::TAGS.name(), tags);
        }
        set_optional(item, &name::DEPLOYMENT, self.deployment.as_deref());
        set_optional(item, &name::INITIAL_AGE, self.initial_age);
        set_optional(item, &name::VARIANT, self.variant.as_deref());
    }
}

/// A list of pairs, since one name may come several times and their order matters.
fn read_headers(value: Option<&Value>) -> Vec<(String, String)> {
    let Some(Value::L(pairs)) = value else { return Vec::new() };
    let pair = |pair: &Value| match pair {
        Value::L(parts) => match parts.as_slice() {
            [Value::S(name), Value::S(value)] => Some((name.clone(), value.clone())),
            _ => None,
        },
        _ => None,
    };
    pairs.iter().filter_map(pair).collect()
}
