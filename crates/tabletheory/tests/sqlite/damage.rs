//! Files of other programs, and files that are damaged.

use super::*;

#[tokio::test]
async fn files_that_are_not_ours_are_left_alone() {
    let place = Place::new();
    place.raw().execute_batch("CREATE TABLE theirs (x)").expect("another program's table");
    let before = std::fs::read(place.file()).expect("their bytes");
    let error = place.try_open().expect_err("another program's file");
    assert!(std::fs::read(place.file()).expect("their bytes") == before, "not a byte has changed");
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(error.to_string(), "this SQLite file belongs to another program; use another file");

    let place = Place::new();
    drop(place.open());
    place.raw().pragma_update(None, "user_version", 99).expect("a later layout");
    let error = place.try_open().expect_err("a later layout");
    let reason = "this table file has schema version 99, but this program supports at most 1; \
                  use a newer version of the program";
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
    let settings = SqliteSettings::default().queue(0);
    let error = SqliteTable::open_with(place.file(), &settings, place.clock.clone()).expect_err("no queue");
    assert_eq!(error.to_string(), "the settings `queue` and `group` of a SQLite table must be at least 1");
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

#[tokio::test]
async fn an_index_that_does_not_fit_its_rows_is_corrupt() {
    let place = Place::new();
    let row = Write::put(key("META"), Item::from([("ttl", Value::from(NOW))]));
    assert!(place.open().commit(&Txn::from(row)).await.expect("a put").is_done());
    // The rows stay whole; what finds the expired ones now points into another table.
    let raw = place.raw();
    raw.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).expect("a setting");
    raw.pragma_update(None, "writable_schema", true).expect("a setting");
    let damage = "UPDATE sqlite_schema
        SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'token') WHERE name = 'item_ttl'";
    assert_eq!(raw.execute(damage, []).expect("the damage is done"), 1);
    drop(raw);
    assert_eq!(place.open().verify().await.expect_err("a wrong index").kind(), Kind::Corrupt);
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
