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

#[tokio::test]
async fn a_row_changed_by_another_program_is_corrupt() {
    for damage in [
        "UPDATE item SET item = replace(item, '7', '8')",
        "UPDATE item SET crc = crc + 1",
        "UPDATE item SET sk = 'LOCK'",
        "UPDATE item SET item = x'FFFE'",
        "UPDATE item SET item = ''",
        "UPDATE item SET crc = 'text'",
    ] {
        let file = TestFile::new();
        let table = file.open();
        assert!(table.commit(&put("META", 7)).await.expect("a put").is_done());
        assert_eq!(file.raw().execute(damage, []).expect("the damage"), 1);
        let scan = table.scan(&Scan::new()).await.expect_err(damage);
        assert_eq!(scan.kind(), Kind::Corrupt, "{damage}: {scan}");
        assert_eq!(table.verify().await.expect_err(damage).kind(), Kind::Corrupt, "{damage}");
        // A transaction that reads the row fails and writes nothing; a put repairs the row.
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
            Ok(Some(found)) => assert_eq!(&found, row, "a wrong row"),
            Ok(None) => outcome = "missing",
            Err(error) => return classify(error),
        }
    }
    match table.scan(&Scan::new()).await {
        Ok(page) => assert!(page.items.iter().all(|row| written.contains(row)), "a wrong row"),
        Err(error) => return classify(error),
    }
    // Writing to a damaged file must not panic either.
    if let Err(error) = table.commit(&put("0000", 0)).await {
        return classify(error);
    }
    outcome
}
