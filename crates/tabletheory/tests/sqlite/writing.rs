//! Writing: what is queued together, what other processes do meanwhile, and what fails half way.

use super::*;

#[tokio::test]
async fn rows_outlive_the_process() {
    let place = Place::new();
    assert!(place.open().commit(&put("META", 1)).await.expect("a put").is_done());
    assert_eq!(n(&place.open(), "META").await, Some(1));
}

#[tokio::test]
async fn what_was_queued_is_finished_when_the_table_is_dropped() {
    let place = Place::new();
    let table = place.open();
    for _ in 0..50 {
        // The committer goes away right after its transaction was queued.
        let txn = add_one();
        let mut commit = Box::pin(table.commit(&txn));
        std::future::poll_fn(|context| {
            let _ = commit.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
    }
    drop(table);
    assert_eq!(n(&place.open(), "count").await, Some(50));
}

#[tokio::test]
async fn two_tables_on_one_file_see_each_other_and_lose_no_update() {
    let place = Place::new();
    let settings = SqliteSettings::default().sweep(None);
    let open =
        || Arc::new(SqliteTable::open_with(place.file(), &settings, place.clock.clone()).expect("it opens"));
    let tables = [open(), open()];
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let table = Arc::clone(&tables[writer % 2]);
        writers.spawn(async move {
            for _ in 0..25 {
                assert!(table.commit(&add_one()).await.expect("a commit").is_done());
            }
        });
    }
    writers.join_all().await;
    assert_eq!(n(&tables[0], "count").await, Some(200));
    assert_eq!(n(&tables[1], "count").await, Some(200));
}

#[tokio::test]
async fn a_writer_that_never_ends_is_reported_and_readers_do_not_wait_for_it() {
    let place = Place::new();
    let table = place.open();
    assert!(table.commit(&put("META", 1)).await.expect("a put").is_done());
    let other = place.raw();
    other.execute_batch("BEGIN IMMEDIATE; DELETE FROM item;").expect("the other writes");
    let error = table.commit(&put("META", 2)).await.expect_err("the file is locked");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("was locked by another process for too long"), "{error}");
    assert_eq!(n(&table, "META").await, Some(1));
    assert_eq!(table.scan(&Scan::new()).await.expect("a scan").items.len(), 1);
    other.execute_batch("ROLLBACK").expect("the other gives up");
    assert!(table.commit(&put("META", 3)).await.expect("the lock is gone").is_done());
    assert_eq!(n(&table, "META").await, Some(3));
}

#[tokio::test]
async fn one_bad_transaction_of_a_group_does_not_harm_the_others() {
    let place = Place::new();
    let table = Arc::new(place.open());
    let text = Txn::from(Write::put(key("text"), Item::from([("n", Value::from("one"))])));
    assert!(table.commit(&text).await.expect("a put").is_done());
    let mut committers = tokio::task::JoinSet::new();
    for index in 0..200 {
        let table = Arc::clone(&table);
        committers.spawn(async move {
            let impossible = Txn::from(Write::update(key("text"), Update::new([N.add(1)])));
            let refused = Txn::from(Write::delete(key("text")).when(N.is(5)));
            match index % 4 {
                0 => assert_eq!(table.commit(&impossible).await.expect_err("a text").kind(), Kind::Invalid),
                1 => assert!(table.commit(&refused).await.expect("a refusal is no error").is_refused()),
                _ => assert!(table.commit(&add_one()).await.expect("a commit").is_done()),
            }
        });
    }
    committers.join_all().await;
    assert_eq!(n(&table, "count").await, Some(100));
}

/// Commits one that fails among others that do not, so that some of each are in the same group.
async fn commit_among_others(table: &Arc<SqliteTable>, failing: Txn) {
    let mut committers = tokio::task::JoinSet::new();
    for index in 0..40 {
        let (table, failing) = (Arc::clone(table), failing.clone());
        committers.spawn(async move {
            if index % 4 == 0 {
                assert!(table.commit(&failing).await.is_err());
            } else {
                assert!(table.commit(&add_one()).await.expect("a commit").is_done());
            }
        });
    }
    committers.join_all().await;
    assert_eq!(n(table, "count").await, Some(30), "the others are not harmed");
}

#[tokio::test]
async fn a_transaction_that_fails_half_way_leaves_nothing() {
    let place = Place::new();
    let table = Arc::new(place.open());
    place.fail_inserts("item", "WHEN new.sk = 'second'");
    let two = Txn::new([Write::put(key("first"), Item::new()), Write::put(key("second"), Item::new())]);
    commit_among_others(&table, two).await;
    assert_eq!(table.get(&key("first"), Consistency::Strong).await.expect("a get"), None);
}

#[tokio::test]
async fn rows_whose_token_cannot_be_kept_are_not_written() {
    let place = Place::new();
    let table = Arc::new(place.open());
    place.fail_inserts("token", "");
    commit_among_others(&table, put("META", 1).with_token(token("attempt-1"))).await;
    assert_eq!(n(&table, "META").await, None);
}

#[tokio::test]
async fn a_failure_of_the_last_step_is_not_called_done() {
    let place = Place::new();
    let table = place.open();
    // SQLite looks at a deferred reference only when the transaction is committed.
    place
        .raw()
        .execute_batch(
            "CREATE TABLE parent (x PRIMARY KEY);
             CREATE TABLE child (x REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER failure AFTER INSERT ON item BEGIN INSERT INTO child VALUES (1); END",
        )
        .expect("a trigger");
    assert!(table.commit(&put("META", 1)).await.is_err());
    assert_eq!(n(&table, "META").await, None);
}
