//! One render of a page, as `META` and `VER#` rows describe it.

use crate::protocol::row::codec;

/// One render of a page: where its body is, when it was rendered, and how long it is fresh.
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
    /// The S3 key of the body.
    pub s3_key: String,
    /// When the render started, in epoch seconds.
    pub generated_at: i64,
    /// For how many seconds it is fresh.
    pub revalidate_seconds: i64,
    /// The entity tag for clients.
    pub etag: Option<String>,
    /// Attributes that only our own rows have.
    pub content: Content,
}

codec::attributes!(Generation {
    ..content,
    s3_key = S3_KEY,
    generated_at = GENERATED_AT,
    revalidate_seconds = REVALIDATE_SECONDS => |seconds: i64| seconds.max(0),
    etag = ETAG,
});

/// The description of a body in our own rows. Rows of other languages have none of these attributes.
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
    /// The other stored response headers, in order.
    pub headers: Vec<(String, String)>,
    /// `sha256:` and the hexadecimal digest of the body.
    pub digest: Option<String>,
    /// The tags by which it can be invalidated.
    pub tags: Vec<String>,
    /// The deployment that rendered it.
    pub deployment: Option<String>,
    /// The age of the response when it was received, in seconds, if the headers of the origin decide how long it is
    /// fresh (RFC 9111); `None` for a page that is cached by a rule.
    pub initial_age: Option<i64>,
    /// The request headers that select this variant, if the origin sent `Vary`.
    pub variant: Option<String>,
}

codec::attributes!(Content {
    status = HTTP_STATUS,
    content_type = CONTENT_TYPE,
    headers = HEADERS,
    digest = DIGEST,
    tags = TAGS,
    deployment = DEPLOYMENT,
    initial_age = INITIAL_AGE => |age: Option<i64>| age.map(|age| age.max(0)),
    variant = VARIANT,
});

impl Generation {
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

    /// Whether the headers of the origin decide how long it is fresh, and for which requests.
    pub(crate) fn follows_origin(&self) -> bool {
        self.content.initial_age.is_some()
    }
}
