//! Writes: group commits, other processes, and failures during a transaction.

use super::*;

#[tokio::test]
async fn rows_are_durable() {
    let file = TestFile::new();
    assert!(file.open().commit(&put("META", 1)).await.expect("a put").is_done());
    assert_eq!(n(&file.open(), "META").await, Some(1));
}

#[tokio::test]
async fn dropping_the_table_waits_for_queued_transactions() {
    let file = TestFile::new();
    let table = file.open();
    for _ in 0..50 {
        // The future is dropped after its transaction was queued.
        let txn = add_one();
        let mut commit = Box::pin(table.commit(&txn));
        std::future::poll_fn(|context| {
            let _ = commit.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
    }
    drop(table);
    assert_eq!(n(&file.open(), "count").await, Some(50));
}

#[tokio::test]
async fn two_tables_on_one_file_lose_no_updates() {
    let file = TestFile::new();
    let settings = SqliteSettings::default().sweep(None);
    let open = || {
        Arc::new(SqliteTable::open_with(file.path(), &settings, file.clock.clone()).expect("the file opens"))
    };
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

/// Two rows always change together, and other rows are read between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_a_snapshot() {
    const WRITES: i64 = 300;
    let file = TestFile::new();
    let (table, writer) = (file.open(), file.open());
    assert!(table.batches_are_snapshots());
    let write =
        |n: i64| Txn::new(["first", "last"].map(|sk| Write::put(key(sk), Item::from([("n", n.into())]))));
    assert!(writer.commit(&write(0)).await.expect("a put").is_done());
    let writing = tokio::spawn(async move {
        for number in 1..=WRITES {
            assert!(writer.commit(&write(number)).await.expect("a put").is_done());
        }
    });
    // One statement, and several.
    for between in [0, 40].into_iter().cycle() {
        let others = (0..between).map(|number| key(&number.to_string()));
        let keys: Vec<Key> = [key("first")].into_iter().chain(others).chain([key("last")]).collect();
        let rows = table.batch_get(&keys, Consistency::Strong).await.expect("a batch");
        let numbers: Vec<i64> = rows.iter().flatten().filter_map(|row| row.get("n")?.as_i64()).collect();
        assert_eq!(numbers.len(), 2);
        assert_eq!(numbers[0], numbers[1], "with {between} rows between them");
        if numbers[0] == WRITES {
            break;
        }
    }
    writing.await.expect("no panic");
}

#[tokio::test]
async fn a_locked_file_is_reported_and_readers_do_not_wait() {
    let file = TestFile::new();
    let table = file.open();
    assert!(table.commit(&put("META", 1)).await.expect("a put").is_done());
    let other = file.raw();
    other.execute_batch("BEGIN IMMEDIATE; DELETE FROM item;").expect("a write lock");
    let error = table.commit(&put("META", 2)).await.expect_err("the file is locked");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("was locked by another process for too long"), "{error}");
    assert_eq!(n(&table, "META").await, Some(1));
    assert_eq!(table.scan(&Scan::new()).await.expect("a scan").items.len(), 1);
    other.execute_batch("ROLLBACK").expect("a rollback");
    assert!(table.commit(&put("META", 3)).await.expect("the lock is released").is_done());
    assert_eq!(n(&table, "META").await, Some(3));
}

#[tokio::test]
async fn a_failed_transaction_does_not_affect_others_of_its_group() {
    let file = TestFile::new();
    let table = Arc::new(file.open());
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
                1 => assert!(table.commit(&refused).await.expect("a refusal is not an error").is_refused()),
                _ => assert!(table.commit(&add_one()).await.expect("a commit").is_done()),
            }
        });
    }
    committers.join_all().await;
    assert_eq!(n(&table, "count").await, Some(100));
}

/// Commits a failing transaction concurrently with others, so that groups contain both.
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
    assert_eq!(n(table, "count").await, Some(30), "the other transactions are applied");
}

#[tokio::test]
async fn a_transaction_that_fails_while_writing_is_rolled_back() {
    let file = TestFile::new();
    let table = Arc::new(file.open());
    file.fail_inserts("item", "WHEN new.sk = 'second'");
    let two = Txn::new([Write::put(key("first"), Item::new()), Write::put(key("second"), Item::new())]);
    commit_among_others(&table, two).await;
    assert_eq!(table.get(&key("first"), Consistency::Strong).await.expect("a get"), None);
}

#[tokio::test]
async fn rows_are_not_written_if_the_token_cannot_be_stored() {
    let file = TestFile::new();
    let table = Arc::new(file.open());
    file.fail_inserts("token", "");
    commit_among_others(&table, put("META", 1).with_token(token("attempt-1"))).await;
    assert_eq!(n(&table, "META").await, None);
}

#[tokio::test]
async fn a_failed_commit_is_an_error() {
    let file = TestFile::new();
    let table = file.open();
    // SQLite checks a deferred reference on commit.
    file.raw()
        .execute_batch(
            "CREATE TABLE parent (x PRIMARY KEY);
             CREATE TABLE child (x REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER failure AFTER INSERT ON item BEGIN INSERT INTO child VALUES (1); END",
        )
        .expect("a trigger");
    assert!(table.commit(&put("META", 1)).await.is_err());
    assert_eq!(n(&table, "META").await, None);
}
