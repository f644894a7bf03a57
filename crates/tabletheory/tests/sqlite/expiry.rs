//! Expired rows, and the sweeper that deletes them.

use super::*;

/// Ends a test that would hang; much longer than needed on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Puts expired rows, rows that expire later, and rows that never expire.
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
async fn a_sweep_deletes_only_expired_rows() {
    let file = TestFile::new();
    let table = file.open();
    put_expiring(&table).await;
    assert_eq!(table.sweep(Duration::from_secs(200)).await.expect("a sweep"), 1);
    assert_eq!(left(&table).await, ["fraction", "future", "just past", "mistake", "past", "text"]);
    // Through the trait, like any other table.
    let any: &dyn Table = &table;
    assert_eq!(any.expired(Duration::ZERO).await.expect("a count"), 2);
    assert_eq!(any.sweep(Duration::ZERO).await.expect("a sweep"), 2);
    assert_eq!(any.expired(Duration::ZERO).await.expect("a count"), 0);
    assert_eq!(left(&table).await, ["fraction", "future", "mistake", "text"]);
    // The table in memory deletes the same rows.
    let memory = MemoryTable::with_clock(file.clock.clone());
    put_expiring(&memory).await;
    let any: &dyn Table = &memory;
    assert_eq!(any.expired(Duration::ZERO).await.expect("a count"), 3);
    assert_eq!(any.sweep(Duration::ZERO).await.expect("a sweep"), 3);
    assert_eq!(left(&memory).await, left(&table).await);
}

#[tokio::test]
async fn a_sweep_deletes_many_rows_in_batches() {
    let file = TestFile::new();
    let table = file.open();
    put_rows(&table, 1000, |n| (n.to_string(), Item::from([("ttl", Value::from(NOW - 1))]))).await;
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 1000);
    assert!(left(&table).await.is_empty());
}

#[tokio::test]
async fn the_sweeper_deletes_expired_rows_in_the_background() {
    let file = TestFile::new();
    let sweep = SweepSettings::default().interval(Duration::from_millis(1)).lag(Duration::ZERO);
    let settings = SqliteSettings::default().sweep(Some(sweep));
    let table = SqliteTable::open_with(file.path(), &settings, file.clock.clone()).expect("the file opens");
    put_expiring(&table).await;
    let swept = async {
        while left(&table).await.len() > 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, swept).await.expect("rows are deleted in time");
    assert_eq!(left(&table).await, ["fraction", "future", "mistake", "text"]);
}

#[tokio::test]
async fn a_row_that_is_written_again_has_a_new_expiry() {
    let file = TestFile::new();
    let table = file.open();
    let put = |ttl: i64| Txn::from(Write::put(key("META"), Item::from([("ttl", Value::from(ttl))])));
    let no_ttl = Update::new([Attr::<i64>::new("ttl").remove()]);
    let no_ttl = Txn::from(Write::update(key("META"), no_ttl));
    for extension in [put(NOW + 100), no_ttl] {
        assert!(table.commit(&put(NOW - 10)).await.expect("a put").is_done());
        assert!(table.commit(&extension).await.expect("an extension").is_done());
        assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 0, "{extension:?}");
    }
    assert!(table.commit(&put(NOW - 10)).await.expect("a put").is_done());
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 1);
}

/// The column repeats an attribute, and has no checksum.
#[tokio::test]
async fn a_sweep_deletes_no_row_whose_column_says_that_it_has_expired_while_its_attribute_does_not() {
    let file = TestFile::new();
    let table = file.open();
    put_rows(&table, 1, |_| ("TAG".into(), Item::from([("n", 7.into()), ("ttl", (NOW + 1000).into())])))
        .await;
    put_rows(&table, 1, |_| ("META".into(), Item::from([("n", 7.into())]))).await;
    put_rows(&table, 1, |_| ("gone".into(), Item::from([("n", 7.into())]))).await;
    let damage = format!("UPDATE item SET ttl = {}", NOW - 1000);
    assert_eq!(file.raw().execute(&damage, []).expect("the damage"), 3);
    file.raw().execute("UPDATE item SET crc = crc + 1 WHERE sk = 'gone'", []).expect("the damage");
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 1, "the row that cannot be read");
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 0);
    assert_eq!((n(&table, "TAG").await, n(&table, "META").await), (Some(7), Some(7)));
    file.clock.advance(Duration::from_secs(2000));
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 1, "the column has been corrected");
    assert_eq!(n(&table, "TAG").await, None);
}
