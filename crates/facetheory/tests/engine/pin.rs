//! Pins: what an operator chose stays until the pin ends, whatever would renew it otherwise.

use facetheory::{History, PageKey, Rendered, RolledBack, State};

use crate::fixture::{INTERVAL, SECOND, Site, seen, sees};

async fn pin(site: &Site) {
    let versions = site.isr.versions(&site.page, 1).await.expect("an answer");
    let pinned = site.isr.roll_back(&site.page, &versions[0].0, INTERVAL).await.expect("an answer");
    assert_eq!(pinned, RolledBack::Done);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_page_is_not_renewed_before_its_pin_ends() {
    let site = Site::new().with(|policy| {
        *policy = policy.with_history(History::Versions);
        policy.early_refresh = Some(100.0);
    });
    let visit = async |body: &'static str| seen(site.visit_slow(SECOND, Ok(Rendered::html(body))).await);
    assert_eq!(visit("one").await, sees(State::Miss, "one"));
    pin(&site).await;
    for _ in 0..116 {
        assert_eq!(visit("two").await, sees(State::Hit, "one"));
        tokio::time::sleep(SECOND / 2).await;
    }
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_pinned_before_its_turn_comes_is_left_to_the_earlier_deployment() {
    let old = Site::built(|builder| builder.deployment("old"))
        .with(|policy| *policy = policy.with_history(History::Versions));
    let busy = Site { page: PageKey::new("/busy").expect("a page"), ..old.clone() };
    assert_eq!(old.visit("old").await, sees(State::Miss, "old"));
    assert_eq!(busy.visit("old").await, sees(State::Miss, "old"));
    let new = old.another_built(|builder| builder.deployment("new").background(1, 10));
    let busy = Site { page: busy.page.clone(), ..new.clone() };
    let slow = busy.visit_slow(5 * SECOND, Ok(Rendered::html("new"))).await;
    assert_eq!(seen(slow), sees(State::Stale, "old"));
    assert_eq!(new.visit("new").await, sees(State::Stale, "old"), "it is renewed when its turn comes");
    pin(&new).await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(new.visit("newer").await, sees(State::Hit, "old"));
}
