//! Leases: the manager on every backend.

use std::sync::Arc;
use std::time::Duration;

use tabletheory::{Acquire, Lease, LeaseManager, LeaseTerms, Refresh, SeededRandom, Value, Write};

use crate::fixture::{Fixture, item};

const CONTENDERS: u64 = 20;

fn leases(t: &Fixture, seed: u64) -> LeaseManager {
    let mut terms = LeaseTerms::lasting(Duration::from_secs(60));
    terms.owner = Some("worker 7".into());
    LeaseManager::new(t.table.clone()).with_terms(terms).with_random(Arc::new(SeededRandom::new(seed)))
}

async fn granted(leases: &LeaseManager, t: &Fixture) -> Lease {
    match leases.acquire(&t.key("LOCK")).await.expect("no error") {
        Acquire::Granted(lease) => lease,
        Acquire::Held { until } => panic!("held until {until}"),
    }
}

pub(crate) async fn a_lease_is_granted_to_one_of_twenty_contenders(t: &Fixture) {
    let mut contenders = tokio::task::JoinSet::new();
    for seed in 0..CONTENDERS {
        let (leases, key) = (leases(t, seed), t.key("LOCK"));
        contenders.spawn(async move { leases.acquire(&key).await.expect("contention is not an error") });
    }
    let mut holders = Vec::new();
    let mut known = Vec::new();
    for acquired in contenders.join_all().await {
        match acquired {
            Acquire::Granted(lease) => holders.push(lease),
            Acquire::Held { until } => known.push(until),
        }
    }
    assert_eq!(holders.len(), 1);
    assert!(known.iter().all(|until| *until == holders[0].expires_at()), "{known:?}");
}

pub(crate) async fn the_row_of_a_lease_has_the_attributes_of_the_wire_format(t: &Fixture) {
    let lease = granted(&leases(t, 1), t).await;
    let row = item([
        ("lease_token", lease.token().into()),
        ("lease_expires_at", lease.expires_at().into()),
        ("ttl", (lease.expires_at() + 3600).into()),
        ("owner", "worker 7".into()),
    ]);
    assert_eq!(t.get("LOCK").await, Some(t.stored("LOCK", row)));
}

pub(crate) async fn only_the_holder_refreshes_and_releases(t: &Fixture) {
    let (ours, theirs) = (leases(t, 1), leases(t, 2));
    let lease = granted(&ours, t).await;
    let Refresh::Extended(lease) = ours.refresh(&lease).await.expect("no error") else { panic!("held") };
    let now = t.table.clock().now();
    let forged = Lease::starting(t.key("LOCK"), "forged", now, &LeaseTerms::default());
    assert_eq!(theirs.refresh(&forged).await.expect("no error"), Refresh::Lost);
    theirs.release(&forged).await.expect("not an error");
    assert_eq!(
        theirs.acquire(&t.key("LOCK")).await.expect("no error"),
        Acquire::Held { until: lease.expires_at() }
    );
    ours.release(&lease).await.expect("no error");
    assert_eq!(t.get("LOCK").await, None);
    assert_eq!(ours.refresh(&lease).await.expect("no error"), Refresh::Lost);
    granted(&theirs, t).await;
}

pub(crate) async fn an_expired_lease_is_taken_over(t: &Fixture) {
    let now = t.table.clock().now().seconds();
    let foreign = |expires: Value| item([("lease_token", "foreign".into()), ("lease_expires_at", expires)]);
    // JavaScript sometimes writes fractions.
    let fraction = Value::N(format!("{}.5", now + 60).parse().expect("a number"));
    t.put("LOCK", foreign(fraction)).await;
    let held = leases(t, 1).acquire(&t.key("LOCK")).await.expect("no error");
    assert_eq!(held, Acquire::Held { until: now + 60 });
    t.put("LOCK", foreign((now - 1).into())).await;
    let lease = granted(&leases(t, 1), t).await;
    assert_ne!(lease.token(), "foreign");
}

pub(crate) async fn a_guard_refuses_a_transaction_without_the_lease(t: &Fixture) {
    let leases = leases(t, 1);
    let lease = granted(&leases, t).await;
    let now = t.table.clock().now();
    let work = || Write::put(t.key("WORK"), item([("step", 1.into())]));
    assert!(t.commit([work(), lease.guard(now)]).await.expect("no error").is_done());
    assert!(t.commit([work(), lease.release_held(now)]).await.expect("no error").is_done());
    assert!(t.commit([work(), lease.guard(now)]).await.expect("no error").is_refused());
    let refused = t.commit([lease.release_held(now)]).await.expect("no error");
    assert!(lease.is_gone(&lease.release().into(), &refused));
}
