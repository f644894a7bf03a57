//! The comparison of two versions.

use std::sync::Arc;
use std::time::Duration;

use facetheory::Rendered;
use facetheory::protocol::Generation;
use facetheory::protocol::Version;
use facetheory::{Bodies, Body, BodyDiff, Compared, Diff, History, Kind, PageKey, PageStore, Pages, Policy};
use tabletheory::MemoryTable;

/// The difference between two bodies of the same version.
fn of(from: impl Into<Body>, to: impl Into<Body>) -> BodyDiff {
    let version = Version::of(Generation::new("a.html", 1, 60));
    let compared = |body| Compared { sk: "VER#1", version: &version, body };
    Diff::between(compared(Some(&from.into())), compared(Some(&to.into()))).body
}

async fn published(pages: &Pages, page: &PageKey, rendered: Rendered) -> String {
    let policy = Policy::every(Duration::ZERO).with_history(History::Versions);
    let outcome = pages.regenerate(page, &policy, |_| async { Ok(rendered) }).await.expect("published");
    let facetheory::Outcome::Published(generation) = outcome else { panic!("{outcome:?}") };
    let versions = pages.store().versions(page, 10).await.expect("no error");
    let found = versions.into_iter().find(|(_, version)| version.generation.s3_key == generation.s3_key);
    found.expect("it is stored").0
}

#[tokio::test]
async fn two_versions_are_compared_as_by_git() {
    let pages = Pages::new(PageStore::new(Arc::new(MemoryTable::new())), Bodies::memory());
    let page = PageKey::new("/").expect("a page");
    let lines = |price: &str| format!("<h1>Shop</h1>\na\nb\nc\nd\n<p>{price}</p>\ne\nf\ng\nh\n");
    let one = published(&pages, &page, Rendered::html(lines("1 €"))).await;
    let mut dearer = Rendered::html(lines("2 €"));
    dearer.content.status = Some(203);
    dearer.content.headers = vec![("Link".into(), "</a>".into()), ("link".into(), "</b>".into())];
    dearer.etag = Some("\"dearer\"".into());
    let two = published(&pages, &page, dearer).await;

    let diff = pages.diff(&page, &one, &two).await.expect("no error").expect("both are stored");
    let etag = diff.fields.iter().find(|field| field.name == "etag").expect("it differs").from.clone();
    let expected = format!(
        "diff {one} {two}\ngenerated-at {} -> {}\nsize 43 bytes -> 43 bytes\nstatus 200 -> 203\n\
         etag {} -> \"dearer\"\nheader link (none) -> </a>, </b>\n--- {one}\n+++ {two}\n\
         @@ -3,7 +3,7 @@\n b\n c\n d\n-<p>1 €</p>\n+<p>2 €</p>\n e\n f\n g\n",
        diff.from.generated_at,
        diff.to.generated_at,
        etag.expect("an entity tag"),
    );
    assert_eq!(diff.to_string(), expected);
    assert!(!diff.is_empty());

    let same = pages.diff(&page, &one, &one).await.expect("no error").expect("it is stored");
    assert!(same.is_empty());
    assert!(same.to_string().ends_with("The bodies are the same.\n"));
}

#[tokio::test]
async fn a_diff_reports_a_missing_body_and_needs_both_versions() {
    let bodies = Bodies::memory();
    let pages = Pages::new(PageStore::new(Arc::new(MemoryTable::new())), bodies.clone());
    let page = PageKey::new("/").expect("a page");
    let one = published(&pages, &page, Rendered::html("one")).await;
    let two = published(&pages, &page, Rendered::html("two")).await;
    let (version, body) = pages.read_version(&page, &one).await.expect("no error").expect("it is stored");
    assert_eq!(body.expect("its body exists").bytes, "one");
    bodies.delete(&version.generation.s3_key).await.expect("deleted");
    let (_, body) = pages.read_version(&page, &one).await.expect("no error").expect("its row is stored");
    assert_eq!(body, None);

    let diff = pages.diff(&page, &one, &two).await.expect("no error").expect("both are stored");
    assert_eq!(diff.body, BodyDiff::Missing { from: true, to: false });
    assert!(diff.to_string().contains("size missing -> 3 bytes\n"), "{diff}");
    assert!(
        diff.to_string()
            .ends_with("The body of the first version is missing or damaged, so it cannot be compared.\n")
    );
    assert_eq!(pages.diff(&page, &one, "VER#0").await.expect("no error"), None);
    let error = pages.diff(&page, "META", &one).await.expect_err("not a version");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (Kind::Invalid, "\"META\" is not the sort key of a version; it must begin with VER#")
    );
}

#[test]
fn a_diff_says_why_bodies_cannot_be_compared() {
    assert_eq!(of(&b"\xff\x00"[..], "text"), BodyDiff::NotText);
    assert_eq!(of(&b"\xff"[..], &b"\xff"[..]), BodyDiff::Same, "equal bodies need not be text");
    let long = "x".repeat(BodyDiff::MAX_BYTES + 1);
    assert_eq!(of(long.clone(), "text"), BodyDiff::TooLarge);
    assert_eq!(of(long.clone(), long), BodyDiff::Same);
    assert_eq!(of("\n".repeat(BodyDiff::MAX_LINES + 1), "text"), BodyDiff::TooLarge);
}

#[test]
fn edge_cases_of_the_unified_format_are_correct() {
    for (from, to, expected) in [
        ("", "a\n", "@@ -0,0 +1 @@\n+a\n"),
        ("a\n", "", "@@ -1 +0,0 @@\n-a\n"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        ("a\r\n", "a\n", "@@ -1 +1 @@\n-a\r\n+a\n"),
        ("1\n2\n3\n4\n5\n", "1\n2\n3\n4\n5\n6\n", "@@ -3,3 +3,4 @@\n 3\n 4\n 5\n+6\n"),
    ] {
        assert_eq!(of(from, to), BodyDiff::Text(expected.into()), "{from:?} {to:?}");
    }
}
