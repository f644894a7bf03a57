//! Every state, and every policy that leads to it.

use std::time::Duration;

use facetheory::{
    Contention, GetResult, History, InvalidationMode, Kind, OtherDeployment, Render, RenderContext, Rendered,
    RolledBack, State, Tag,
};

use crate::fixture::{INTERVAL, SECOND, Site, seen, sees};

#[tokio::test(start_paused = true)]
async fn a_page_is_rendered_once_then_served_from_memory_then_renewed_behind_a_stale_one() {
    let site = Site::new();
    assert_eq!(site.visit("one").await, sees(State::Miss, "one"));
    assert_eq!(site.visit("two").await, sees(State::Hit, "one"));
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.visit("two").await, sees(State::Stale, "one"));
    site.settle().await;
    assert_eq!(site.visit("three").await, sees(State::Hit, "two"));
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hit_asks_the_table_nothing_while_it_is_believed_and_once_a_second_after_that() {
    let site = Site::new();
    site.visit("one").await;
    site.table.take();
    for _ in 0..100 {
        assert_eq!(site.visit("two").await.0, State::Hit);
    }
    assert_eq!(site.table.take(), (0, 0));
    tokio::time::advance(SECOND).await;
    for _ in 0..100 {
        assert_eq!(site.visit("two").await.0, State::Hit);
    }
    let (reads, commits) = site.table.take();
    assert!(reads <= 2 && commits == 0, "META, and the epochs of its tags: {reads}");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_believed_every_visitor_reads() {
    let site = Site::built(|builder| builder.metadata_max_age(Duration::ZERO));
    let other = site.another();
    site.visit("one").await;
    site.table.take();
    for _ in 0..10 {
        assert_eq!(site.visit("two").await, sees(State::Hit, "one"));
    }
    let (reads, _) = site.table.take();
    assert!(reads >= 10, "{reads}");
    other.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("an answer");
    assert_eq!(site.visit("two").await, sees(State::Miss, "two"), "what another process did is seen at once");
}

#[tokio::test(start_paused = true)]
async fn another_process_finds_what_was_published() {
    let site = Site::new();
    site.visit("one").await;
    assert_eq!(site.another().visit("two").await, sees(State::Hit, "one"));
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_blocking_visitor_waits_for_the_new_page() {
    let site = Site::new().with(|policy| *policy = policy.blocking());
    site.visit("one").await;
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.visit("two").await, sees(State::Miss, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_has_been_stale_for_too_long_is_waited_for() {
    let site = Site::new().with(|policy| policy.stale_while_revalidate = Some(10 * SECOND));
    site.visit("one").await;
    tokio::time::advance(INTERVAL + 10 * SECOND).await;
    assert_eq!(site.visit("two").await, sees(State::Stale, "one"));
    site.settle().await;
    tokio::time::advance(INTERVAL + 11 * SECOND).await;
    assert_eq!(site.visit("three").await, sees(State::Miss, "three"));
}

#[tokio::test(start_paused = true)]
async fn a_visitor_waits_for_the_render_of_another_process() {
    let site = Site::new();
    let other = site.another();
    let slow = site.visit_slow(3 * SECOND, Ok(Rendered::html("one")));
    let waiting = async {
        tokio::time::sleep(SECOND).await;
        other.visit("two").await
    };
    let (slow, waiting) = tokio::join!(slow, waiting);
    assert_eq!(seen(slow), sees(State::Miss, "one"));
    assert_eq!(waiting, sees(State::WaitHit, "one"));
    assert_eq!(site.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_visitor_who_has_waited_too_long_gets_what_the_policy_allows() {
    let site = Site::new().with(|policy| policy.wait = 2 * SECOND);
    let other = site.another();
    let slow = site.visit_slow(20 * SECOND, Ok(Rendered::html("one")));
    let (_, waiting) = tokio::join!(slow, async {
        tokio::time::sleep(SECOND).await;
        other.visit("two").await
    });
    assert_eq!(waiting, sees(State::Bypass, "the render of another request took too long"));
    let (site, other) =
        (site.with(|policy| *policy = policy.blocking()), other.with(|policy| *policy = policy.blocking()));
    tokio::time::advance(INTERVAL).await;
    let slow = site.visit_slow(20 * SECOND, Ok(Rendered::html("two")));
    let (_, waiting) = tokio::join!(slow, async {
        tokio::time::sleep(SECOND).await;
        other.visit("three").await
    });
    assert_eq!(waiting, sees(State::Stale, "one"), "the old page is better than none");
}

#[tokio::test(start_paused = true)]
async fn whoever_would_rather_not_wait_gets_the_stale_page() {
    let site = Site::new().with(|policy| {
        *policy = policy.blocking();
        policy.contention = Contention::ServeStale;
    });
    let other = site.another();
    site.visit("one").await;
    tokio::time::advance(INTERVAL).await;
    let slow = site.visit_slow(3 * SECOND, Ok(Rendered::html("two")));
    let (slow, contending) = tokio::join!(slow, async {
        tokio::time::sleep(SECOND).await;
        other.visit("three").await
    });
    assert_eq!(seen(slow), sees(State::Miss, "two"));
    assert_eq!(contending, sees(State::Stale, "one"));
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_render_that_fails_leaves_the_stale_page_and_is_not_tried_again_at_once() {
    let site = Site::new().with(|policy| {
        *policy = policy.blocking();
        policy.stale_if_error = Some(100 * SECOND);
        policy.backoff = 10 * SECOND;
    });
    site.visit("one").await;
    tokio::time::advance(INTERVAL).await;
    assert_eq!(seen(site.visit_failing().await), sees(State::StaleError, "one"));
    assert_eq!(seen(site.visit_failing().await), sees(State::StaleError, "one"));
    assert_eq!(site.renders(), 2, "the first of all, and one that failed");
    tokio::time::advance(10 * SECOND).await;
    assert_eq!(seen(site.visit_failing().await), sees(State::StaleError, "one"));
    assert_eq!(site.renders(), 1, "it is tried again after a while");
    tokio::time::advance(100 * SECOND).await;
    let error = site.visit_failing().await.expect_err("it is too old to be served");
    assert_eq!(error.kind(), Kind::Render);
    assert_eq!(site.visit("two").await, sees(State::Miss, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_render_that_fails_in_the_background_backs_off_and_nobody_notices() {
    let site = Site::new();
    site.visit("one").await;
    tokio::time::advance(INTERVAL).await;
    for _ in 0..10 {
        assert_eq!(seen(site.visit_failing().await), sees(State::Stale, "one"));
        site.settle().await;
    }
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_render_that_takes_too_long_has_failed() {
    let site = Site::new().with(|policy| policy.render_timeout = 5 * SECOND);
    let error = site.visit_slow(6 * SECOND, Ok(Rendered::html("late"))).await.expect_err("too late");
    let shared = std::error::Error::source(&error).expect("the error that all who waited share");
    let cause = std::error::Error::source(shared).expect("its cause").to_string();
    assert_eq!(cause, "the render took longer than 5s");
}

#[tokio::test(start_paused = true)]
async fn a_visitor_whose_render_lost_its_lease_is_given_the_page_of_whoever_took_over() {
    let site = Site::new();
    let slow = tokio::spawn({
        let site = site.clone();
        async move { seen(site.visit_slow(25 * SECOND, Ok(Rendered::html("one"))).await) }
    });
    tokio::time::sleep(SECOND).await;
    // As if its process had been frozen until the end of its lease.
    let other = site.another();
    other.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("an answer");
    assert_eq!(other.visit("two").await, sees(State::Miss, "two"));
    assert_eq!(slow.await.expect("no panic"), sees(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_visitor_whose_render_lost_its_lease_waits_for_whoever_took_over() {
    let site = Site::new();
    let visit = |site: &Site, body: &'static str| {
        let site = site.clone();
        tokio::spawn(async move { seen(site.visit_slow(15 * SECOND, Ok(Rendered::html(body))).await) })
    };
    let first = visit(&site, "one");
    tokio::time::sleep(SECOND).await;
    let other = site.another();
    other.isr.invalidate(&site.page, InvalidationMode::Soft).await.expect("an answer");
    let second = visit(&other, "two");
    assert_eq!(first.await.expect("no panic"), sees(State::WaitHit, "two"));
    assert_eq!(second.await.expect("no panic"), sees(State::Miss, "two"));
    assert_eq!(site.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_render_longer_than_its_lease_is_published() {
    let site = Site::new().with(|policy| policy.render_timeout = 200 * SECOND);
    let slow = site.visit_slow(100 * SECOND, Ok(Rendered::html("slow"))).await;
    assert_eq!(seen(slow), sees(State::Miss, "slow"));
    assert_eq!(site.another().visit("other").await, sees(State::Stale, "slow"), "as old as its beginning");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_to_be_kept_is_bypassed_and_nobody_waits_for_it_for_a_while() {
    let site = Site::new();
    let visit = async || {
        let renders = site.renders.clone();
        let render = move |_| async move {
            renders.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(Render::Declined)
        };
        seen(site.isr.get(&site.page, &site.policy, render).await)
    };
    for _ in 0..3 {
        assert_eq!(visit().await, sees(State::Bypass, "the response is not cacheable"));
    }
    assert_eq!(site.renders(), 1, "the others go to the origin by themselves");
    tokio::time::advance(5 * SECOND).await;
    assert_eq!(site.visit("one").await, sees(State::Miss, "one"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_taken_back_at_second_sight_is_served_by_no_process() {
    let site = Site::new();
    let other = site.another();
    let visit = async |site: &Site| {
        let answer = site.isr.get(&site.page, &site.policy, |_| async { Ok(Render::Invalidate) }).await;
        site.settle().await;
        seen(answer)
    };
    assert_eq!(site.visit("one").await, sees(State::Miss, "one"));
    assert_eq!(other.visit("one").await, sees(State::Hit, "one"));
    tokio::time::advance(INTERVAL).await;
    assert_eq!(visit(&site).await, sees(State::Stale, "one"));
    tokio::time::advance(SECOND).await;
    assert_eq!(other.visit("two").await, sees(State::Stale, "one"), "another process renews it");
    other.settle().await;
    tokio::time::advance(INTERVAL).await;
    for pause in [2 * SECOND, 10 * SECOND, 2 * SECOND] {
        assert_eq!(
            visit(&site).await,
            sees(State::Stale, "two"),
            "it was good in between, or is said too soon"
        );
        tokio::time::advance(pause).await;
    }
    for process in [&site, &other] {
        let told = visit(process).await;
        assert_eq!(told, sees(State::Bypass, "the response is not cacheable"));
    }
    tokio::time::advance(5 * SECOND).await;
    assert_eq!(site.visit("three").await, sees(State::Miss, "three"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_seems_to_be_gone_is_believed_to_be_at_second_sight_and_for_a_short_time() {
    let site = Site::new().with(|policy| policy.negative_ttl = 5 * SECOND);
    let visit_gone = async || {
        let mut gone = Rendered::html("gone");
        gone.content.status = Some(404);
        seen(site.visit_slow(Duration::ZERO, Ok(gone)).await)
    };
    assert_eq!(site.visit("one").await, sees(State::Miss, "one"));
    tokio::time::advance(INTERVAL).await;
    assert_eq!(visit_gone().await, sees(State::Stale, "one"));
    site.settle().await;
    assert_eq!(visit_gone().await, sees(State::Stale, "one"), "one such answer proves nothing");
    tokio::time::advance(SECOND).await;
    assert_eq!(visit_gone().await, sees(State::Stale, "one"));
    site.settle().await;
    assert_eq!(visit_gone().await, sees(State::Hit, "gone"));
    tokio::time::advance(5 * SECOND).await;
    assert_eq!(site.visit("two").await, sees(State::Stale, "gone"));
    site.settle().await;
    assert_eq!(site.visit("three").await, sees(State::Hit, "two"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_was_never_there_is_kept_for_the_short_time_at_once() {
    let site = Site::new().with(|policy| policy.negative_ttl = 5 * SECOND);
    let mut gone = Rendered::html("gone");
    gone.content.status = Some(410);
    assert_eq!(seen(site.visit_slow(Duration::ZERO, Ok(gone)).await), sees(State::Miss, "gone"));
    tokio::time::advance(4 * SECOND).await;
    assert_eq!(site.visit("here").await, sees(State::Hit, "gone"));
    tokio::time::advance(SECOND).await;
    assert_eq!(site.visit("here").await, sees(State::Stale, "gone"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_a_deployment_finds_unchanged_is_of_that_deployment() {
    let old = Site::built(|builder| builder.deployment("old"));
    assert_eq!(old.visit("one").await, sees(State::Miss, "one"));
    let new = old.another_built(|builder| builder.deployment("new"));
    let unchanged = |context: RenderContext| async move {
        Ok(Rendered::unchanged(&context.served.expect("a page is served")))
    };
    let first = new.isr.get(&new.page, &new.policy, unchanged).await;
    assert_eq!(seen(first), sees(State::Stale, "one"));
    new.settle().await;
    assert_eq!(new.visit("two").await, sees(State::Hit, "one"));
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_deployment_is_served_while_the_new_one_is_rendered_or_is_as_good_as_missing() {
    for choice in [OtherDeployment::Stale, OtherDeployment::Missing] {
        let old =
            Site::built(|builder| builder.deployment("old")).with(|policy| policy.other_deployment = choice);
        assert_eq!(old.visit("old").await, sees(State::Miss, "old"));
        let new = old.another_built(|builder| builder.deployment("new"));
        match choice {
            OtherDeployment::Stale => {
                assert_eq!(new.visit("new").await, sees(State::Stale, "old"));
                new.settle().await;
            }
            OtherDeployment::Missing => assert_eq!(new.visit("new").await, sees(State::Miss, "new")),
        }
        assert_eq!(new.visit("newer").await, sees(State::Hit, "new"));
        assert_eq!(new.renders(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_lost_its_body_is_rendered_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let bodies = facetheory::Bodies::files(directory.path()).expect("a store");
    let site = Site::on(|builder| builder, bodies);
    site.visit("one").await;
    std::fs::remove_dir_all(directory.path().join("isr")).expect("the bodies are lost");
    assert_eq!(site.visit("two").await, sees(State::Hit, "one"), "this process has it in memory");
    assert_eq!(site.another().visit("two").await, sees(State::Miss, "two"), "another has not");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_came_out_the_same_is_served_although_its_body_got_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let bodies = facetheory::Bodies::files(directory.path()).expect("a store");
    let site = Site::on(|builder| builder, bodies);
    site.visit("one").await;
    site.isr.invalidate(&site.page, InvalidationMode::Hard).await.expect("an answer");
    std::fs::remove_dir_all(directory.path().join("isr")).expect("the bodies are lost");
    assert_eq!(site.visit("one").await, sees(State::Miss, "one"), "it was rendered for this visitor");
    assert_eq!(site.another().visit("one").await, sees(State::Miss, "one"), "whoever has it not heals it");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_often_visited_is_renewed_before_it_goes_stale_if_one_chooses_so() {
    // With other luck it may be renewed too late to be always fresh, in a few cases of a hundred.
    let random = std::sync::Arc::new(tabletheory::SeededRandom::new(1));
    let site = Site::built(|builder| builder.random(random)).with(|policy| policy.early_refresh = Some(1.0));
    let visit = async |body: &'static str| seen(site.visit_slow(SECOND, Ok(Rendered::html(body))).await);
    visit("one").await;
    let get_fresh = |policy: &facetheory::Policy| site.isr.get_fresh(&site.page, policy).is_some();
    // The table was asked just now.
    visit("one").await;
    assert!(get_fresh(&site.policy), "it need not be renewed for long");
    let mut body = "one".to_owned();
    let mut waited = 0;
    while body == "one" {
        tokio::time::sleep(Duration::from_millis(100)).await;
        waited += 1;
        assert!(waited < 600, "it went stale before it was renewed");
        let (state, now) = visit("two").await;
        assert_eq!(state, State::Hit);
        body = now;
    }
    assert!(waited > 300, "but not much too early: after {waited} tenths of a second");
    assert_eq!(site.renders(), 2);
    tokio::time::sleep(Duration::from_secs(45)).await;
    visit("two").await;
    let mut never_early = site.policy;
    never_early.early_refresh = None;
    assert!(get_fresh(&never_early));
    assert!(!get_fresh(&site.policy), "whether it is renewed early is for the visit itself to say, once");
}

#[tokio::test(start_paused = true)]
async fn tags_and_rollbacks_reach_visitors() {
    let site = Site::new().with(|policy| *policy = policy.with_history(History::Versions));
    site.visit("good").await;
    tokio::time::advance(INTERVAL).await;
    site.visit("bad").await;
    site.settle().await;
    assert_eq!(site.visit("worse").await, sees(State::Hit, "bad"));
    let versions = site.isr.versions(&site.page, 5).await.expect("an answer");
    let back = site.isr.roll_back(&site.page, &versions[1].0, 10 * INTERVAL).await.expect("an answer");
    assert_eq!(back, RolledBack::Done);
    assert_eq!(site.visit("worse").await, sees(State::Hit, "good"), "at once");
    site.isr.invalidate_tag(&Tag::everything(), None).await.expect("an answer");
    assert_eq!(site.visit("worse").await, sees(State::Hit, "good"), "a pin holds");
    assert!(site.isr.unpin(&site.page).await.expect("an answer"));
    assert_eq!(site.visit("best").await, sees(State::Stale, "good"));
    site.settle().await;
    let Ok(GetResult::Page(served)) = site.visit_failing().await else { panic!("it was rendered") };
    assert_eq!(served.page.bytes(), "best");
}
