//! Durations from a configuration: zero, a nanosecond, and the longest.

use std::time::Duration;

use facetheory::protocol::{Acquire, Freshness, LeaseTerms, Refresh, RequestTerms};
use facetheory::{History, Outcome, Policy, Rendered, Retention};
use tabletheory::Timestamp;

use crate::{NOW, Site, assert_documented, describe};

const EXTREMES: [(&str, Duration); 3] = [
    ("zero", Duration::ZERO),
    ("a nanosecond", Duration::from_nanos(1)),
    ("`u64::MAX` seconds", Duration::MAX),
];

#[tokio::test(start_paused = true)]
async fn configured_durations_are_extreme() {
    let mut cases = Vec::new();
    for (name, extreme) in EXTREMES {
        cases.push(vec![format!("interval of a policy, {name}"), interval(extreme).await]);
    }
    for (name, extreme) in EXTREMES {
        cases.push(vec![format!("lease, {name}"), lease(extreme).await]);
    }
    for (name, extreme) in EXTREMES {
        cases.push(vec![format!("margin for skewed clocks, {name}"), margin(extreme).await]);
    }
    for (name, extreme) in EXTREMES {
        cases.push(vec![format!("pin, {name}"), pin(extreme).await]);
    }
    for (name, extreme) in EXTREMES {
        cases
            .push(vec![format!("time that a request counts as in progress, {name}"), request(extreme).await]);
    }
    cases.push(vec!["retention of no versions, and of none that is old".into(), retention().await]);
    assert_documented("Durations", &cases);
}

async fn publish(site: &Site, policy: &Policy, body: &'static str) -> facetheory::Result<Outcome> {
    site.pages.regenerate(&site.page, policy, |_| async { Ok(Rendered::html(body)) }).await
}

async fn state(site: &Site, at: i64) -> Freshness {
    let meta = site.store.lookup(&site.page).await.expect("no error").meta.expect("a page");
    meta.freshness(Timestamp::from_seconds(at))
}

async fn interval(revalidate: Duration) -> String {
    let site = Site::new();
    let outcome = publish(&site, &Policy::every(revalidate).with_history(History::Versions), "x").await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))), "{outcome:?}");
    let later = i64::MAX / 1000;
    format!(
        "published; {:?} at once, {:?} at the end of time",
        state(&site, NOW).await,
        state(&site, later).await
    )
}

async fn lease(duration: Duration) -> String {
    let mut terms = LeaseTerms::lasting(duration);
    terms.ttl_buffer = duration;
    let site = Site::with(|store| store.with_lease_terms(terms));
    let Ok(Acquire::Granted(lease)) = site.store.try_acquire(&site.page).await else { panic!("it is free") };
    let held = lease.expires_at() - NOW;
    let refreshed = matches!(site.store.refresh(&lease).await, Ok(Refresh::Extended(_)));
    site.store.release(&lease).await.expect("no error");
    let outcome = publish(&site, &Policy::every(Duration::from_secs(60)), "x").await;
    assert!(matches!(outcome, Ok(Outcome::Published(_))), "{outcome:?}");
    let held = if held > 1 << 40 { "forever".into() } else { format!("for {held} s") };
    format!("held {held}, {}, publishes", if refreshed { "refreshed" } else { "lost at once" })
}

async fn margin(skew: Duration) -> String {
    let mut terms = LeaseTerms::default();
    terms.skew = skew;
    let site = Site::with(|store| store.with_lease_terms(terms));
    let Ok(Acquire::Granted(_)) = site.store.try_acquire(&site.page).await else { panic!("it is free") };
    site.set_clock(NOW + 30);
    match site.store.try_acquire(&site.page).await {
        Ok(Acquire::Granted(_)) => "an expired lease is acquired at once".into(),
        other => format!("an expired lease is not acquired: {}", describe(other, |held| format!("{held:?}"))),
    }
}

async fn pin(pin: Duration) -> String {
    let site = Site::new();
    let policy = Policy::every(Duration::from_secs(60)).with_history(History::Versions);
    assert!(matches!(publish(&site, &policy, "x").await, Ok(Outcome::Published(_))));
    let versions = site.store.versions(&site.page, 1).await.expect("no error");
    let back = site.store.roll_back(&site.page, &versions[0].0, pin).await;
    let (now, later) = (state(&site, NOW).await, state(&site, i64::MAX / 1000).await);
    let unpinned = site.store.unpin(&site.page).await.expect("no error");
    let stale = state(&site, NOW).await;
    let back = describe(back, |back| format!("{back:?}"));
    format!("{back}; {now:?} at once, {later:?} at the end of time; unpinned: {unpinned}, then {stale:?}")
}

async fn request(in_progress: Duration) -> String {
    let mut terms = RequestTerms::default();
    (terms.in_progress, terms.ttl) = (in_progress, in_progress);
    let site = Site::with(|store| store.with_request_terms(terms));
    let begin = async || {
        let begun = site.store.begin_request(&site.page, "key", "hash").await;
        describe(begun, |begun| {
            format!("{begun:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned()
        })
    };
    let (first, second) = (begin().await, begin().await);
    site.set_clock(NOW + 31);
    let third = begin().await;
    format!("{first}, then {second}, {third} once the lease has expired")
}

async fn retention() -> String {
    let site = Site::new();
    let mut all = Retention::newest(0);
    all.oldest = Some(i64::MAX);
    let policy = Policy::every(Duration::ZERO).with_history(History::Versions);
    for body in ["a", "b"] {
        assert!(matches!(publish(&site, &policy, body).await, Ok(Outcome::Published(_))));
        site.set_clock(NOW + 1);
    }
    let gone = site.store.gc_versions(&site.page, all).await;
    let gone = describe(gone, |gone| format!("{} deleted", gone.len()));
    let served = site.pages.read(&site.page).await.expect("no error").is_some();
    format!("{gone}; the current one is {}", if served { "served" } else { "gone" })
}
