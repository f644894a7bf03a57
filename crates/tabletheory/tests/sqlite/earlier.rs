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
