//! One render of a page, as `META` and `VER#` rows describe it.

use crate::protocol::SeenEpochs;
use crate::protocol::row::codec;

codec::attributes! {
    /// One render of a page: where its body is, when it was rendered, and how long it is fresh.
    ///
    /// ```
    /// use facetheory::protocol::Generation;
    ///
    /// let page = Generation::new("isr/0123/1-a.html", 1_700_000_000, 60);
    /// assert_eq!(page.etag, None);
    /// ```
    pub struct Generation {
        ..content: Content,
        /// The S3 key of the body.
        pub s3_key: String = S3_KEY,
        /// When the render started, in epoch seconds.
        pub generated_at: i64 = GENERATED_AT,
        /// For how many seconds it is fresh.
        pub revalidate_seconds: i64 = REVALIDATE_SECONDS => |seconds: i64| seconds.max(0),
        /// The entity tag for clients.
        pub etag: Option<String> = ETAG,
        /// The counts of its tags when the render began; `None` if the render of another language, or an earlier version, has not
        /// written them.
        pub epochs: Option<SeenEpochs> = EPOCHS,
    }
}

codec::attributes! {
    /// The description of a body in our own rows. Rows of other languages have none of these attributes.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Content::default().status, None);
    /// ```
    pub struct Content {
        /// The HTTP status.
        pub status: Option<u16> = HTTP_STATUS,
        /// The content type.
        pub content_type: Option<String> = CONTENT_TYPE,
        /// The other stored response headers, in order.
        pub headers: Vec<(String, String)> = HEADERS,
        /// `sha256:` and the hexadecimal digest of the body.
        pub digest: Option<String> = DIGEST,
        /// The tags by which it can be invalidated.
        pub tags: Vec<String> = TAGS,
        /// The deployment that rendered it.
        pub deployment: Option<String> = DEPLOYMENT,
        /// The age of the response when it was received, in seconds, if the headers of the origin decide how long it is
        /// fresh (RFC 9111); `None` for a page that is cached by a rule.
        pub initial_age: Option<i64> = INITIAL_AGE => |age: Option<i64>| age.map(|age| age.max(0)),
        /// The request headers that select this variant, if the origin sent `Vary`.
        pub variant: Option<String> = VARIANT,
    }
}

impl Generation {
    /// A render that started at this time, with its body in this object.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Generation::new("a.html", 1, 60).s3_key, "a.html");
    /// ```
    pub fn new(s3_key: impl Into<String>, generated_at: i64, revalidate_seconds: i64) -> Self {
        Generation { s3_key: s3_key.into(), generated_at, revalidate_seconds, ..Generation::default() }
    }

    /// Whether the headers of the origin decide how long it is fresh, and for which requests.
    pub(crate) fn follows_origin(&self) -> bool {
        self.content.initial_age.is_some()
    }

    /// When its interval ends, in epoch seconds.
    pub(crate) fn expires_at(&self) -> i64 {
        self.generated_at.saturating_add(self.revalidate_seconds)
    }
}
