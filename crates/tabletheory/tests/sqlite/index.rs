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
    put_rows(&file.open(), count, |n| (name(n), Item::from([("n", n.into())]))).await;
    file
}

fn name(n: i64) -> String {
    format!("row{n:03}")
}

/// The places of the key of a row: in the table, and in the index.
fn places(bytes: &[u8], n: i64) -> Vec<usize> {
    let needle = format!("CACHE#1{}", name(n));
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
    const ROWS: i64 = 6;
    let bytes = fs::read(with_rows(ROWS).await.path()).expect("the file");
    let mut refused = 0;
    for (damaged, bit) in (0..ROWS).flat_map(|n| BITS.map(|bit| (n, bit))) {
        for place in places(&bytes, damaged) {
            let file = flipped(&bytes, place, bit);
            let table = file.open();
            for n in (0..ROWS).chain(100..103) {
                let what = format!("{} with the bit {bit} of {} at {place}", name(n), name(damaged));
                let mut left = rows(&file);
                match table.get(&key(&name(n)), Consistency::Strong).await {
                    Ok(found) => assert!(
                        found.as_ref().is_none_or(|row| row.get("n") == Some(&n.into())),
                        "{what}: {found:?}"
                    ),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Corrupt, "{what}: {error}");
                        refused += 1;
                    }
                }
                // Without a condition, a delete does not read the row.
                if table.commit(&Txn::from(Write::delete(key(&name(n))))).await.is_ok() {
                    let after = rows(&file);
                    left.remove(&n);
                    assert!(after.is_superset(&left), "{what}: {after:?} are left, not {left:?}");
                }
            }
        }
    }
    assert!(refused > 0, "some searches find another row");
}

/// Returns a file in which the index hides a row that is not among the first.
async fn with_hidden_row() -> TestFile {
    let bytes = fs::read(with_rows(MANY).await.path()).expect("the file");
    let hidden = MANY - 10;
    for place in places(&bytes, hidden) {
        let file = flipped(&bytes, place, BITS[0]);
        if n(&file.open(), &name(hidden)).await.is_none() {
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
    assert_eq!(n(&table, &name(0)).await, None);
}

#[tokio::test]
async fn the_background_finds_a_row_that_the_index_hides() {
    let file = with_hidden_row().await;
    let sweep = SweepSettings::default().interval(Duration::from_millis(1));
    let settings = SqliteSettings::default().sweep(Some(sweep)).on_corruption(OnCorruption::Replace);
    let table = SqliteTable::open_with(file.path(), &settings, file.clock.clone()).expect("the file opens");
    while table.replacements().expect("in place") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(n(&table, &name(0)).await, None);
}
