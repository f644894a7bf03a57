//! Pins: a pinned page is not regenerated before its pin ends.

use facetheory::{History, PageKey, Rendered, RolledBack, State};

use crate::fixture::{INTERVAL, SECOND, Site, served, state_and_body};

async fn pin(site: &Site) {
    let versions = site.isr.versions(&site.page, 1).await.expect("a result");
    let pinned = site.isr.roll_back(&site.page, &versions[0].0, INTERVAL).await.expect("a result");
    assert_eq!(pinned, RolledBack::Done);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_page_is_not_refreshed_early() {
    let site = Site::new().with(|policy| {
        *policy = policy.with_history(History::Versions);
        policy.early_refresh = Some(100.0);
    });
    let get =
        async |body: &'static str| state_and_body(site.get_slow(SECOND, Ok(Rendered::html(body))).await);
    assert_eq!(get("one").await, served(State::Miss, "one"));
    pin(&site).await;
    for _ in 0..116 {
        assert_eq!(get("two").await, served(State::Hit, "one"));
        tokio::time::sleep(SECOND / 2).await;
    }
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_pinned_while_its_regeneration_is_queued_is_not_regenerated() {
    let old = Site::built(|builder| builder.deployment("old"))
        .with(|policy| *policy = policy.with_history(History::Versions));
    let busy = Site { page: PageKey::new("/busy").expect("a page"), ..old.clone() };
    assert_eq!(old.get("old").await, served(State::Miss, "old"));
    assert_eq!(busy.get("old").await, served(State::Miss, "old"));
    let new = old.another_built(|builder| builder.deployment("new").background(1, 10));
    let busy = Site { page: busy.page.clone(), ..new.clone() };
    let slow = busy.get_slow(5 * SECOND, Ok(Rendered::html("new"))).await;
    assert_eq!(state_and_body(slow), served(State::Stale, "old"));
    assert_eq!(new.get("new").await, served(State::Stale, "old"), "its regeneration is queued");
    pin(&new).await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(new.get("newer").await, served(State::Hit, "old"));
}
