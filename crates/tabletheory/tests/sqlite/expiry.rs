//! Rows that expire, and the sweeper that deletes them.

use super::*;

/// Longer than any machine takes, however busy: it only ends a test that would never end.
const FOREVER: Duration = Duration::from_secs(300);

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
    // As any other table's: what it says before is what it does.
    let any: &dyn Table = &table;
    assert_eq!(any.expired(Duration::ZERO).await.expect("a count"), 2);
    assert_eq!(any.sweep(Duration::ZERO).await.expect("a sweep"), 2);
    assert_eq!(any.expired(Duration::ZERO).await.expect("a count"), 0);
    assert_eq!(left(&table).await, ["fraction", "future", "mistake", "text"]);
    // Memory keeps the same rows.
    let memory = MemoryTable::with_clock(place.clock.clone());
    put_expiring(&memory).await;
    let any: &dyn Table = &memory;
    assert_eq!(any.expired(Duration::ZERO).await.expect("a count"), 3);
    assert_eq!(any.sweep(Duration::ZERO).await.expect("a sweep"), 3);
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
    let sweep = SweepSettings::default().interval(Duration::from_millis(1)).lag(Duration::ZERO);
    let settings = SqliteSettings::default().sweep(Some(sweep));
    let table = SqliteTable::open_with(place.file(), &settings, place.clock.clone()).expect("it opens");
    put_expiring(&table).await;
    let swept = async {
        while left(&table).await.len() > 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(FOREVER, swept).await.expect("it gets there");
    assert_eq!(left(&table).await, ["fraction", "future", "mistake", "text"]);
}

#[tokio::test]
async fn a_row_that_is_written_again_expires_by_its_new_time() {
    let place = Place::new();
    let table = place.open();
    let put = |ttl: i64| Txn::from(Write::put(key("META"), Item::from([("ttl", Value::from(ttl))])));
    let keep = Update::new([Attr::<i64>::new("ttl").remove()]);
    let keep = Txn::from(Write::update(key("META"), keep));
    for renewal in [put(NOW + 100), keep] {
        assert!(table.commit(&put(NOW - 10)).await.expect("a put").is_done());
        assert!(table.commit(&renewal).await.expect("a renewal").is_done());
        assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 0, "{renewal:?}");
    }
    assert!(table.commit(&put(NOW - 10)).await.expect("a put").is_done());
    assert_eq!(table.sweep(Duration::ZERO).await.expect("a sweep"), 1);
}
