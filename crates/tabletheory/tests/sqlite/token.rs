//! Client tokens, which processes share through the file.

use super::*;

#[tokio::test]
async fn a_client_token_is_known_to_other_processes_for_ten_minutes() {
    let place = Place::new();
    let once = add_one().with_token(token("attempt-1"));
    assert_eq!(place.open().commit(&once).await.expect("the first"), Commit::Done);
    place.clock.advance(Duration::from_secs(599));
    let table = place.open();
    assert_eq!(table.commit(&once).await.expect("a repeat"), Commit::Done);
    assert_eq!(n(&table, "count").await, Some(1));
    place.clock.advance(Duration::from_secs(2));
    assert_eq!(table.commit(&once).await.expect("a token that is forgotten"), Commit::Done);
    assert_eq!(n(&table, "count").await, Some(2));
    // Old tokens do not stay for ever.
    place.clock.advance(Duration::from_secs(7200));
    for index in 0..3 {
        let later = add_one().with_token(token(&format!("later-{index}")));
        assert!(table.commit(&later).await.expect("a commit").is_done());
    }
    let kept: i64 =
        place.raw().query_row("SELECT count(*) FROM token", [], |row| row.get(0)).expect("a count");
    assert_eq!(kept, 3);
}

#[tokio::test]
async fn a_token_counts_although_the_clock_of_its_process_was_ahead() {
    let place = Place::new();
    let ahead = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW + 299)));
    let once = add_one().with_token(token("attempt-1"));
    let theirs = place.try_open_with_clock(ahead).expect("it opens");
    assert!(theirs.commit(&once).await.expect("the first").is_done());
    let ours = place.open();
    assert!(ours.commit(&once).await.expect("a repeat").is_done());
    assert_eq!(n(&ours, "count").await, Some(1));
}

#[tokio::test]
async fn a_clock_that_steps_back_does_not_forget_a_client_token() {
    for step in [1, 301, 601, 3600, 86_400] {
        let place = Place::new();
        let table = place.open();
        let once = add_one().with_token(token("attempt-1"));
        assert_eq!(table.commit(&once).await.expect("the first"), Commit::Done);
        place.clock.set(Timestamp::from_seconds(NOW - step));
        assert_eq!(table.commit(&once).await.expect("a repeat"), Commit::Done);
        assert_eq!(n(&table, "count").await, Some(1), "{step} seconds back");
    }
}

#[tokio::test]
async fn later_tokens_do_not_push_out_one_that_still_counts() {
    let place = Place::new();
    let table = place.open();
    let once = add_one().with_token(token("attempt-1"));
    assert!(table.commit(&once).await.expect("the first").is_done());
    place.clock.advance(Duration::from_secs(590));
    // Each token that is recorded forgets old ones; this one is not old enough.
    for index in 0..4 {
        let other = Txn::from(Write::delete(key("other"))).with_token(token(&format!("other-{index}")));
        assert!(table.commit(&other).await.expect("a commit").is_done());
    }
    assert!(table.commit(&once).await.expect("a repeat").is_done());
    assert_eq!(n(&table, "count").await, Some(1));
}

#[tokio::test]
async fn a_write_that_failed_leaves_no_token_behind() {
    let place = Place::new();
    let table = place.open();
    let once = put("META", 1).with_token(token("attempt-1"));
    place.fail_inserts("item", "");
    assert!(table.commit(&once).await.is_err());
    place.raw().execute_batch("DROP TRIGGER failure").expect("the cause is gone");
    // Had the token been kept, the repeat would be called done and the row would be missing.
    assert!(table.commit(&once).await.expect("a second try").is_done());
    assert_eq!(n(&table, "META").await, Some(1));
}
