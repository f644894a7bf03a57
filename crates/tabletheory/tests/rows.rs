//! Models saved to a table: what a save keeps by itself, what it refuses, and transactions of several models.

#[path = "support/row.rs"]
mod row;

use std::sync::Arc;
use std::time::Duration;

use row::{CacheLease, CacheMetadata, Document, NOW, lease, metadata};
use tabletheory::{
    ClientToken, Commit, Consistency, Item, Key, ManualClock, MemoryTable, Model, Query, Saved, Set, Table,
    TableExt, Timestamp, Txn, Update, Value, Write,
};

/// A table whose time the test decides.
fn table() -> (MemoryTable, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
    (MemoryTable::with_clock(clock.clone()), clock)
}

fn document(title: &str) -> Document {
    Document { pk: "DOC#1".into(), sk: "BODY".into(), title: title.into(), ..Document::default() }
}

// Saving, with versions and times.

#[tokio::test]
async fn of_two_writers_that_read_the_same_version_the_second_is_refused() {
    let (table, _) = table();
    let documents = table.rows::<Document>();
    let first = documents.put(&document("draft")).await.unwrap().done().unwrap();

    let ann = documents.get(&first.key()).await.unwrap().unwrap();
    let bob = documents.get_eventual(&first.key()).await.unwrap().unwrap();
    let anns = documents.put(&Document { title: "Ann's".into(), ..ann }).await.unwrap().done().unwrap();
    assert_eq!(anns.version, 2);

    let Saved::Refused { seen: Some(seen) } =
        documents.put(&Document { title: "Bob's".into(), ..bob }).await.unwrap()
    else {
        panic!("Bob's version is stale");
    };
    // The refusal shows what is there, so Bob can merge without another read.
    let seen = Document::from_item(seen).unwrap();
    assert_eq!(seen, anns);
    assert!(documents.put(&Document { title: "Bob's, merged".into(), ..seen }).await.unwrap().is_done());
}

#[tokio::test]
async fn a_row_that_was_never_saved_overwrites_nothing() {
    let (table, _) = table();
    let documents = table.rows::<Document>();
    assert!(documents.put(&document("first")).await.unwrap().is_done());
    assert!(documents.put(&document("second")).await.unwrap().is_refused());
    assert!(documents.put_new(&Document { version: 7, ..document("third") }).await.unwrap().is_refused());
    assert_eq!(documents.get(&document("").key()).await.unwrap().unwrap().title, "first");
}

#[tokio::test]
async fn a_save_sets_the_times_by_the_tables_clock() {
    let (table, clock) = table();
    let documents = table.rows::<Document>();
    let first = documents.put(&document("draft")).await.unwrap().done().unwrap();
    assert_eq!((first.created, first.updated), (Some(NOW), NOW));

    clock.advance(Duration::from_secs(10));
    let second = documents.put(&first).await.unwrap().done().unwrap();
    assert_eq!((second.created, second.updated), (Some(NOW), NOW + 10));
    assert_eq!(documents.get(&first.key()).await.unwrap(), Some(second));
}

#[tokio::test]
async fn an_update_counts_as_a_save() {
    let (table, clock) = table();
    let documents = table.rows::<Document>();
    let key = document("").key();
    let retitle = |title: &str| Update::new([Document::TITLE.set(title)]);
    assert!(documents.update(&key, retitle("new")).await.unwrap().is_done());
    clock.advance(Duration::from_secs(5));
    assert!(documents.update(&key, retitle("newer")).when(Document::VERSION.is(1)).await.unwrap().is_done());
    assert!(
        documents.update(&key, retitle("late")).when(Document::VERSION.is(1)).await.unwrap().is_refused()
    );

    let row = documents.get(&key).await.unwrap().unwrap();
    let expected = Document { version: 2, created: Some(NOW), updated: NOW + 5, ..document("newer") };
    assert_eq!(row, expected);
}

#[tokio::test]
async fn an_update_may_set_times_but_not_the_version() {
    let (table, _) = table();
    let documents = table.rows::<Document>();
    let key = document("").key();
    let copied =
        Update::new([Document::TITLE.set("copy"), Document::CREATED.set(5), Document::UPDATED.set(6)]);
    assert!(documents.update(&key, copied).await.unwrap().is_done());
    let row = documents.get(&key).await.unwrap().unwrap();
    assert_eq!((row.created, row.updated, row.version), (Some(5), 6, 1));

    let error = documents.update(&key, Update::new([Document::VERSION.set(9)])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Document BODY of DOC#1: the update changes the version `version`, which every update increments; \
         to require a version, use a condition"
    );
}

#[tokio::test]
async fn a_delete_takes_only_the_version_that_was_read() {
    let (table, _) = table();
    let documents = table.rows::<Document>();
    let first = documents.put(&document("draft")).await.unwrap().done().unwrap();
    let second = documents.put(&first).await.unwrap().done().unwrap();
    assert!(documents.delete(&first).await.unwrap().is_refused());
    assert!(documents.delete(&document("never saved")).await.unwrap().is_refused());
    assert!(documents.delete(&second).await.unwrap().is_done());
    assert!(documents.delete_key(&second.key()).await.unwrap().is_done(), "that there is none is no error");
}

#[tokio::test]
async fn a_further_condition_does_not_replace_that_of_the_version() {
    let (table, _) = table();
    let documents = table.rows::<Document>();
    let first = documents.put(&document("draft")).await.expect("a put").done().expect("it is new");
    assert!(documents.put(&first).await.expect("a put").is_done());
    // The condition holds, but the version has gone on.
    let there = || Document::PK.exists();
    assert!(documents.put(&first).when(there()).await.expect("a put").is_refused());
    assert!(documents.delete(&first).when(there()).await.expect("a delete").is_refused());
}

#[tokio::test]
async fn a_row_that_another_writer_left_without_a_version_can_be_deleted() {
    #[derive(Model, Clone, Debug)]
    struct Numbered {
        #[model(pk)]
        pk: String,
        #[model(sk)]
        sk: String,
        #[model(version, omitempty)]
        version: i64,
    }
    let (table, _) = table();
    let key = Key::new("P", "S");
    let bare = Txn::from(Write::put(key.clone(), tabletheory::Item::new()));
    assert!(table.commit(&bare).await.expect("a put").is_done());
    let row = table.rows::<Numbered>().get(&key).await.expect("a get").expect("the row exists");
    assert_eq!(row.version, 0);
    assert!(table.rows().delete(&row).await.expect("a delete").is_done());
}

#[tokio::test]
async fn a_creation_time_of_zero_is_one_that_was_not_set() {
    #[derive(Model, Clone, Debug)]
    struct Dated {
        #[model(pk)]
        pk: String,
        #[model(sk)]
        sk: String,
        #[model(created_at)]
        created: i64,
    }
    let (table, _) = table();
    for (before, after) in [(0, NOW), (5, 5)] {
        let row = Dated { pk: "P".into(), sk: "S".into(), created: before };
        let saved = table.rows().put(&row).await.expect("a put").done().expect("it has no condition");
        assert_eq!(saved.created, after);
    }
}

#[tokio::test]
async fn a_model_without_a_version_is_put_over_whatever_is_there() {
    let (table, _) = table();
    let pages = table.rows::<CacheMetadata>();
    assert!(pages.put(&metadata()).await.unwrap().is_done());
    assert!(pages.put(&metadata()).await.unwrap().is_done());
    assert!(pages.put_new(&metadata()).await.unwrap().is_refused());
    assert!(pages.delete(&metadata()).await.unwrap().is_done());
}

#[tokio::test]
async fn a_version_that_no_longer_fits_is_refused_before_anything_is_written() {
    #[derive(Model, Clone, Debug, PartialEq)]
    struct Small {
        #[model(pk)]
        pk: String,
        #[model(sk)]
        sk: String,
        #[model(version)]
        version: u8,
    }
    let (table, _) = table();
    let full = Small { pk: "P".into(), sk: "S".into(), version: 255 };
    assert!(
        table.commit(&Txn::from(Write::put(full.key(), full.to_item().unwrap()))).await.unwrap().is_done()
    );
    let error = table.rows().put(&full).await.unwrap_err();
    assert_eq!(error.to_string(), "Small S of P: attribute `version` is of type N and cannot be read as u8");
    assert_eq!(table.rows::<Small>().get(&full.key()).await.unwrap(), Some(full));
}

#[tokio::test]
async fn a_query_reads_typed_rows_page_by_page() {
    let (table, _) = table();
    for number in 1..=3 {
        let row = Document { sk: format!("VER#{number}"), ..document("a version") };
        assert!(table.rows().put_new(&row).await.unwrap().is_done());
    }
    let newest = Query::of("DOC#1").begins_with("VER#").backward().limit(2);
    let page = table.rows::<Document>().query(&newest).await.unwrap();
    let keys: Vec<_> = page.items.iter().map(|row| row.sk.as_str()).collect();
    assert_eq!(keys, ["VER#3", "VER#2"]);
    let rest = table.rows::<Document>().query(&newest.clone().after(page.next.unwrap())).await.unwrap();
    assert_eq!(rest.items.len(), 1);

    let all = table.query_all(&newest, 10).await.unwrap();
    assert_eq!((all.items.len(), all.next), (3, None));
    let exactly = table.query_all(&newest, 3).await.unwrap();
    assert_eq!(exactly.items.len(), 3);
    assert!(table.query_all(&newest, 0).await.is_err(), "no rows at all is no question");
}

#[tokio::test]
async fn a_query_of_rows_of_another_model_says_so() {
    let (table, _) = table();
    assert!(table.rows().put(&lease("t-1")).await.unwrap().is_done());
    let error = table.rows::<CacheMetadata>().query(&Query::of("CACHE#1")).await.unwrap_err();
    assert_eq!(error.to_string(), "CacheMetadata LOCK of CACHE#1: attribute `s3_key` is missing");
}

#[tokio::test]
async fn every_kind_of_handle_has_typed_rows_and_they_cross_threads() {
    let shared: Arc<dyn Table> = Arc::new(table().0);
    let task = {
        let shared = shared.clone();
        tokio::spawn(async move { shared.rows().put(&metadata()).await })
    };
    assert!(task.await.unwrap().unwrap().is_done());
    let plain: &dyn Table = &*shared;
    assert!(plain.rows::<CacheMetadata>().get(&metadata().key()).await.unwrap().is_some());
    assert!(
        tokio::spawn(async move { shared.transaction().put(&metadata()).commit().await })
            .await
            .unwrap()
            .is_ok()
    );
}

// Transactions.

#[tokio::test]
async fn publishing_and_giving_back_the_lease_are_one_step() {
    let (table, _) = table();
    assert!(table.rows().put(&lease("mine")).await.unwrap().is_done());
    let publish = |token: &str| {
        let held = CacheLease::LEASE_TOKEN.is(token).and(CacheLease::LEASE_EXPIRES_AT.gt(NOW));
        table.transaction().put(&metadata()).delete(&lease(token)).when(held)
    };
    let Commit::Refused { index, seen } = publish("theirs").commit().await.unwrap() else {
        panic!("the lease is not theirs");
    };
    assert_eq!((index, seen), (1, Some(lease("mine").to_item().unwrap())));
    assert_eq!(table.rows::<CacheMetadata>().get(&metadata().key()).await.unwrap(), None);

    assert!(publish("mine").commit().await.unwrap().is_done());
    assert_eq!(table.rows::<CacheLease>().get(&lease("").key()).await.unwrap(), None);
}

#[tokio::test]
async fn a_transaction_keeps_versions_and_times_of_every_model_in_it() {
    let (table, clock) = table();
    let old =
        table.rows().put(&Document { sk: "OLD".into(), ..document("old") }).await.unwrap().done().unwrap();
    let gone =
        table.rows().put(&Document { sk: "GONE".into(), ..document("gone") }).await.unwrap().done().unwrap();
    let transaction = table.transaction();
    // One transaction has one time, however long it takes to build.
    clock.advance(Duration::from_secs(99));
    let done = transaction
        .put(&old)
        .put_new(&Document { sk: "NEW".into(), ..document("new") })
        .update::<Document>(&Key::new("DOC#1", "UPDATED"), Update::new([Document::TITLE.set("updated")]))
        .delete(&gone)
        .delete_key(&Key::new("DOC#1", "NONE"))
        .check(&metadata().key(), CacheMetadata::PK.absent())
        .commit()
        .await
        .unwrap();
    assert!(done.is_done());

    let rows = table.rows::<Document>().query(&Query::of("DOC#1")).await.unwrap().items;
    let summary: Vec<_> =
        rows.iter().map(|row| (row.sk.as_str(), row.version, row.created, row.updated)).collect();
    assert_eq!(
        summary,
        [("NEW", 1, Some(NOW), NOW), ("OLD", 2, Some(NOW), NOW), ("UPDATED", 1, Some(NOW), NOW)]
    );
    assert!(table.transaction().put(&old).commit().await.unwrap().is_refused(), "it has been saved since");
}

#[tokio::test]
async fn the_first_thing_that_is_wrong_with_a_transaction_is_said_and_nothing_is_written() {
    #[derive(Model)]
    struct Measure {
        #[model(pk)]
        pk: String,
        #[model(sk)]
        sk: String,
        ratio: f64,
    }
    let (table, _) = table();
    let bad = Measure { pk: "P".into(), sk: "S".into(), ratio: f64::NAN };
    let error = table
        .transaction()
        .put(&metadata())
        .put(&bad)
        .when(Measure::RATIO.exists())
        .commit()
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "Measure S of P: attribute `ratio` cannot be written");
    assert_eq!(table.get(&metadata().key(), Consistency::Strong).await.unwrap(), None);

    // Of several mistakes it is the first that is said.
    let raise = || Update::new([Document::VERSION.set(9)]);
    let error = table
        .transaction()
        .update::<Document>(&Key::new("DOC#1", "A"), raise())
        .update::<Document>(&Key::new("DOC#1", "B"), raise())
        .build()
        .expect_err("a version is not for updates to set");
    assert!(error.to_string().starts_with("Document A of DOC#1: "), "{error}");

    let error = table.transaction().when(Measure::RATIO.exists()).put(&metadata()).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "`when` comes before any write; put it after the write that the condition is for"
    );

    let error = table.transaction().commit().await.unwrap_err();
    assert_eq!(error.to_string(), "the transaction has no writes");

    let key = metadata().key();
    let twice = table.transaction().check(&key, CacheMetadata::PK.exists()).delete_key(&key);
    assert!(twice.commit().await.unwrap_err().to_string().contains("may name a row once"));
}

#[tokio::test]
async fn a_transaction_under_a_token_can_be_committed_again() {
    let (table, _) = table();
    let attempt = table.transaction().put_new(&metadata()).token(ClientToken::new("attempt-1").unwrap());
    let txn = attempt.build().unwrap();
    assert!(table.commit(&txn).await.unwrap().is_done());
    assert!(table.commit(&txn).await.unwrap().is_done(), "the same attempt, so the same answer");
    assert!(table.transaction().put_new(&metadata()).commit().await.unwrap().is_refused());
}

#[derive(Model, Clone, Debug, PartialEq)]
struct Attachment {
    #[model(pk)]
    pk: String,
    #[model(sk)]
    sk: String,
    digest: Vec<u8>,
    seal: Option<Vec<u8>>,
    #[model(with = "tabletheory::string_set")]
    tags: Vec<String>,
}

#[tokio::test]
async fn what_was_put_is_what_its_attributes_compare_with_and_set() {
    let table = MemoryTable::new();
    let rows = table.rows::<Attachment>();
    let first = Attachment {
        pk: "p".into(),
        sk: "s".into(),
        digest: vec![1, 2],
        seal: Some(vec![0]),
        tags: vec!["a".into(), "b".into()],
    };
    assert!(rows.put(&first).await.expect("a put").is_done());
    let item = first.to_item().expect("an item");
    assert_eq!(item.get("digest"), Some(&Value::B(vec![1, 2])), "bytes are bytes on the wire");
    let tags = |names: [&str; 2]| Set::new(names.map(str::to_owned)).expect("a set");
    let update = Update::new([
        Attachment::DIGEST.set(vec![3]),
        Attachment::SEAL.remove(),
        Attachment::TAGS.set(tags(["c", "d"])),
    ]);
    let as_put = Attachment::DIGEST
        .is(vec![1, 2])
        .and(Attachment::SEAL.is(vec![0]))
        .and(Attachment::TAGS.is(tags(["b", "a"])));
    let key = Key::new("p", "s");
    assert!(rows.update(&key, update).when(as_put).await.expect("an update").is_done());
    let second = Attachment { digest: vec![3], seal: None, tags: vec!["c".into(), "d".into()], ..first };
    assert_eq!(rows.get(&key).await.expect("it can still be read"), Some(second));
}

#[tokio::test]
async fn a_row_whose_version_is_zero_or_missing_is_taken_for_one_that_was_never_saved() {
    #[derive(Model, Clone, Debug)]
    struct Counted {
        #[model(pk)]
        pk: String,
        #[model(sk)]
        sk: String,
        #[model(version, omitempty)]
        version: i64,
    }
    for stored in [Item::new(), Item::from([("version", Value::from(0))])] {
        let table = MemoryTable::new();
        let key = Key::new("p", "s");
        let put = || Txn::from(Write::put(key.clone(), stored.clone()));
        assert!(table.commit(&put()).await.expect("a put").is_done());
        let read = table.rows::<Counted>().get(&key).await.expect("readable").expect("the row exists");
        let saved = table.rows().put(&read).await.expect("a put").done().expect("nobody else has saved it");
        assert_eq!(saved.version, 1);
        assert!(table.rows().put(&read).await.expect("a put").is_refused(), "now somebody has");
        assert!(table.commit(&put()).await.expect("a put").is_done());
        assert!(table.rows().delete(&read).await.expect("a delete").is_done());
    }
}
