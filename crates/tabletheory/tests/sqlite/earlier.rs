//! Files of earlier versions, whose rows are in the tree of their keys (`WITHOUT ROWID`).

use tabletheory::{Query, TableExt as _};

use super::*;

const EARLIER_SCHEMA: &str = "
    PRAGMA application_id = 0x7474626c;
    PRAGMA user_version = 1;
    CREATE TABLE item (
        pk   TEXT NOT NULL,
        sk   TEXT NOT NULL,
        ttl  INTEGER,
        item TEXT NOT NULL,
        crc  INTEGER NOT NULL,
        PRIMARY KEY (pk, sk)
    ) WITHOUT ROWID;
    CREATE INDEX item_ttl ON item (ttl) WHERE ttl IS NOT NULL;
    CREATE TABLE token (
        bucket INTEGER NOT NULL,
        token  TEXT NOT NULL,
        at     INTEGER NOT NULL,
        digest BLOB NOT NULL,
        PRIMARY KEY (bucket, token)
    ) WITHOUT ROWID;
";

/// Uses every statement, and returns all results in the order of the calls.
async fn use_every_statement(table: &SqliteTable) -> Vec<String> {
    let mut seen = Vec::new();
    let row = |n: i64| {
        let ttl = if n % 3 == 0 { NOW - 100 } else { NOW + 100 };
        (format!("row {n:02}"), Item::from([("n", Value::from(n)), ("ttl", ttl.into())]))
    };
    put_rows(table, 20, row).await;
    seen.push(format!("{:?}", table.commit(&put("row 07", 70)).await));
    seen.push(format!("{:?}", table.commit(&add_one().with_token(token("one"))).await));
    seen.push(format!("{:?}", table.commit(&add_one().with_token(token("one"))).await));
    seen.push(format!("{:?}", table.commit(&Txn::from(Write::delete(key("row 08")))).await));
    let guarded = Write::put(key("row 09"), Item::new()).when(N.absent());
    seen.push(format!("{:?}", table.commit(&Txn::from(guarded)).await));
    seen.push(format!("{:?}", table.query_all(&Query::of("CACHE#1").limit(4), 100).await));
    seen.push(format!("{:?}", table.query(&Query::of("CACHE#1").backward().limit(3)).await));
    seen.push(format!("{:?}", table.expired(Duration::ZERO).await));
    seen.push(format!("{:?}", table.sweep(Duration::ZERO).await));
    seen.push(format!("{:?}", table.scan(&Scan::new()).await));
    seen.push(format!("{:?}", table.verify().await));
    seen
}

#[tokio::test]
async fn a_file_of_an_earlier_version_is_used_as_it_is() {
    let (earlier, new) = (TestFile::new(), TestFile::new());
    earlier.raw().execute_batch(EARLIER_SCHEMA).expect("the earlier schema");
    let seen = use_every_statement(&earlier.open()).await;
    assert_eq!(seen, use_every_statement(&new.open()).await);
    let schema = |file: &TestFile| -> String {
        let of_rows = "SELECT sql FROM sqlite_schema WHERE name = 'item'";
        file.raw().query_row(of_rows, [], |row| row.get(0)).expect("a table")
    };
    assert!(schema(&earlier).contains("WITHOUT ROWID"), "the file is not converted");
    assert!(!schema(&new).contains("WITHOUT ROWID"));
}

#[tokio::test]
async fn a_file_of_an_earlier_version_gets_an_order_of_use_and_an_earlier_program_can_still_write_it() {
    let file = TestFile::new();
    let raw = file.raw();
    raw.execute_batch(EARLIER_SCHEMA).expect("the earlier schema");
    let of_earlier = "INSERT INTO item (pk, sk, ttl, item, crc) VALUES (?1, ?2, 1, '{}', 0)
         ON CONFLICT (pk, sk) DO UPDATE SET ttl = excluded.ttl, item = excluded.item, crc = excluded.crc";
    raw.execute(of_earlier, ["CACHE#1", "before"]).expect("a row of an earlier program");
    let used = |sk: &str, at: i64| Txn::from(Write::put(key(sk), Item::from([("used_at", Value::from(at))])));
    for _ in 0..2 {
        let table = file.open();
        for (sk, at) in [("a", 2), ("b", 1)] {
            assert!(table.commit(&used(sk, at)).await.expect("a put").is_done());
        }
        let usage = table.usage().await.expect("a reading").expect("an order of use");
        assert_eq!(usage.used_rows, 2);
        let order = table.least_recently_used(10).await.expect("a reading");
        assert_eq!(order.iter().map(|row| row.key().expect("a key").sk).collect::<Vec<_>>(), ["b", "a"]);
        drop(table);
        raw.execute(of_earlier, ["CACHE#1", "after"]).expect("a row of an earlier program");
    }
}

#[tokio::test]
async fn a_damaged_row_keeps_its_place_in_the_order_of_use() {
    let file = TestFile::new();
    let table = file.open();
    put_rows(&table, 3, |n| (n.to_string(), Item::from([("used_at", Value::from(n))]))).await;
    file.raw().execute("UPDATE item SET crc = crc + 1 WHERE sk = '0'", []).expect("damage");
    let order = table.least_recently_used(2).await.expect("a reading");
    assert!(order[0].is_damaged() && !order[1].is_damaged());
    assert_eq!(order.iter().map(|row| row.key().expect("a key").sk).collect::<Vec<_>>(), ["0", "1"]);
}
