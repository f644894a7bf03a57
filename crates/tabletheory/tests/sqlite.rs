//! What only the embedded table has: a file, with other processes, age and damage.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tabletheory::{
    Attr, ClientToken, Commit, Consistency, Item, Key, Kind, ManualClock, MemoryTable, Random, Scan,
    SeededRandom, SqliteSettings, SqliteTable, SweepSettings, Table, Timestamp, Txn, Update, Value, Write,
};

const N: Attr<i64> = Attr::new("n");
const NOW: i64 = 1_700_000_000;

struct Place {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Place {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        Place { directory: tempfile::tempdir().expect("a temporary directory"), clock }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("table.db")
    }

    fn open(&self) -> SqliteTable {
        self.try_open().expect("it opens")
    }

    fn try_open(&self) -> tabletheory::Result<SqliteTable> {
        let settings = SqliteSettings {
            busy_timeout: Duration::from_millis(20),
            sweep: None,
            ..SqliteSettings::default()
        };
        SqliteTable::open_with(self.file(), &settings, self.clock.clone())
    }

    /// The file through SQLite alone, as another program would use it.
    fn raw(&self) -> Connection {
        Connection::open(self.file()).expect("SQLite opens it")
    }
}

fn key(sk: &str) -> Key {
    Key::new("CACHE#1", sk)
}

fn put(sk: &str, n: i64) -> Txn {
    Txn::from(Write::put(key(sk), Item::from([("n", Value::from(n))])))
}

fn add_one() -> Txn {
    Txn::from(Write::update(key("count"), Update::new([N.add(1)])))
}

async fn n(table: &SqliteTable, sk: &str) -> Option<i64> {
    let row = table.get(&key(sk), Consistency::Strong).await.expect("a get")?;
    row.get("n").and_then(Value::as_i64)
}

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
    let settings = SqliteSettings { sweep: None, ..SqliteSettings::default() };
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
    assert!(error.to_string().contains("another process kept the table file"), "{error}");
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

#[tokio::test]
async fn a_client_token_is_known_to_other_processes_for_ten_minutes() {
    let place = Place::new();
    let once = add_one().with_token(ClientToken::new("attempt-1").expect("a token"));
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
        let token = ClientToken::new(format!("later-{index}")).expect("a token");
        assert!(table.commit(&add_one().with_token(token)).await.expect("a commit").is_done());
    }
    let kept: i64 =
        place.raw().query_row("SELECT count(*) FROM token", [], |row| row.get(0)).expect("a count");
    assert_eq!(kept, 3);
}

#[tokio::test]
async fn a_clock_that_steps_back_does_not_forget_a_client_token() {
    for step in [1, 301, 601, 3600, 86_400] {
        let place = Place::new();
        let table = place.open();
        let once = add_one().with_token(ClientToken::new("attempt-1").expect("a token"));
        assert_eq!(table.commit(&once).await.expect("the first"), Commit::Done);
        place.clock.set(Timestamp::from_seconds(NOW - step));
        assert_eq!(table.commit(&once).await.expect("a repeat"), Commit::Done);
        assert_eq!(n(&table, "count").await, Some(1), "{step} seconds back");
    }
}

/// Rows whose `ttl` is so many seconds from now, and others that never expire.
async fn put_expiring(table: &dyn Table) {
    let rows: [(&str, Value); 7] = [
        ("past", (NOW - 100).into()),
        ("just past", NOW.into()),
        ("future", (NOW + 100).into()),
        ("text", "soon".into()),
        ("fraction", Value::N("1.5".parse().expect("a number"))),
        ("mistake", 5.into()),
        ("long past", (NOW - 4 * 365 * 86_400).into()),
    ];
    for (sk, ttl) in rows {
        let put = Write::put(key(sk), Item::from([("ttl", ttl)]));
        assert!(table.commit(&Txn::from(put)).await.expect("a put").is_done());
    }
}

async fn left(table: &dyn Table) -> Vec<String> {
    let page = table.scan(&Scan::new()).await.expect("a scan");
    page.items.iter().map(|row| row.key().expect("a key").sk).collect()
}

#[tokio::test]
async fn a_sweep_deletes_what_has_expired_and_nothing_else() {
    let place = Place::new();
    let table = place.open();
    put_expiring(&table).await;
    assert_eq!(table.sweep(Duration::from_secs(200)).await.expect("a sweep"), 1);
    assert_eq!(left(&table).await, ["fraction", "future", "just past", "mistake", "past", "text"]);
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 2);
    assert_eq!(left(&table).await, ["fraction", "future", "mistake", "text"]);
    // Memory keeps the same rows.
    let memory = MemoryTable::with_clock(place.clock.clone());
    put_expiring(&memory).await;
    assert_eq!(memory.sweep(Duration::ZERO), 3);
    assert_eq!(left(&memory).await, left(&table).await);
}

#[tokio::test]
async fn a_sweep_of_many_rows_goes_in_small_steps_to_the_end() {
    let place = Place::new();
    let table = place.open();
    for chunk in 0..10 {
        let writes = (0..100).map(|index| {
            Write::put(key(&format!("{chunk}-{index}")), Item::from([("ttl", Value::from(NOW - 1))]))
        });
        assert!(table.commit(&Txn::new(writes)).await.expect("puts").is_done());
    }
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 1000);
    assert!(left(&table).await.is_empty());
}

#[tokio::test]
async fn the_sweeper_works_by_itself() {
    let place = Place::new();
    let sweep = SweepSettings { every: Duration::from_millis(1), lag: Duration::ZERO };
    let settings = SqliteSettings { sweep: Some(sweep), ..SqliteSettings::default() };
    let table = SqliteTable::open_with(place.file(), &settings, place.clock.clone()).expect("it opens");
    put_expiring(&table).await;
    // However long it takes, it gets there; no other bound would hold on a busy machine.
    while left(&table).await.len() > 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(left(&table).await, ["fraction", "future", "mistake", "text"]);
}

#[tokio::test]
async fn files_that_are_not_ours_are_left_alone() {
    let place = Place::new();
    place.raw().execute_batch("CREATE TABLE theirs (x)").expect("another program's table");
    let error = place.try_open().expect_err("another program's file");
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(error.to_string(), "this SQLite file belongs to another program; name another file");

    let place = Place::new();
    drop(place.open());
    place.raw().pragma_update(None, "user_version", 99).expect("a later layout");
    let error = place.try_open().expect_err("a later layout");
    let reason = "this table file has layout 99 and this program knows 1 at most; use a newer program";
    assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Invalid, reason));

    let place = Place::new();
    std::fs::write(
        place.file(),
        "this is not a database, but it is long enough to be read as one\n".repeat(100),
    )
    .expect("a text");
    let error = place.try_open().expect_err("a text");
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("is damaged; stop every process that uses it"), "{error}");

    let missing =
        SqliteTable::open(place.directory.path().join("missing/table.db")).expect_err("no directory");
    assert_eq!(missing.kind(), Kind::Invalid);
    assert!(missing.to_string().contains("its directory must exist"), "{missing}");
    let settings = SqliteSettings { queue: 0, ..SqliteSettings::default() };
    let error = SqliteTable::open_with(place.file(), &settings, place.clock.clone()).expect_err("no queue");
    assert_eq!(error.to_string(), "the queue and the group of a SQLite table must be at least 1");
}

#[tokio::test]
async fn a_row_that_was_changed_behind_our_back_is_corrupt() {
    for damage in [
        "UPDATE item SET item = replace(item, '7', '8')",
        "UPDATE item SET crc = crc + 1",
        "UPDATE item SET sk = 'LOCK'",
        "UPDATE item SET item = x'FFFE'",
        "UPDATE item SET item = ''",
        "UPDATE item SET crc = 'text'",
    ] {
        let place = Place::new();
        let table = place.open();
        assert!(table.commit(&put("META", 7)).await.expect("a put").is_done());
        assert_eq!(place.raw().execute(damage, []).expect("the damage is done"), 1);
        let scan = table.scan(&Scan::new()).await.expect_err(damage);
        assert_eq!(scan.kind(), Kind::Corrupt, "{damage}: {scan}");
        assert_eq!(table.verify().await.expect_err(damage).kind(), Kind::Corrupt, "{damage}");
        // A transaction that has to read the row fails and writes nothing; a put repairs it.
        let sk = if damage.contains("LOCK") { "LOCK" } else { "META" };
        let update = Txn::new([
            Write::put(key("other"), Item::new()),
            Write::update(key(sk), Update::new([N.add(1)])),
        ]);
        assert_eq!(table.commit(&update).await.expect_err(damage).kind(), Kind::Corrupt, "{damage}");
        assert_eq!(n(&table, "other").await, None);
        assert!(table.commit(&put(sk, 9)).await.expect("a put").is_done());
        assert_eq!(n(&table, sk).await, Some(9));
    }
}

/// Every item that a damaged file gives must be one that was written; everything else must be `Corrupt`.
#[tokio::test]
async fn flipped_bits_and_cut_files_never_give_a_wrong_row() {
    let place = Place::new();
    let table = place.open();
    for chunk in 0..20 {
        let writes = (0..20).map(|index| {
            let n = chunk * 20 + index;
            Write::put(
                key(&format!("{n:04}")),
                Item::from([("n", Value::from(n)), ("text", "x".repeat(150).into())]),
            )
        });
        assert!(table.commit(&Txn::new(writes)).await.expect("puts").is_done());
    }
    let honest = table.scan(&Scan::new()).await.expect("a scan").items;
    assert_eq!(honest.len(), 400);
    drop(table);
    let bytes = std::fs::read(place.file()).expect("the file, with its log copied into it");
    let random = SeededRandom::new(70);
    let mut outcomes = std::collections::BTreeMap::new();
    for round in 0..400 {
        let mut damaged = bytes.clone();
        if round % 4 == 0 {
            let length = random.next_u64() % bytes.len() as u64;
            damaged.truncate(usize::try_from(length).expect("it fits"));
        } else {
            for _ in 0..=random.next_u64() % 8 {
                let bit = random.next_u64() % (bytes.len() as u64 * 8);
                damaged[usize::try_from(bit / 8).expect("it fits")] ^= 1 << (bit % 8);
            }
        }
        let place = Place::new();
        std::fs::write(place.file(), &damaged).expect("the damaged file");
        let outcome = read_everything(&place, &honest).await;
        *outcomes.entry(outcome).or_insert(0) += 1;
    }
    println!("{outcomes:?}");
    assert!(outcomes["corrupt"] > 100, "damage is noticed: {outcomes:?}");
}

async fn read_everything(place: &Place, honest: &[Item]) -> &'static str {
    let judge = |error: tabletheory::Error| {
        assert!(matches!(error.kind(), Kind::Corrupt | Kind::Invalid), "{error:?}");
        assert!(error.kind() == Kind::Corrupt || error.to_string().contains("file"), "{error:?}");
        "corrupt"
    };
    let table = match place.try_open() {
        Ok(table) => table,
        Err(error) => return judge(error),
    };
    let mut outcome = "whole";
    for row in honest {
        match table.get(&row.key().expect("a key"), Consistency::Strong).await {
            Ok(Some(found)) => assert_eq!(&found, row, "a wrong row"),
            Ok(None) => outcome = "missing",
            Err(error) => return judge(error),
        }
    }
    match table.scan(&Scan::new()).await {
        Ok(page) => assert!(page.items.iter().all(|row| honest.contains(row)), "a wrong row"),
        Err(error) => return judge(error),
    }
    // Writing to a damaged file must not panic either.
    if let Err(error) = table.commit(&put("0000", 0)).await {
        return judge(error);
    }
    outcome
}
