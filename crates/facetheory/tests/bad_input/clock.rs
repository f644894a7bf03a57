//! Clocks that jump: of a lease holder, a contender, an operator and a renderer.

use std::time::Duration;

use facetheory::protocol::{Acquire, Freshness, Generation, Lease, Meta, Refresh, SeenEpochs};
use facetheory::{History, Invalidated, InvalidationMode, Outcome, PageStore, Policy, Rendered, Tag};

use crate::{NOW, Site, assert_documented, describe};

const HOUR: i64 = 3600;
const YEAR: i64 = 31_536_000;

async fn granted(store: &PageStore, site: &Site) -> Lease {
    match store.try_acquire(&site.page).await.expect("no error") {
        Acquire::Granted(lease) => lease,
        Acquire::Held { until } => panic!("held until {until}"),
    }
}

async fn publish(site: &Site, lease: &Lease) -> String {
    let seen = site.store.lookup(&site.page).await.expect("no error").meta;
    let rendered = Generation::new("a.html", site.store.now().seconds(), 60);
    let done = site.store.publish(lease, &rendered, seen.as_ref(), History::Latest, None).await;
    describe(done, |done| format!("{done:?}"))
}

async fn acquired(site: &Site) -> String {
    describe(site.store.try_acquire(&site.page).await, |acquire| match acquire {
        Acquire::Granted(_) => "granted".into(),
        Acquire::Held { until } => format!("held until {}", offset(until)),
    })
}

/// A time as seconds from the start of the test.
fn offset(seconds: i64) -> String {
    match seconds - NOW {
        YEAR.. => format!("a year and {} s", seconds - NOW - YEAR),
        other => format!("{other} s"),
    }
}

#[tokio::test]
async fn clocks_of_all_actors_jump() {
    let mut cases = Vec::new();
    for (name, jump) in [("back an hour", -HOUR), ("forward a year", YEAR)] {
        cases.push((
            format!("the holder's clock jumps {name}, and it publishes"),
            holder_publishes(jump).await,
        ));
        cases.push((
            format!("the holder's clock jumps {name}, and it refreshes"),
            holder_refreshes(jump).await,
        ));
        cases.push((format!("a contender's clock is {name}"), contender(jump).await));
        cases.push((format!("a holder whose clock was {name} died"), dead_holder(jump).await));
        cases.push((format!("a page was rendered by a clock {name}"), rendered(jump).await));
        cases.push((format!("a page was invalidated by a clock {name}"), invalidated(jump).await));
        cases.push((format!("a tag was invalidated by a clock {name}"), tag(jump).await));
        cases.push((format!("a page was pinned by a clock {name}"), pinned(jump).await));
    }
    let cases: Vec<Vec<String>> = cases.into_iter().map(|(name, result)| vec![name, result]).collect();
    assert_documented("Clocks", &cases);
}

async fn holder_publishes(jump: i64) -> String {
    let site = Site::new();
    let lease = granted(&site.store, &site).await;
    site.set_clock(NOW + jump);
    let published = publish(&site, &lease).await;
    site.set_clock(NOW);
    let next = acquired(&site).await;
    format!("{published}; the next lease is {next}")
}

async fn holder_refreshes(jump: i64) -> String {
    let site = Site::new();
    let lease = granted(&site.store, &site).await;
    site.set_clock(NOW + jump);
    let refreshed = site.store.refresh(&lease).await;
    let refreshed = describe(refreshed, |refreshed| match refreshed {
        Refresh::Extended(longer) => format!("held until {}", offset(longer.expires_at())),
        Refresh::Lost => "lost".into(),
    });
    site.set_clock(NOW + 7);
    format!("{refreshed}; for others {}", acquired(&site).await)
}

async fn contender(jump: i64) -> String {
    let site = Site::new();
    let holder = granted(&site.store, &site).await;
    site.set_clock(NOW + jump);
    let contender = acquired(&site).await;
    site.set_clock(NOW + 1);
    format!("{contender}; the holder's publish is {}", publish(&site, &holder).await)
}

async fn dead_holder(jump: i64) -> String {
    let site = Site::new();
    site.set_clock(NOW + jump);
    let _dead = granted(&site.store, &site).await;
    site.set_clock(NOW);
    let before = acquired(&site).await;
    site.store.invalidate(&site.page, InvalidationMode::Soft).await.expect("no error");
    format!("{before}; after an invalidation {}", acquired(&site).await)
}

async fn rendered(jump: i64) -> String {
    let site = Site::new();
    site.set_clock(NOW + jump);
    let policy = Policy::every(Duration::from_secs(60));
    let outcome = site.pages.regenerate(&site.page, &policy, |_| async { Ok(Rendered::html("x")) }).await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))));
    site.set_clock(NOW);
    let state = site.store.lookup(&site.page).await.expect("no error").meta.expect("a page");
    let state = state.freshness(site.store.now());
    let again = site.pages.regenerate(&site.page, &policy, |_| async { Ok(Rendered::html("y")) }).await;
    let again = describe(again, |outcome| match outcome {
        Outcome::Published(generation) => format!("rendered again at {}", offset(generation.generated_at)),
        other => format!("{other:?}"),
    });
    format!("{state:?} for others; {again}")
}

async fn published(site: &Site) {
    site.put(site.page.meta(), Meta::of(Generation::new("a.html", NOW, 60)).to_item()).await;
}

async fn invalidated(jump: i64) -> String {
    let site = Site::new();
    published(&site).await;
    let before = granted(&site.store, &site).await;
    site.set_clock(NOW + jump);
    let done = site.store.invalidate(&site.page, InvalidationMode::Soft).await.expect("no error");
    assert_eq!(done, Invalidated::Stale);
    site.set_clock(NOW + 1);
    let late = publish(&site, &before).await;
    let state = site.store.lookup(&site.page).await.expect("no error").meta.expect("a page");
    let state = state.freshness(site.store.now());
    let lease = granted(&site.store, &site).await;
    let done = publish(&site, &lease).await;
    let fresh = site.store.lookup(&site.page).await.expect("no error").meta.expect("a page");
    let fresh = fresh.freshness(site.store.now());
    format!("{state:?}; a render from before is {late}, one from after is {done} and {fresh:?}")
}

async fn tag(jump: i64) -> String {
    let site = Site::new();
    let tag = Tag::new("news").expect("a tag");
    let epochs = async || site.store.epochs(std::slice::from_ref(&tag), None).await.expect("no error");
    // A page that is rendered now, with and without the counts of its tags.
    let render = async || {
        let without = Meta::of(Generation::new("a.html", site.store.now().seconds(), 60));
        let mut seen = SeenEpochs::of_render_at(without.generation.generated_at);
        seen.insert(&tag, epochs().await[0].1.map_or(0, |epoch| epoch.count()));
        let mut with = without.clone();
        with.generation.epochs = Some(seen);
        (with, without)
    };
    let state = async |(with, without): &(Meta, Meta)| {
        let epochs = epochs().await;
        let state = |meta: &Meta| meta.freshness_with(&epochs, site.store.now(), Duration::from_secs(2));
        format!("{:?} (without counts {:?})", state(with), state(without))
    };
    let page = render().await;
    site.set_clock(NOW + jump);
    site.store.invalidate_tag(&tag, None).await.expect("no error");
    site.set_clock(NOW);
    let first = state(&page).await;
    site.store.invalidate_tag(&tag, None).await.expect("no error");
    let second = state(&page).await;
    let third = state(&render().await).await;
    site.set_clock(NOW + 3);
    let fourth = state(&render().await).await;
    format!(
        "existing pages are {first}; after an invalidation by a correct clock {second}, a render at once {third}, and one after the margin {fourth}"
    )
}

async fn pinned(jump: i64) -> String {
    let site = Site::new();
    let policy = Policy::every(Duration::from_secs(60)).with_history(History::Versions);
    let outcome = site.pages.regenerate(&site.page, &policy, |_| async { Ok(Rendered::html("x")) }).await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))));
    let versions = site.store.versions(&site.page, 1).await.expect("no error");
    site.set_clock(NOW + jump);
    let back = site.store.roll_back(&site.page, &versions[0].0, Duration::from_secs(7200)).await;
    assert!(back.is_ok());
    site.set_clock(NOW);
    let meta = site.store.lookup(&site.page).await.expect("no error").meta.expect("a page");
    let until = meta.pinned_until.map_or_else(|| "never".to_owned(), offset);
    let fresh = meta.freshness(site.store.now()) == Freshness::Fresh;
    format!("pinned until {until}, {}", if fresh { "fresh" } else { "stale" })
}
