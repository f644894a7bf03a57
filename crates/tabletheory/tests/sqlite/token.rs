//! Client tokens, shared between processes through the file.

use super::*;

#[tokio::test]
async fn a_client_token_is_known_to_other_processes_for_ten_minutes() {
    let file = TestFile::new();
    let once = add_one().with_token(token("attempt-1"));
    assert_eq!(file.open().commit(&once).await.expect("the first"), Commit::Done);
    file.clock.advance(Duration::from_secs(599));
    let table = file.open();
    assert_eq!(table.commit(&once).await.expect("a repeat"), Commit::Done);
    assert_eq!(n(&table, "count").await, Some(1));
    file.clock.advance(Duration::from_secs(2));
    assert_eq!(table.commit(&once).await.expect("an expired token"), Commit::Done);
    assert_eq!(n(&table, "count").await, Some(2));
    // Old tokens are deleted.
    file.clock.advance(Duration::from_secs(7200));
    for index in 0..3 {
        let later = add_one().with_token(token(&format!("later-{index}")));
        assert!(table.commit(&later).await.expect("a commit").is_done());
    }
    let stored: i64 =
        file.raw().query_row("SELECT count(*) FROM token", [], |row| row.get(0)).expect("a count");
    assert_eq!(stored, 3);
}

#[tokio::test]
async fn tokens_are_deleted_once_they_do_not_matter_also_while_the_table_is_idle() {
    /// More than one batch.
    const TOKENS: i64 = 500;
    let file = TestFile::new();
    let table = file.open();
    for index in 0..TOKENS {
        let other = Txn::from(Write::delete(key("other"))).with_token(token(&format!("token-{index}")));
        assert!(table.commit(&other).await.expect("a commit").is_done());
    }
    let stored = || -> i64 {
        file.raw().query_row("SELECT count(*) FROM token", [], |row| row.get(0)).expect("a count")
    };
    file.clock.advance(Duration::from_secs(600));
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 0);
    assert_eq!(stored(), TOKENS, "they are within the window");
    file.clock.advance(Duration::from_secs(600));
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 0, "tokens are not rows");
    assert_eq!(stored(), 0);
}

#[tokio::test]
async fn a_token_of_a_process_with_a_fast_clock_is_found() {
    let file = TestFile::new();
    let ahead = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW + 299)));
    let once = add_one().with_token(token("attempt-1"));
    let other = file.try_open_with_clock(ahead).expect("the file opens");
    assert!(other.commit(&once).await.expect("the first").is_done());
    let own = file.open();
    assert!(own.commit(&once).await.expect("a repeat").is_done());
    assert_eq!(n(&own, "count").await, Some(1));
}

#[tokio::test]
async fn a_token_is_found_after_the_clock_steps_back() {
    for step in [1, 301, 601, 3600, 86_400] {
        let file = TestFile::new();
        let table = file.open();
        let once = add_one().with_token(token("attempt-1"));
        assert_eq!(table.commit(&once).await.expect("the first"), Commit::Done);
        file.clock.set(Timestamp::from_seconds(NOW - step));
        assert_eq!(table.commit(&once).await.expect("a repeat"), Commit::Done);
        assert_eq!(n(&table, "count").await, Some(1), "{step} seconds back");
    }
}

#[tokio::test]
async fn later_tokens_do_not_replace_a_token_within_the_window() {
    let file = TestFile::new();
    let table = file.open();
    let once = add_one().with_token(token("attempt-1"));
    assert!(table.commit(&once).await.expect("the first").is_done());
    file.clock.advance(Duration::from_secs(590));
    // Each new token deletes expired ones; this one has not expired.
    for index in 0..4 {
        let other = Txn::from(Write::delete(key("other"))).with_token(token(&format!("other-{index}")));
        assert!(table.commit(&other).await.expect("a commit").is_done());
    }
    assert!(table.commit(&once).await.expect("a repeat").is_done());
    assert_eq!(n(&table, "count").await, Some(1));
}

#[tokio::test]
async fn a_failed_write_does_not_store_its_token() {
    let file = TestFile::new();
    let table = file.open();
    let once = put("META", 1).with_token(token("attempt-1"));
    file.fail_inserts("item", "");
    assert!(table.commit(&once).await.is_err());
    file.raw().execute_batch("DROP TRIGGER failure").expect("no trigger");
    // With a stored token the retry would succeed without writing the row.
    assert!(table.commit(&once).await.expect("a retry").is_done());
    assert_eq!(n(&table, "META").await, Some(1));
}
