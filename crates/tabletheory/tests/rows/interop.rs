//! Rows that are shared with TableTheory in Go and TypeScript: times and versions.

use super::*;
use serde_json::Value as Json;
use tabletheory::TimeForm;

/// Times as text and a version that starts at 0, as in other languages.
#[derive(Model, Clone, Debug, PartialEq)]
struct Shared {
    #[model(pk)]
    pk: String,
    #[model(sk)]
    sk: String,
    #[model(version)]
    version: Option<i64>,
    #[model(created_at)]
    created_at: String,
    #[model(updated_at)]
    updated_at: Option<String>,
}

/// A row with these attributes whose times are in seconds.
#[derive(Model, Clone, Debug, PartialEq)]
struct InSeconds {
    #[model(pk)]
    pk: String,
    #[model(sk)]
    sk: String,
    #[model(version)]
    version: Option<i64>,
    #[model(created_at)]
    created_at: i64,
    #[model(updated_at)]
    updated_at: Option<i64>,
}

fn key() -> Key {
    Key::new("DOC#1", "BODY")
}

fn new_row() -> Shared {
    let Key { pk, sk } = key();
    Shared { pk, sk, version: None, created_at: String::new(), updated_at: None }
}

async fn store(table: &MemoryTable, item: Item) {
    let put = Txn::from(Write::put(key(), item));
    assert!(table.commit(&put).await.expect("a put").is_done());
}

#[tokio::test]
async fn rows_of_other_languages_are_read_with_times_in_either_form() {
    let vectors: Json =
        serde_json::from_str(include_str!("../golden/typed_rows.json")).expect("the file is JSON");
    for vector in vectors.as_array().expect("a list") {
        let name = vector["name"].as_str().expect("a name");
        let item = Item::from_json(&vector["item"].to_string()).expect(name);
        let text = Shared::from_item(item.clone()).expect(name);
        let expected = &vector["rfc3339"];
        assert_eq!(Some(text.created_at.as_str()), expected["created_at"].as_str(), "{name}");
        assert_eq!(text.updated_at.as_deref(), expected["updated_at"].as_str(), "{name}");
        assert_eq!(text.version, expected["version"].as_i64(), "{name}");
        let seconds = InSeconds::from_item(item).expect(name);
        let expected = &vector["seconds"];
        assert_eq!(Some(seconds.created_at), expected["created_at"].as_i64(), "{name}");
        assert_eq!(seconds.updated_at, expected["updated_at"].as_i64(), "{name}");
        assert_eq!(seconds.version, expected["version"].as_i64(), "{name}");
    }
    let odd = Item::from([("pk", "DOC#1".into()), ("sk", "BODY".into()), ("created_at", "soon".into())]);
    assert_eq!(
        InSeconds::from_item(odd).expect_err("not a time").to_string(),
        "InSeconds BODY of DOC#1: attribute `created_at` is of type S and cannot be read as i64"
    );
}

#[tokio::test]
async fn times_are_stored_in_the_form_of_the_model() {
    assert_eq!((Shared::ROLES.time_form, InSeconds::ROLES.time_form), (TimeForm::Rfc3339, TimeForm::Seconds));
    let (table, clock) = table();
    let rows = table.rows::<Shared>();
    let first = rows.put(&new_row()).await.expect("a put").done().expect("a new row");
    clock.advance(Duration::from_millis(60_007));
    let second = rows.put(&first).await.expect("a put").done().expect("the version is current");
    assert_eq!(second.created_at, "2023-11-14T22:13:20.000000000Z");
    assert_eq!(second.updated_at.as_deref(), Some("2023-11-14T22:14:20.007000000Z"));
    assert_eq!(rows.get(&key()).await.expect("a get"), Some(second));

    clock.advance(Duration::from_secs(1));
    let nothing = || Update::new([]);
    assert!(rows.update(&key(), nothing()).await.expect("an update").is_done());
    let updated = rows.get(&key()).await.expect("a get").expect("the row");
    assert_eq!(updated.created_at, "2023-11-14T22:13:20.000000000Z", "it is set once");
    assert_eq!(updated.updated_at.as_deref(), Some("2023-11-14T22:14:21.007000000Z"));

    assert!(table.rows::<InSeconds>().update(&key(), nothing()).await.expect("an update").is_done());
    let stored = table.get(&key(), Consistency::Strong).await.expect("a get").expect("the row");
    assert_eq!(stored.get("updated_at"), Some(&(NOW + 61).into()));
}

#[tokio::test]
async fn an_optional_version_starts_at_zero_and_counts_by_one() {
    let (table, _) = table();
    let rows = table.rows::<Shared>();
    let mut row = rows.put(&new_row()).await.expect("a put").done().expect("a new row");
    for version in 0..3 {
        assert_eq!(row.version, Some(version));
        let stored = table.get(&key(), Consistency::Strong).await.expect("a get").expect("the row");
        assert_eq!(stored.get("version"), Some(&version.into()));
        row = rows.put(&row).await.expect("a put").done().expect("the version is current");
    }
    assert!(rows.put(&new_row()).await.expect("a put").is_refused());
    assert!(rows.delete(&row).await.expect("a delete").is_done());
}

#[tokio::test]
async fn a_row_that_was_never_read_does_not_replace_a_stored_one() {
    for stored in [Item::new(), Item::from([("version", Value::from(0))])] {
        let (table, _) = table();
        store(&table, stored.clone()).await;
        let Key { pk, sk } = key();
        let never_read = Versioned { pk, sk, version: 0 };
        let refused = table.rows().put(&never_read).await.expect("a put");
        assert!(matches!(refused, Saved::Refused { seen: Some(_) }), "{stored:?}: {refused:?}");
        assert!(table.rows().put(&new_row()).await.expect("a put").is_refused(), "{stored:?}");
        let transaction = table.transaction().put(&never_read).commit().await.expect("a transaction");
        assert!(transaction.is_refused(), "{stored:?}");
    }
}

#[tokio::test]
async fn a_row_that_was_read_with_version_zero_is_saved_as_version_one() {
    let (table, _) = table();
    store(&table, Item::from([("version", Value::from(0)), ("created_at", 5.into())])).await;
    let rows = table.rows::<Shared>();
    let read = rows.get(&key()).await.expect("a get").expect("the row");
    let saved = rows.put(&read).await.expect("a put").done().expect("the version is current");
    assert_eq!((saved.version, saved.created_at.as_str()), (Some(1), "1970-01-01T00:00:05.000000000Z"));
    assert!(rows.put(&read).await.expect("a put").is_refused(), "the version is stale");
}
