//! Fault injection.

use std::time::Duration;

use tabletheory::{
    Attr, Commit, Consistency, FaultCounts, Faults, Faulty, Key, Kind, MemoryTable, Query, Scan, Table, Txn,
    Update, Write,
};

const HITS: Attr<i64> = Attr::new("hits");

fn count_up() -> Txn {
    Txn::from(Write::update(Key::new("p", "count"), Update::new([HITS.add(1)])))
}

async fn hits(table: &Faulty<MemoryTable>) -> i64 {
    let row = table.inner().get(&Key::new("p", "count"), Consistency::Strong).await.expect("a get");
    row.and_then(|row| row.get("hits")?.as_i64()).unwrap_or(0)
}

#[tokio::test]
async fn each_fault_has_the_error_of_a_real_table() {
    for (faults, kind, applied) in [
        (Faults { fail: 1.0, ..Faults::default() }, Kind::Unavailable, 0),
        (Faults { throttle: 1.0, ..Faults::default() }, Kind::Unavailable, 0),
        (Faults { conflict: 1.0, ..Faults::default() }, Kind::Unavailable, 0),
        (Faults { lose_request: 1.0, ..Faults::default() }, Kind::Unknown, 0),
        (Faults { lose_response: 1.0, ..Faults::default() }, Kind::Unknown, 1),
    ] {
        let table = Faulty::new(MemoryTable::new(), 7, faults);
        let error = table.commit(&count_up()).await.expect_err("a fault");
        assert_eq!(error.kind(), kind, "{faults:?}");
        assert_eq!(hits(&table).await, applied, "{faults:?}");
        table.set_faults(Faults::default());
        assert_eq!(table.commit(&count_up()).await.expect("no faults"), Commit::Done);
    }
}

#[tokio::test]
async fn reads_fail_but_their_responses_are_not_lost() {
    let key = Key::new("p", "count");
    let broken = Faulty::new(MemoryTable::new(), 7, Faults { fail: 0.5, throttle: 0.5, ..Faults::default() });
    assert!(broken.get(&key, Consistency::Strong).await.is_err());
    assert!(broken.batch_get(std::slice::from_ref(&key), Consistency::Strong).await.is_err());
    assert!(broken.query(&Query::of("p")).await.is_err());
    assert!(broken.scan(&Scan::new()).await.is_err());
    let counts = broken.counts();
    assert_eq!(counts.failed + counts.throttled, 4);
    let lossy = Faulty::new(MemoryTable::new(), 7, Faults { lose_response: 1.0, ..Faults::default() });
    assert_eq!(lossy.get(&key, Consistency::Strong).await.expect("a read"), None);
}

#[tokio::test]
async fn a_late_commit_is_applied_once_before_a_later_call() {
    let table = Faulty::new(MemoryTable::new(), 7, Faults { late: 1.0, ..Faults::default() });
    assert_eq!(table.commit(&count_up()).await.expect_err("a late commit").kind(), Kind::Unknown);
    assert_eq!(hits(&table).await, 0);
    table.set_faults(Faults::default());
    for _ in 0..50 {
        assert!(table.get(&Key::new("p", "other"), Consistency::Strong).await.expect("a read").is_none());
    }
    assert_eq!(hits(&table).await, 1);
}

const EVERYTHING: Faults = Faults {
    delay: 0.5,
    longest_delay: Duration::from_secs(100),
    fail: 0.1,
    lose_response: 0.1,
    lose_request: 0.1,
    late: 0.1,
    conflict: 0.1,
    throttle: 0.1,
};

/// Returns the error kinds of a hundred commits, and the fault counts.
async fn run(seed: u64) -> (Vec<Option<Kind>>, FaultCounts) {
    let table = Faulty::new(MemoryTable::new(), seed, EVERYTHING);
    let mut kinds = Vec::new();
    for _ in 0..100 {
        kinds.push(table.commit(&count_up()).await.err().map(|error| error.kind()));
    }
    (kinds, table.counts())
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_give_equal_faults() {
    let (first, counts) = run(1).await;
    assert_eq!((first.clone(), counts), run(1).await);
    assert_ne!(first, run(2).await.0);
    let counted = [
        counts.delayed,
        counts.failed,
        counts.responses_lost,
        counts.requests_lost,
        counts.late,
        counts.conflicts,
        counts.throttled,
    ];
    assert!(counted.iter().all(|count| *count > 0), "every fault occurs: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn delays_do_not_exceed_the_maximum() {
    let longest = Duration::from_secs(100);
    let faults = Faults { delay: 1.0, longest_delay: longest, ..Faults::default() };
    let table = Faulty::new(MemoryTable::new(), 7, faults);
    for _ in 0..20 {
        // Time is paused except for sleeps.
        let start = tokio::time::Instant::now();
        assert_eq!(table.commit(&count_up()).await.expect("a delayed commit"), Commit::Done);
        let took = start.elapsed();
        assert!(took > Duration::ZERO && took <= longest + Duration::from_millis(1), "{took:?}");
    }
}

#[tokio::test]
async fn an_invalid_transaction_is_an_error_even_if_responses_are_lost() {
    let table = Faulty::new(MemoryTable::new(), 7, Faults { lose_response: 1.0, ..Faults::default() });
    let error = table.commit(&Txn::new([])).await.expect_err("no writes");
    assert_eq!(error.kind(), Kind::Invalid);
}
