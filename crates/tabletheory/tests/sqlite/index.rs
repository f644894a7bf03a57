//! Flipped bits in the index on the keys, which hide rows or lead a search to another row.

use std::collections::BTreeSet;
use std::fs;

use super::*;

/// More than the comparison of rows and index reads in one transaction.
const MANY: i64 = 450;
/// Two bits of the first byte of a key: one makes it less than all others, one greater.
const BITS: [u8; 2] = [0x40, 0x20];

async fn with_rows(count: i64) -> TestFile {
    let file = TestFile::new();
    let writes: Vec<Write> = (0..count).map(put_row).collect();
    let table = file.open();
    for chunk in writes.chunks(100) {
        assert!(table.commit(&Txn::new(chunk.to_vec())).await.expect("puts").is_done());
    }
    file
}

/// Each row has a partition of its own.
fn row_key(n: i64) -> Key {
    Key::new(format!("CACHE#{n:03}"), "META")
}

fn put_row(n: i64) -> Write {
    Write::put(row_key(n), Item::from([("n", n.into())]))
}

async fn get_row(table: &SqliteTable, n: i64) -> tabletheory::Result<Option<Item>> {
    table.get(&row_key(n), Consistency::Strong).await
}

/// The places of the key of a row: in the table, and in the index.
fn places(bytes: &[u8], n: i64) -> Vec<usize> {
    let needle = row_key(n).pk;
    (0..bytes.len() - needle.len()).filter(|at| bytes[*at..].starts_with(needle.as_bytes())).collect()
}

/// A file with this bit flipped.
fn flipped(bytes: &[u8], place: usize, bit: u8) -> TestFile {
    let file = TestFile::new();
    let mut bytes = bytes.to_owned();
    bytes[place] ^= bit;
    fs::write(file.path(), bytes).expect("damage");
    file
}

/// The numbers of all rows, without the index.
fn rows(file: &TestFile) -> BTreeSet<i64> {
    let raw = file.raw();
    let mut all = raw.prepare("SELECT item ->> '$.n.N' FROM item NOT INDEXED").expect("a statement");
    let number = |row: &rusqlite::Row<'_>| Ok(row.get::<_, String>(0)?.parse().expect("a number"));
    all.query_map([], number).expect("rows").collect::<rusqlite::Result<_>>().expect("rows")
}

#[tokio::test]
async fn a_search_in_an_index_without_order_neither_returns_nor_deletes_another_row() {
    const ROWS: i64 = 8;
    let bytes = fs::read(with_rows(ROWS).await.path()).expect("the file");
    for (damaged, bit) in (0..ROWS).flat_map(|n| BITS.map(|bit| (n, bit))) {
        for place in places(&bytes, damaged) {
            let what = format!("with the bit {bit} of {} at {place}", row_key(damaged));
            let file = flipped(&bytes, place, bit);
            let table = file.open();
            // A hidden row is inserted again, perhaps at another place of the index.
            for n in (0..ROWS).rev() {
                check_reads(&table, ROWS, &what).await;
                check_commit(&table.commit(&Txn::from(put_row(n))).await, &what);
            }
            for n in 0..ROWS {
                check_reads(&table, ROWS, &what).await;
                let before = rows(&file);
                // Without a condition, a delete does not read the row.
                check_commit(&table.commit(&Txn::from(Write::delete(row_key(n)))).await, &what);
                let lost: Vec<i64> = before.difference(&rows(&file)).copied().collect();
                assert!(lost.is_empty() || lost == [n], "{what}: {lost:?} were deleted, not {n}");
            }
        }
    }
}

/// No read returns another row.
async fn check_reads(table: &SqliteTable, rows: i64, what: &str) {
    let keys: Vec<Key> = (0..rows).map(row_key).collect();
    let together = table.batch_get(&keys, Consistency::Strong).await;
    for (place, n) in (0..rows).enumerate() {
        let found = get_row(table, n).await.map(Vec::from_iter);
        let queried = table.query(&Query::of(row_key(n).pk)).await.map(|page| page.items);
        let of_batch = together.as_ref().map(|rows| Vec::from_iter(rows[place].clone()));
        for read in [found.as_ref(), queried.as_ref(), of_batch.as_ref().map_err(|error| *error)] {
            match read {
                Ok(rows) => {
                    let is_own = |row: &Item| row.is_damaged() || row.get("n") == Some(&n.into());
                    assert!(rows.iter().all(is_own), "{what}: row {n} is {rows:?}");
                }
                Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{what}: {error}"),
            }
        }
    }
}

fn check_commit(commit: &tabletheory::Result<Commit>, what: &str) {
    let is_expected = commit.as_ref().map_or_else(|error| error.kind() == Kind::Corrupt, Commit::is_done);
    assert!(is_expected, "{what}: {commit:?}");
}

/// Returns a file in which the index hides a row that is not among the first.
async fn with_hidden_row() -> TestFile {
    let bytes = fs::read(with_rows(MANY).await.path()).expect("the file");
    let hidden = MANY - 10;
    for place in places(&bytes, hidden) {
        let file = flipped(&bytes, place, BITS[0]);
        if get_row(&file.open(), hidden).await.expect("a get").is_none() {
            return file;
        }
    }
    panic!("one of the places is in the index");
}

#[tokio::test]
async fn a_sweep_finds_a_row_that_the_index_hides() {
    let lag = Duration::from_secs(60);
    assert_eq!(with_rows(MANY).await.open().sweep(lag).await.expect("a whole file"), 0);

    let file = with_hidden_row().await;
    let error = file.open().sweep(lag).await.expect_err("a hidden row");
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.to_string().contains("the index of the table does not match the row"), "{error}");

    let table = file.open_to_replace();
    assert_eq!(table.sweep(lag).await.expect("a new file"), 0);
    assert_eq!(table.replacements().expect("in place"), 1);
    assert_eq!(get_row(&table, 0).await.expect("a get"), None);
}

#[tokio::test]
async fn the_background_finds_a_row_that_the_index_hides() {
    let file = with_hidden_row().await;
    let sweep = SweepSettings::default().interval(Duration::from_millis(1));
    let settings = SqliteSettings::default().sweep(Some(sweep)).on_corruption(OnCorruption::Replace);
    let table = SqliteTable::open_with(file.path(), &settings, file.clock.clone()).expect("the file opens");
    let is_replaced = async {
        while table.replacements().expect("in place") == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), is_replaced).await.expect("the damage is found");
    assert_eq!(get_row(&table, 0).await.expect("a get"), None);
}
