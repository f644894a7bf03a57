//! The difference between two versions, for operators before a rollback.

use std::fmt;

use similar::TextDiff;

use crate::bodies::Body;
use crate::error::{Error, Kind, Result};
use crate::pages::Pages;
use crate::protocol::{PageKey, Version};

/// How many lines around a change are shown.
const CONTEXT_LINES: usize = 3;

/// The difference between two versions of a page. Its text is like the output of `git diff`.
///
/// ```
/// use facetheory::protocol::{Generation, Version};
/// use facetheory::{Body, BodyDiff, Compared, Diff};
///
/// let version = |s3_key: &str| Version::of(Generation::new(s3_key, 1_700_000_000, 60));
/// let body = |text: &'static str| Body::from(text.as_bytes());
/// let diff = Diff::between(
///     Compared { sk: "VER#1", version: &version("1.html"), body: Some(&body("a\nb\n")) },
///     Compared { sk: "VER#2", version: &version("2.html"), body: Some(&body("a\nc\n")) },
/// );
/// assert_eq!(diff.body, BodyDiff::Text("@@ -1,2 +1,2 @@\n a\n-b\n+c\n".into()));
/// assert!(diff.to_string().ends_with("--- VER#1\n+++ VER#2\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diff {
    /// The version on the left.
    pub from: Side,
    /// The version on the right.
    pub to: Side,
    /// The fields that differ, in a fixed order.
    pub fields: Vec<FieldDiff>,
    /// The difference between the bodies.
    pub body: BodyDiff,
}

/// A version to be compared.
///
/// ```
/// # use facetheory::protocol::{Generation, Version};
/// # use facetheory::{Compared, Diff};
/// let version = Version::of(Generation::new("1.html", 1_700_000_000, 60));
/// let compared = Compared { sk: "VER#1", version: &version, body: None };
/// assert!(Diff::between(compared, compared).fields.is_empty());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    /// The sort key of the version.
    pub sk: &'a str,
    /// The version.
    pub version: &'a Version,
    /// Its body, if it exists.
    pub body: Option<&'a Body>,
}

/// One of the two versions.
///
/// ```
/// # use facetheory::protocol::{Generation, Version};
/// # use facetheory::{Compared, Diff};
/// let version = Version::of(Generation::new("1.html", 1_700_000_000, 60));
/// let compared = Compared { sk: "VER#1", version: &version, body: None };
/// let diff = Diff::between(compared, compared);
/// assert_eq!((diff.from.sk.as_str(), diff.from.size), ("VER#1", None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Side {
    /// The sort key of the version.
    pub sk: String,
    /// When it was generated, in epoch seconds.
    pub generated_at: i64,
    /// The length of its body in bytes; `None` if the body is missing.
    pub size: Option<usize>,
}

/// A field that differs; `None` on the side that lacks it.
///
/// ```
/// # use facetheory::protocol::{Generation, Version};
/// # use facetheory::{Compared, Diff};
/// let mut version = Version::of(Generation::new("1.html", 1_700_000_000, 60));
/// let before = version.clone();
/// version.generation.etag = Some("\"7\"".into());
/// let compared = |version| Compared { sk: "VER#1", version, body: None };
/// let diff = Diff::between(compared(&before), compared(&version));
/// assert_eq!((diff.fields[0].name.as_str(), diff.fields[0].to.as_deref()), ("etag", Some("\"7\"")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldDiff {
    /// The name: `status`, `content-type`, `etag`, `tags`, `deployment`, `revalidate-seconds`, or `header NAME`.
    pub name: String,
    /// On the left.
    pub from: Option<String>,
    /// On the right.
    pub to: Option<String>,
}

/// The difference between two bodies, or why they cannot be compared.
///
/// ```
/// assert_eq!(facetheory::BodyDiff::Same.to_string(), "The bodies are the same.");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyDiff {
    /// They are equal.
    Same,
    /// The difference in the unified format, without the two lines that name the files.
    Text(String),
    /// A body is missing or damaged.
    Missing {
        /// The body on the left.
        from: bool,
        /// The body on the right.
        to: bool,
    },
    /// They differ, and at least one is not text.
    NotText,
    /// They differ, and one is longer than [`BodyDiff::MAX_BYTES`] or [`BodyDiff::MAX_LINES`].
    TooLarge,
}

impl BodyDiff {
    /// Longer bodies are not compared by line, in bytes.
    pub const MAX_BYTES: usize = 2 * 1024 * 1024;
    /// Bodies with more lines are not compared by line, which bounds the time.
    pub const MAX_LINES: usize = 20_000;

    fn between(from: Option<&Body>, to: Option<&Body>) -> Self {
        let (Some(from), Some(to)) = (from, to) else {
            return BodyDiff::Missing { from: from.is_none(), to: to.is_none() };
        };
        if from.bytes == to.bytes {
            return BodyDiff::Same;
        }
        if from.bytes.len().max(to.bytes.len()) > Self::MAX_BYTES {
            return BodyDiff::TooLarge;
        }
        let [from, to] = [from, to].map(|body| std::str::from_utf8(&body.bytes));
        let (Ok(from), Ok(to)) = (from, to) else { return BodyDiff::NotText };
        unified(from, to).map_or(BodyDiff::TooLarge, BodyDiff::Text)
    }
}

impl Diff {
    /// Compares two versions.
    ///
    /// ```
    /// # use facetheory::protocol::{Generation, Version};
    /// # use facetheory::{BodyDiff, Compared, Diff};
    /// let version = Version::of(Generation::new("1.html", 1_700_000_000, 60));
    /// let compared = |sk| Compared { sk, version: &version, body: None };
    /// let diff = Diff::between(compared("VER#1"), compared("VER#2"));
    /// assert_eq!(diff.body, BodyDiff::Missing { from: true, to: true });
    /// ```
    #[must_use]
    pub fn between(from: Compared<'_>, to: Compared<'_>) -> Self {
        let side = |Compared { sk, version, body }| Side {
            sk: sk.to_owned(),
            generated_at: version.generation.generated_at,
            size: body.map(|body| body.bytes.len()),
        };
        let fields = fields(from).into_iter().zip(fields(to));
        let fields = fields.filter(|((_, from), (_, to))| from != to);
        let fields = fields.map(|((name, from), (_, to))| FieldDiff { name: name.into(), from, to });
        let fields = fields.chain(headers(from.version, to.version)).collect();
        Diff { from: side(from), to: side(to), fields, body: BodyDiff::between(from.body, to.body) }
    }

    /// Whether nothing but the times differs.
    ///
    /// ```
    /// # use facetheory::protocol::{Generation, Version};
    /// # use facetheory::{Body, Compared, Diff};
    /// let version = Version::of(Generation::new("1.html", 1_700_000_000, 60));
    /// let body = Body::default();
    /// let compared = |sk| Compared { sk, version: &version, body: Some(&body) };
    /// let diff = Diff::between(compared("VER#1"), compared("VER#2"));
    /// assert!(diff.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.body == BodyDiff::Same
    }
}

impl Pages {
    /// Reads a stored version of a page, with its body unless that is missing or damaged.
    ///
    /// ```
    /// # use facetheory::{Bodies, History, PageKey, Pages, PageStore, Policy, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// # let page = PageKey::new("/")?;
    /// let policy = Policy::every(Duration::from_secs(60)).with_history(History::Versions);
    /// let _ = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("<h1>One</h1>")) }).await?;
    /// let (sk, _) = pages.store().versions(&page, 1).await?.remove(0);
    /// let (_, body) = pages.read_version(&page, &sk).await?.expect("it is stored");
    /// assert_eq!(body.expect("its body exists").bytes, "<h1>One</h1>");
    /// # Ok(()) }
    /// ```
    pub async fn read_version(&self, page: &PageKey, sk: &str) -> Result<Option<(Version, Option<Body>)>> {
        let Some(version) = self.store().version(page, sk).await? else { return Ok(None) };
        let generation = &version.generation;
        let body = self.bodies.get(&generation.s3_key, generation.content.digest.as_deref()).await?;
        Ok(Some((version, body)))
    }

    /// Compares two versions of a page. Returns `None` if one of them is not stored.
    ///
    /// ```
    /// # use facetheory::{Bodies, PageKey, Pages, PageStore};
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// assert!(pages.diff(&PageKey::new("/")?, "VER#1", "VER#2").await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn diff(&self, page: &PageKey, from_sk: &str, to_sk: &str) -> Result<Option<Diff>> {
        let from = self.read_version(page, from_sk).await?;
        let to = self.read_version(page, to_sk).await?;
        let (Some((from, from_body)), Some((to, to_body))) = (from, to) else { return Ok(None) };
        let (from_sk, to_sk) = (from_sk.to_owned(), to_sk.to_owned());
        // This can take 200 ms, for which a thread that serves requests must not be blocked.
        let compare = move || {
            Diff::between(
                Compared { sk: &from_sk, version: &from, body: from_body.as_ref() },
                Compared { sk: &to_sk, version: &to, body: to_body.as_ref() },
            )
        };
        let diff = tokio::task::spawn_blocking(compare).await;
        let stopped = "the comparison was stopped: its task panicked or the process shuts down";
        diff.map(Some).map_err(|cause| Error::new(Kind::Unavailable, stopped).caused_by(cause))
    }
}

/// The fields of a version, from its row or else from the metadata of its object.
fn fields(Compared { version, body, .. }: Compared<'_>) -> [(&'static str, Option<String>); 6] {
    let (generation, content) = (&version.generation, &version.generation.content);
    let status = content.status.or(body.and_then(|body| body.status));
    let content_type = content.content_type.clone().or(body.and_then(|body| body.content_type.clone()));
    let interval = (!version.inherits_interval).then(|| generation.revalidate_seconds.to_string());
    let tags = Some(content.tags.join(", ")).filter(|tags| !tags.is_empty());
    [
        ("status", status.map(|status| status.to_string())),
        ("content-type", content_type),
        ("etag", generation.etag.clone()),
        ("tags", tags),
        ("deployment", content.deployment.clone()),
        ("revalidate-seconds", interval),
    ]
}

/// The headers that differ, by name. Several headers of one name are joined.
fn headers(from: &Version, to: &Version) -> Vec<FieldDiff> {
    let mut headers: std::collections::BTreeMap<String, [Option<String>; 2]> =
        std::collections::BTreeMap::new();
    for (side, version) in [from, to].into_iter().enumerate() {
        for (name, value) in &version.generation.content.headers {
            let known = &mut headers.entry(name.to_ascii_lowercase()).or_default()[side];
            *known = Some(known.take().map_or_else(|| value.clone(), |known| format!("{known}, {value}")));
        }
    }
    let differing = headers.into_iter().filter(|(_, [from, to])| from != to);
    differing.map(|(name, [from, to])| FieldDiff { name: format!("header {name}"), from, to }).collect()
}

/// The difference in the unified format, or `None` if there are too many lines.
fn unified(from: &str, to: &str) -> Option<String> {
    let [from, to] = [from, to].map(|text| text.split_inclusive('\n').collect::<Vec<&str>>());
    if from.len().max(to.len()) > BodyDiff::MAX_LINES {
        return None;
    }
    let diff = TextDiff::configure().newline_terminated(true).diff_slices(&from, &to);
    Some(diff.unified_diff().context_radius(CONTEXT_LINES).to_string())
}

impl fmt::Display for BodyDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyDiff::Same => f.write_str("The bodies are the same."),
            BodyDiff::Text(text) => f.write_str(text),
            BodyDiff::Missing { from: true, to: true } => {
                f.write_str("Both bodies are missing or damaged, so they cannot be compared.")
            }
            BodyDiff::Missing { from, .. } => {
                let which = if *from { "first" } else { "second" };
                write!(f, "The body of the {which} version is missing or damaged, so it cannot be compared.")
            }
            BodyDiff::NotText => f.write_str("The bodies differ, and at least one is not text."),
            BodyDiff::TooLarge => write!(
                f,
                "The bodies differ, but are too large to be compared: one has more than {} bytes or {} lines.",
                Self::MAX_BYTES,
                Self::MAX_LINES
            ),
        }
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "diff {} {}", self.from.sk, self.to.sk)?;
        let size =
            |size: Option<usize>| size.map_or_else(|| "missing".to_owned(), |bytes| format!("{bytes} bytes"));
        writeln!(f, "generated-at {} -> {}", self.from.generated_at, self.to.generated_at)?;
        writeln!(f, "size {} -> {}", size(self.from.size), size(self.to.size))?;
        for FieldDiff { name, from, to } in &self.fields {
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "(none)".to_owned());
            writeln!(f, "{name} {} -> {}", shown(from), shown(to))?;
        }
        match &self.body {
            BodyDiff::Text(text) => write!(f, "--- {}\n+++ {}\n{text}", self.from.sk, self.to.sk),
            other => writeln!(f, "{other}"),
        }
    }
}
