//! Leases whose requests are lost, late or rejected.

use std::sync::Arc;
use std::time::Duration;

use tabletheory::{
    Acquire, Consistency, Faults, Faulty, Item, Key, Kind, Lease, LeaseManager, LeaseTerms, ManualClock,
    MemoryTable, SeededRandom, Table, Timestamp, Txn, Write,
};

const NOW: i64 = 1_700_000_000;
const HISTORIES: u64 = 300;

fn terms() -> LeaseTerms {
    LeaseTerms::lasting(Duration::from_secs(30))
}

fn key() -> Key {
    Key::new("JOB#1", "LOCK")
}

struct Test {
    clock: Arc<ManualClock>,
    table: Arc<Faulty<MemoryTable>>,
    leases: LeaseManager,
}

impl Test {
    fn new(seed: u64, faults: Faults) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        let table = Arc::new(Faulty::new(MemoryTable::with_clock(clock.clone()), seed, faults));
        let random = Arc::new(SeededRandom::new(seed));
        let leases = LeaseManager::new(table.clone()).with_terms(terms()).with_random(random);
        Test { clock, table, leases }
    }

    /// The token in the row, read without faults.
    async fn token(&self) -> Option<String> {
        let row = self.table.inner().get(&key(), Consistency::Strong).await.expect("a row in memory");
        row.and_then(|row| row.get("lease_token")?.as_str().map(str::to_owned))
    }

    /// Stops all faults and delivers every commit that is late.
    async fn settle(&self) {
        const READS: usize = 64;
        self.table.set_faults(Faults::default());
        for _ in 0..READS {
            self.table.get(&Key::new("other", "row"), Consistency::Strong).await.expect("no faults");
        }
    }
}

#[tokio::test]
async fn a_lost_response_to_a_put_that_was_applied_is_a_granted_lease() {
    let t = Test::new(1, Faults { lose_response: 1.0, ..Faults::default() });
    let Acquire::Granted(lease) = t.leases.acquire(&key()).await.expect("no error") else { panic!("free") };
    assert_eq!(t.token().await.as_deref(), Some(lease.token()));
    assert_eq!(t.table.counts().responses_lost, 1, "the put was sent once");
}

#[tokio::test]
async fn a_lost_refusal_is_found_out_by_reading_the_row() {
    let t = Test::new(1, Faults::default());
    let Acquire::Granted(lease) = t.leases.acquire(&key()).await.expect("no error") else { panic!("free") };
    t.table.set_faults(Faults { lose_response: 1.0, ..Faults::default() });
    let held = t.leases.acquire(&key()).await.expect("no error");
    assert_eq!(held, Acquire::Held { until: lease.expires_at() });
    assert_eq!(t.table.counts().responses_lost, 1);
}

#[tokio::test]
async fn a_put_that_never_arrives_is_tried_again_with_another_token_up_to_a_limit() {
    let t = Test::new(1, Faults { lose_request: 1.0, ..Faults::default() });
    let error = t.leases.acquire(&key()).await.expect_err("nothing arrives");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(t.table.counts().requests_lost, 3, "two puts and one release");
    assert_eq!(t.token().await, None);
}

#[tokio::test]
async fn a_put_that_was_rejected_is_an_error_at_once() {
    let t = Test::new(1, Faults { throttle: 1.0, ..Faults::default() });
    assert_eq!(t.leases.acquire(&key()).await.expect_err("throttled").kind(), Kind::Unavailable);
    assert_eq!(t.table.counts().throttled, 1);
}

#[tokio::test]
async fn a_lease_that_was_given_up_blocks_others_no_longer_than_its_term() {
    let t = Test::new(1, Faults { late: 1.0, ..Faults::default() });
    let _unknown = t.leases.acquire(&key()).await;
    t.settle().await;
    t.clock.advance(terms().duration);
    assert!(matches!(t.leases.acquire(&key()).await.expect("no error"), Acquire::Granted(_)));
}

/// The danger of a put without a client token: it arrives after the lease was deleted, and brings it back.
#[tokio::test]
async fn a_lease_that_was_granted_and_deleted_never_comes_back() {
    let mut granted = 0;
    let mut late = 0;
    for seed in 0..HISTORIES {
        let faults = Faults { late: 0.4, lose_request: 0.1, lose_response: 0.2, ..Faults::default() };
        let t = Test::new(seed, faults);
        let acquired = t.leases.acquire(&key()).await;
        if let Ok(Acquire::Granted(lease)) = &acquired {
            granted += 1;
            assert_eq!(t.token().await.as_deref(), Some(lease.token()), "seed {seed}: the lease is held");
        }
        // An invalidation, for example, deletes the row to stop the holder.
        let delete = Txn::from(Write::delete(key()));
        assert!(t.table.inner().commit(&delete).await.expect("in memory").is_done());
        late += t.table.counts().late;
        t.settle().await;
        if let Ok(Acquire::Granted(lease)) = acquired {
            assert_ne!(t.token().await.as_deref(), Some(lease.token()), "seed {seed}: the lease came back");
        }
    }
    assert!(granted > HISTORIES / 2 && late > HISTORIES / 10, "granted {granted}, late {late}");
}

/// How long a heartbeat takes to find out that the lease is lost, in seconds of the runtime's paused time.
async fn seconds_until_lost(t: &Test, lease: &Lease) -> u64 {
    const LIMIT: Duration = Duration::from_secs(7200);
    let began = tokio::time::Instant::now();
    tokio::time::timeout(LIMIT, t.leases.heartbeat(lease)).await.expect("the heartbeat ends");
    began.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_ends_when_the_lease_expires_although_the_table_hangs() {
    let hangs = Faults { delay: 1.0, longest_delay: Duration::from_secs(360_000), ..Faults::default() };
    let t = Test::new(1, Faults::default());
    let granted = async || match t.leases.acquire(&key()).await.expect("no error") {
        Acquire::Granted(lease) => lease,
        Acquire::Held { .. } => panic!("it is free"),
    };
    let lease = granted().await;
    t.table.set_faults(hangs);
    assert_eq!(seconds_until_lost(&t, &lease).await, 30);

    // The clock of the machine was set back, which does not make the lease last longer.
    t.clock.set(Timestamp::from_seconds(NOW - 3600));
    assert_eq!(seconds_until_lost(&t, &lease).await, 30);

    // Refreshed once, and a part of the first term has passed before the heartbeat starts.
    t.table.set_faults(Faults::default());
    t.clock.set(Timestamp::from_seconds(NOW + 31));
    let lease = granted().await;
    t.clock.advance(Duration::from_secs(25));
    t.table.set_faults(hangs);
    assert_eq!(seconds_until_lost(&t, &lease).await, 5);
    let hang_later = async {
        t.table.set_faults(Faults::default());
        tokio::time::sleep(Duration::from_secs(6)).await;
        t.table.set_faults(hangs);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        seconds = seconds_until_lost(&t, &lease) => assert_eq!(seconds, 35, "5 s and a term of 30 s"),
        () = hang_later => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_whose_refreshes_fail_ends_when_the_lease_expires() {
    let t = Test::new(1, Faults::default());
    let Acquire::Granted(lease) = t.leases.acquire(&key()).await.expect("no error") else { panic!("free") };
    t.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
    assert_eq!(seconds_until_lost(&t, &lease).await, 30);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_extends_a_lease_until_it_is_lost() {
    let t = Test::new(1, Faults::default());
    let Acquire::Granted(lease) = t.leases.acquire(&key()).await.expect("no error") else { panic!("free") };
    let expiry = async || {
        let row = t.table.inner().get(&key(), Consistency::Strong).await.expect("in memory");
        row.and_then(|row: Item| row.get("lease_expires_at")?.as_i64())
    };
    t.clock.advance(Duration::from_secs(10));
    let extended = tokio::time::timeout(Duration::from_secs(11), t.leases.heartbeat(&lease)).await;
    assert!(extended.is_err(), "the lease is still held");
    assert_eq!(expiry().await, Some(NOW + 40));

    let forged = Lease::starting(key(), "other", Timestamp::from_seconds(NOW), &terms());
    let put = forged.acquire(Timestamp::from_seconds(NOW + 100), &terms());
    assert!(t.table.inner().commit(&Txn::from(put)).await.expect("in memory").is_done());
    t.leases.heartbeat(&lease).await;
    assert_eq!(t.token().await.as_deref(), Some("other"));
}
