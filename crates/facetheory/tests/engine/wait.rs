//! Waiting for another process: as long as the policy says, and without wearing out the table.

use std::time::Duration;

use facetheory::protocol::{Acquire, LeaseTerms};
use facetheory::{GetResult, Isr, PageStore, Pages, Rendered, State};

use crate::fixture::{SECOND, Site, sees};

#[tokio::test(start_paused = true)]
async fn a_visitor_waits_no_longer_than_the_policy_says_although_the_table_takes_its_time() {
    let site = Site::new().with(|policy| policy.wait = 5 * SECOND);
    let other = site.another();
    let waiting = async {
        tokio::time::sleep(SECOND).await;
        let began = tokio::time::Instant::now();
        (other.visit("two").await, began.elapsed())
    };
    let trouble = async {
        tokio::time::sleep(2 * SECOND).await;
        site.table.slow_down(Duration::from_secs(1000));
        tokio::time::sleep(8 * SECOND).await;
        site.table.come_back();
    };
    let slow = site.visit_slow(20 * SECOND, Ok(Rendered::html("one")));
    let (_, (answer, took), ()) = tokio::join!(slow, waiting, trouble);
    assert_eq!(answer, sees(State::Bypass, "the render of another request took too long"));
    assert!(took < 6 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_ended_is_asked_for_once_clocks_agree_that_it_has() {
    let site = Site::new();
    let mut terms = LeaseTerms::lasting(3 * SECOND);
    terms.skew = 2 * SECOND;
    let store = PageStore::new(site.table.clone()).with_lease_terms(terms);
    let Ok(Acquire::Granted(_)) = store.try_acquire(&site.page).await else { panic!("it is free") };
    let isr = Isr::new(Pages::new(store, site.bodies.clone()));
    let site = site.with_isr(isr);
    site.table.take();
    assert_eq!(site.visit("one").await, sees(State::Miss, "one"), "whoever held it has died");
    let (_, commits) = site.table.take();
    assert!(commits <= 4, "two attempts, a publish, and no hammering: {commits}");
}

#[tokio::test(start_paused = true)]
async fn the_first_visitor_of_a_page_waits_no_longer_than_for_a_render_and_for_another() {
    let site = Site::new();
    let (policy, began) = (site.policy, tokio::time::Instant::now());
    let slow = async {
        tokio::time::sleep(SECOND).await;
        site.table.slow_down(1000 * SECOND);
    };
    let (answer, ()) = tokio::join!(site.visit_slow(2 * SECOND, Ok(Rendered::html("late"))), slow);
    assert!(began.elapsed() <= policy.render_timeout + policy.wait, "{:?}", began.elapsed());
    assert!(matches!(answer, Ok(GetResult::Bypass(_) | GetResult::Page(_))), "{answer:?}");
}
