//! Files of other programs, and damaged files.

use super::*;

#[tokio::test]
async fn files_of_other_programs_are_rejected_and_not_changed() {
    let file = TestFile::new();
    file.raw().execute_batch("CREATE TABLE other (x)").expect("another program's table");
    let before = std::fs::read(file.path()).expect("the file");
    let error = file.try_open().expect_err("another program's file");
    assert!(std::fs::read(file.path()).expect("the file") == before, "the file is unchanged");
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(error.to_string(), "this SQLite file belongs to another program; use another file");

    let file = TestFile::new();
    drop(file.open());
    file.raw().pragma_update(None, "user_version", 99).expect("a later version");
    let error = file.try_open().expect_err("a later version");
    let reason = "this table file has schema version 99, but this program supports at most 1; \
                  use a newer version of the program";
    assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Invalid, reason));

    let file = TestFile::new();
    std::fs::write(
        file.path(),
        "this is not a database, but it is long enough to be read as one\n".repeat(100),
    )
    .expect("a text");
    let error = file.try_open().expect_err("a text");
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("is damaged; stop every process that uses it"), "{error}");

    let missing =
        SqliteTable::open(file.directory.path().join("missing/table.db")).expect_err("no directory");
    assert_eq!(missing.kind(), Kind::Invalid);
    assert!(missing.to_string().contains("its directory must exist"), "{missing}");
    let settings = SqliteSettings::default().queue(0);
    let error = SqliteTable::open_with(file.path(), &settings, file.clock.clone()).expect_err("no queue");
    assert_eq!(error.to_string(), "the settings `queue` and `group` of a SQLite file must be at least 1");
}

const DAMAGES: [&str; 6] = [
    "UPDATE item SET item = replace(item, '7', '8') WHERE sk = 'META'",
    "UPDATE item SET crc = crc + 1 WHERE sk = 'META'",
    "UPDATE item SET sk = 'META' WHERE sk = 'OTHER'",
    "UPDATE item SET item = x'FFFE' WHERE sk = 'META'",
    "UPDATE item SET item = '' WHERE sk = 'META'",
    "UPDATE item SET crc = 'text' WHERE sk = 'META'",
];

/// A table with the good rows `LOCK` and `VER#1`, and `META` with this damage between them.
async fn with_damage(file: &TestFile, damage: &str) -> SqliteTable {
    let table = file.open();
    let sk = if damage.contains("OTHER") { "OTHER" } else { "META" };
    for sk in ["LOCK", sk, "VER#1"] {
        assert!(table.commit(&put(sk, 7)).await.expect("a put").is_done());
    }
    assert_eq!(file.raw().execute(damage, []).expect("the damage"), 1);
    table
}

async fn memory_with_damage() -> MemoryTable {
    let table = MemoryTable::new();
    for sk in ["LOCK", "META", "VER#1"] {
        assert!(table.commit(&put(sk, 7)).await.expect("a put").is_done());
    }
    assert!(table.damage(&key("META")));
    table
}

#[tokio::test]
async fn a_damaged_row_is_returned_beside_the_good_rows_and_can_be_overwritten() {
    for damage in DAMAGES {
        let file = TestFile::new();
        let table = with_damage(&file, damage).await;
        let error = table.verify().await.expect_err(damage);
        assert_eq!(error.kind(), Kind::Corrupt, "{damage}: {error}");
        assert!(error.to_string().contains("META of CACHE#1 is damaged; delete it"), "{error}");
        check_damaged_row(&table, damage).await;
        assert_eq!(table.verify().await.expect("a whole table"), 3);
        let file = TestFile::new();
        let table = with_damage(&file, damage).await;
        assert!(table.commit(&Txn::from(Write::delete(key("META")))).await.expect("a delete").is_done());
        assert_eq!(n(&table, "META").await, None, "{damage}");
        table.verify().await.expect("a whole table");
    }
    check_damaged_row(&memory_with_damage().await, "in memory").await;
}

/// Reads and writes a table whose row `META` is damaged.
async fn check_damaged_row(table: &dyn Table, damage: &str) {
    let damaged = Item::damaged(&key("META"));
    let is_expected = |items: &[Item]| {
        let sks: Vec<String> = items.iter().map(|item| item.key().expect("a key").sk).collect();
        let ns: Vec<Option<i64>> = items.iter().map(|item| item.get("n").and_then(Value::as_i64)).collect();
        assert_eq!(sks, ["LOCK", "META", "VER#1"], "{damage}");
        assert_eq!(ns, [Some(7), None, Some(7)], "{damage}");
        assert_eq!(items[1], damaged, "{damage}");
    };
    assert_eq!(table.get(&key("META"), Consistency::Strong).await.expect("a get"), Some(damaged.clone()));
    let keys = ["LOCK", "META", "VER#1"].map(key);
    let batch = table.batch_get(&keys, Consistency::Strong).await.expect("a batch");
    is_expected(&batch.into_iter().flatten().collect::<Vec<_>>());
    is_expected(&table.query(&Query::of("CACHE#1")).await.expect("a query").items);
    is_expected(&table.scan(&Scan::new()).await.expect("a scan").items);

    // Conditions see no row.
    let absent = || Attr::<String>::new("pk").absent();
    for refused in [
        Write::check(key("META"), Attr::<String>::new("pk").exists()),
        Write::update(key("META"), Update::new([N.add(1)])).when(N.ge(0)),
        Write::delete(key("META")).when(N.is(7)),
    ] {
        let commit = table.commit(&Txn::from(refused)).await.expect(damage);
        assert_eq!(commit, Commit::Refused { index: 0, seen: None }, "{damage}");
    }
    // The put of an item that was read from a damaged row is not damaged.
    let rewrite = Txn::from(Write::put(key("META"), damaged).when(absent()));
    assert!(table.commit(&rewrite).await.expect(damage).is_done());
    let row = table.get(&key("META"), Consistency::Strong).await.expect("a get").expect("a row");
    assert!(!row.is_damaged(), "{damage}");
    assert!(table.commit(&rewrite).await.expect(damage).is_refused(), "{damage}");
}

#[tokio::test]
async fn an_update_of_a_damaged_row_begins_with_an_empty_one() {
    for damage in DAMAGES {
        let file = TestFile::new();
        let table = with_damage(&file, damage).await;
        let update = Txn::from(Write::update(key("META"), Update::new([N.add(1)])));
        assert!(table.commit(&update).await.expect(damage).is_done());
        assert_eq!(n(&table, "META").await, Some(1), "{damage}");
    }
}

/// If an index leads to the row of another key, two keys share one row, and each write of one of them damages the other.
#[tokio::test]
async fn a_key_that_leads_to_the_row_of_another_key_is_damage_of_the_file() {
    let file = TestFile::new();
    put_rows(&file.open(), 3, |n| (format!("row{n}"), Item::from([("n", n.into())]))).await;
    // Each key is in the table and in the index.
    let mut bytes = std::fs::read(file.path()).expect("the file");
    let needle = b"CACHE#1row1";
    let places: Vec<usize> =
        (0..bytes.len() - needle.len()).filter(|at| bytes[*at..].starts_with(needle)).collect();
    assert_eq!(places.len(), 2);
    let mut outcomes = Vec::new();
    for place in places {
        bytes[place + needle.len() - 1] ^= 0x40;
        std::fs::write(file.path(), &bytes).expect("damage");
        let table = file.open();
        match table.scan(&Scan::new()).await {
            Ok(page) => {
                assert!(page.items.iter().all(|item| !item.is_damaged()), "the index has the keys");
                assert!(
                    table.commit(&Txn::from(Write::delete(key("row1")))).await.expect("a delete").is_done()
                );
                assert_eq!(n(&table, "row1").await, None);
                outcomes.push("harmless");
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt);
                assert!(error.to_string().contains("does not match the row"), "{error}");
                outcomes.push("damage");
            }
        }
        drop(table);
        bytes[place + needle.len() - 1] ^= 0x40;
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["damage", "harmless"], "in the index, and in the table");
}

#[tokio::test]
async fn an_index_that_does_not_match_its_rows_is_corrupt() {
    let file = TestFile::new();
    let row = Write::put(key("META"), Item::from([("ttl", Value::from(NOW))]));
    assert!(file.open().commit(&Txn::from(row)).await.expect("a put").is_done());
    // The rows are intact, but the index on `ttl` refers to the pages of another table.
    let raw = file.raw();
    raw.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).expect("a setting");
    raw.pragma_update(None, "writable_schema", true).expect("a setting");
    let damage = "UPDATE sqlite_schema
        SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'token') WHERE name = 'item_ttl'";
    assert_eq!(raw.execute(damage, []).expect("the damage"), 1);
    drop(raw);
    assert_eq!(file.open().verify().await.expect_err("a wrong index").kind(), Kind::Corrupt);
}

/// Every item that is read from a damaged file must have been written; everything else must be `Corrupt`.
#[tokio::test]
async fn flipped_bits_and_truncated_files_never_return_a_wrong_row() {
    let file = TestFile::new();
    let table = file.open();
    put_rows(&table, 400, |n| {
        (format!("{n:04}"), Item::from([("n", Value::from(n)), ("text", "x".repeat(150).into())]))
    })
    .await;
    let written = table.scan(&Scan::new()).await.expect("a scan").items;
    assert_eq!(written.len(), 400);
    drop(table);
    let bytes = std::fs::read(file.path()).expect("the file after a checkpoint");
    let random = SeededRandom::new(70);
    let mut outcomes = std::collections::BTreeMap::new();
    for round in 0..400 {
        let mut damaged = bytes.clone();
        if round % 4 == 0 {
            let length = random.next_u64() % bytes.len() as u64;
            damaged.truncate(usize::try_from(length).expect("a small number"));
        } else {
            for _ in 0..=random.next_u64() % 8 {
                let bit = random.next_u64() % (bytes.len() as u64 * 8);
                damaged[usize::try_from(bit / 8).expect("a small number")] ^= 1 << (bit % 8);
            }
        }
        let file = TestFile::new();
        std::fs::write(file.path(), &damaged).expect("the damaged file");
        let outcome = read_everything(&file, &written).await;
        *outcomes.entry(outcome).or_insert(0) += 1;
    }
    println!("{outcomes:?}");
    assert!(outcomes["corrupt"] > 100, "damage is detected: {outcomes:?}");
}

async fn read_everything(file: &TestFile, written: &[Item]) -> &'static str {
    let classify = |error: tabletheory::Error| {
        assert!(matches!(error.kind(), Kind::Corrupt | Kind::Invalid), "{error:?}");
        assert!(error.kind() == Kind::Corrupt || error.to_string().contains("file"), "{error:?}");
        "corrupt"
    };
    let table = match file.try_open() {
        Ok(table) => table,
        Err(error) => return classify(error),
    };
    let mut outcome = "intact";
    for row in written {
        match table.get(&row.key().expect("a key"), Consistency::Strong).await {
            Ok(Some(found)) if found.is_damaged() => outcome = "corrupt",
            Ok(Some(found)) => assert_eq!(&found, row, "a wrong row"),
            Ok(None) => outcome = "missing",
            Err(error) => return classify(error),
        }
    }
    match table.scan(&Scan::new()).await {
        Ok(page) => {
            let is_right = |row: &Item| row.is_damaged() || written.contains(row);
            assert!(page.items.iter().all(is_right), "a wrong row");
        }
        Err(error) => return classify(error),
    }
    // Writing to a damaged file must not panic either.
    if let Err(error) = table.commit(&put("0000", 0)).await {
        return classify(error);
    }
    outcome
}
