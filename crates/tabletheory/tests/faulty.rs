//! The table that misbehaves on purpose.

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
async fn each_fault_shows_itself_as_a_real_table_would() {
    for (faults, kind, happened) in [
        (Faults { fail: 1.0, ..Faults::NONE }, Kind::Unavailable, 0),
        (Faults { throttle: 1.0, ..Faults::NONE }, Kind::Unavailable, 0),
        (Faults { conflict: 1.0, ..Faults::NONE }, Kind::Unavailable, 0),
        (Faults { lose_request: 1.0, ..Faults::NONE }, Kind::Unknown, 0),
        (Faults { lose_response: 1.0, ..Faults::NONE }, Kind::Unknown, 1),
    ] {
        let table = Faulty::new(MemoryTable::new(), 7, faults);
        let error = table.commit(&count_up()).await.expect_err("a fault");
        assert_eq!(error.kind(), kind, "{faults:?}");
        assert_eq!(hits(&table).await, happened, "{faults:?}");
        table.set_faults(Faults::NONE);
        assert_eq!(table.commit(&count_up()).await.expect("faults have ended"), Commit::Done);
    }
}

#[tokio::test]
async fn reads_fail_too_but_have_no_answer_to_lose() {
    let key = Key::new("p", "count");
    let broken = Faulty::new(MemoryTable::new(), 7, Faults { fail: 0.5, throttle: 0.5, ..Faults::NONE });
    assert!(broken.get(&key, Consistency::Strong).await.is_err());
    assert!(broken.batch_get(std::slice::from_ref(&key), Consistency::Strong).await.is_err());
    assert!(broken.query(&Query::of("p")).await.is_err());
    assert!(broken.scan(&Scan::new()).await.is_err());
    let counts = broken.counts();
    assert_eq!(counts.failed + counts.throttled, 4);
    let lossy = Faulty::new(MemoryTable::new(), 7, Faults { lose_response: 1.0, ..Faults::NONE });
    assert_eq!(lossy.get(&key, Consistency::Strong).await.expect("a read"), None);
}

#[tokio::test]
async fn a_late_commit_arrives_before_one_of_the_next_calls_and_once() {
    let table = Faulty::new(MemoryTable::new(), 7, Faults { late: 1.0, ..Faults::NONE });
    assert_eq!(table.commit(&count_up()).await.expect_err("no answer yet").kind(), Kind::Unknown);
    assert_eq!(hits(&table).await, 0);
    table.set_faults(Faults::NONE);
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

/// The kinds of a hundred answers, and what was counted.
async fn run(seed: u64) -> (Vec<Option<Kind>>, FaultCounts) {
    let table = Faulty::new(MemoryTable::new(), seed, EVERYTHING);
    let mut kinds = Vec::new();
    for _ in 0..100 {
        kinds.push(table.commit(&count_up()).await.err().map(|error| error.kind()));
    }
    (kinds, table.counts())
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_history() {
    let (first, counts) = run(1).await;
    assert_eq!((first.clone(), counts), run(1).await);
    assert_ne!(first, run(2).await.0);
    let met = [
        counts.delayed,
        counts.failed,
        counts.responses_lost,
        counts.requests_lost,
        counts.late,
        counts.conflicts,
        counts.throttled,
    ];
    assert!(met.iter().all(|count| *count > 0), "every fault was met: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_time_and_no_more_than_the_longest() {
    let longest = Duration::from_secs(100);
    let faults = Faults { delay: 1.0, longest_delay: longest, ..Faults::NONE };
    let table = Faulty::new(MemoryTable::new(), 7, faults);
    for _ in 0..20 {
        // Time stands still but for what is slept.
        let start = tokio::time::Instant::now();
        assert_eq!(table.commit(&count_up()).await.expect("late, but done"), Commit::Done);
        let took = start.elapsed();
        assert!(took > Duration::ZERO && took <= longest + Duration::from_millis(1), "{took:?}");
    }
}

#[tokio::test]
async fn a_mistake_is_said_although_answers_are_lost() {
    let table = Faulty::new(MemoryTable::new(), 7, Faults { lose_response: 1.0, ..Faults::NONE });
    let error = table.commit(&Txn::new([])).await.expect_err("there is nothing to do");
    assert_eq!(error.kind(), Kind::Invalid);
}
