//! Pages that are published before the interval of the page before them ends: other processes learn about them if an
//! invalidation would not reach the copy that they have.

use std::time::Duration;

use facetheory::{Outcome, PageStore, Pages, RegenerateReason, Rendered, State, Tag};
use tabletheory::{Query, Table as _};

use crate::fixture::{INTERVAL, SECOND, Site, exclusive, served};

/// Longer than the pause between two attempts to write what is pending.
const RETRIED: Duration = Duration::from_secs(11);

/// A process with a page in memory that is fresh for an hour and has no tags.
async fn process() -> Site {
    let site = Site::on_feed(60 * INTERVAL).await;
    tokio::time::sleep(SECOND).await;
    site
}

/// Another writer of the table of a process.
fn writer(site: &Site) -> Pages {
    Pages::new(PageStore::new(site.table.clone()).with_announcements(true), site.bodies.clone())
}

fn tag() -> Tag {
    Tag::new("x").expect("a tag")
}

fn tagged(mut rendered: Rendered) -> Rendered {
    rendered.content.tags = vec!["x".to_owned()];
    rendered
}

async fn entries(site: &Site) -> usize {
    site.table.query(&Query::of("FEED#0")).await.expect("a query").items.len()
}

/// The reasons for which a fresh page may be replaced, and whether every process must read it again then.
async fn reasons(site: &Site) -> [(RegenerateReason, bool); 8] {
    let meta = writer(site).store().lookup(&site.page).await.expect("rows").meta.expect("META");
    let (at, body) = (meta.generation.generated_at, meta.generation.s3_key);
    [
        (RegenerateReason::RequestDirective(at), true),
        (RegenerateReason::BodyMissing(body), true),
        (RegenerateReason::OtherVariant(at), true),
        (RegenerateReason::VariantPromotion(at), true),
        (RegenerateReason::HeadUpdate(at), true),
        (RegenerateReason::EarlyRefresh(at), false),
        (RegenerateReason::OtherDeployment("new".into()), false),
        (RegenerateReason::OtherPolicy(at), false),
    ]
}

#[tokio::test(start_paused = true)]
async fn the_invalidation_of_a_tag_that_only_the_newer_page_has_reaches_a_process_with_the_older_one() {
    for number in 0..reasons(&process().await).await.len() {
        let site = process().await;
        let (reason, _) = reasons(&site).await.into_iter().nth(number).expect("a reason");
        let render = |_| async { Ok(tagged(Rendered::html("two"))) };
        let outcome = writer(&site).regenerate_for(&site.page, &site.policy, &reason, render).await;
        assert!(matches!(outcome, Ok(Outcome::Published(_))), "{reason:?}: {outcome:?}");
        writer(&site).store().invalidate_tag(&tag(), None).await.expect("no error");
        tokio::time::sleep(SECOND).await;
        assert_eq!(site.get("three").await, served(State::Stale, "two"), "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_page_that_has_got_a_tag_is_announced() {
    let site = process().await;
    let (reason, _) = reasons(&site).await.into_iter().next().expect("a reason");
    let render = |context: facetheory::RenderContext| async move {
        Ok(tagged(Rendered::unchanged(&context.served.expect("a page"))))
    };
    let outcome = writer(&site).regenerate_for(&site.page, &site.policy, &reason, render).await;
    assert!(matches!(outcome, Ok(Outcome::Unchanged(_))), "{outcome:?}");
    writer(&site).store().invalidate_tag(&tag(), None).await.expect("no error");
    tokio::time::sleep(SECOND).await;
    assert_eq!(site.get("three").await, served(State::Stale, "one"));
}

#[tokio::test(start_paused = true)]
async fn a_newer_page_with_the_same_tags_is_announced_if_it_is_the_only_right_one() {
    for number in 0..reasons(&process().await).await.len() {
        let site = process().await;
        let (reason, is_announced) = reasons(&site).await.into_iter().nth(number).expect("a reason");
        let render = |_| async { Ok(Rendered::html("two")) };
        let _outcome = writer(&site).regenerate_for(&site.page, &site.policy, &reason, render).await;
        assert_eq!(entries(&site).await, usize::from(is_announced), "{reason:?}");
        tokio::time::sleep(SECOND).await;
        let expected = if is_announced { "two" } else { "one" };
        assert_eq!(site.get("three").await, served(State::Hit, expected), "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_replaces_a_stale_one_is_not_announced() {
    let site = process().await;
    tokio::time::sleep(60 * INTERVAL).await;
    let render = |_| async { Ok(tagged(Rendered::html("two"))) };
    let outcome = writer(&site).regenerate(&site.page, &site.policy, render).await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))), "{outcome:?}");
    assert_eq!(entries(&site).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_newer_page_that_cannot_be_announced_is_announced_later_and_its_client_does_not_wait() {
    let other = Site::built(exclusive).with(|policy| policy.revalidate = 60 * INTERVAL);
    // It regenerates a page that took a second to render at every request.
    let site = other.another_built(exclusive).with(|policy| policy.early_refresh = Some(1e9));
    tokio::time::sleep(SECOND).await;
    let _miss = site.get_slow(SECOND, Ok(Rendered::html("one"))).await.expect("a result");
    assert_eq!(other.get("two").await, served(State::Hit, "one"));
    tokio::time::sleep(SECOND).await;
    site.renders();

    site.table.reject_writes_to("FEED#");
    let two = tagged(Rendered::html("two"));
    let _hit = site.get_slow(SECOND, Ok(two)).await.expect("a result");
    tokio::time::sleep(RETRIED).await;
    assert_eq!(site.renders(), 1);
    assert_eq!(other.get("three").await, served(State::Hit, "one"), "the other process cannot know");

    site.table.come_back();
    tokio::time::sleep(RETRIED + SECOND).await;
    site.isr.invalidate_tag(&tag(), None).await.expect("no error");
    tokio::time::sleep(SECOND).await;
    assert_eq!(other.get("three").await, served(State::Stale, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_publish_waits_a_moment_for_a_feed_that_does_not_respond() {
    const MOMENT: Duration = Duration::from_millis(250);
    let site = process().await;
    let (reason, _) = reasons(&site).await.into_iter().next().expect("a reason");
    let writer = writer(&site);
    let render = |_| async { Ok(Rendered::html("two")) };
    site.table.hold_writes_to("FEED#");
    let began = tokio::time::Instant::now();
    let outcome = writer.regenerate_for(&site.page, &site.policy, &reason, render).await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))), "{outcome:?}");
    assert!(began.elapsed() <= MOMENT, "{:?}", began.elapsed());
}
