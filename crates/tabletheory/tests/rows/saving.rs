//! Saving and reading single rows.

use super::*;

#[tokio::test]
async fn the_second_of_two_saves_over_the_same_version_is_refused() {
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
    // The refusal contains the stored row, so Bob can merge without another read.
    let seen = Document::from_item(seen).unwrap();
    assert_eq!(seen, anns);
    assert!(documents.put(&Document { title: "Bob's, merged".into(), ..seen }).await.unwrap().is_done());
}

#[tokio::test]
async fn a_new_row_does_not_overwrite_an_existing_one() {
    let (table, _) = table();
    let documents = table.rows::<Document>();
    assert!(documents.put(&document("first")).await.unwrap().is_done());
    assert!(documents.put(&document("second")).await.unwrap().is_refused());
    assert!(documents.put_new(&Document { version: 7, ..document("third") }).await.unwrap().is_refused());
    assert_eq!(documents.get(&document("").key()).await.unwrap().unwrap().title, "first");
}

#[tokio::test]
async fn a_save_sets_the_times_from_the_clock_of_the_table() {
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
async fn an_update_increments_the_version_and_sets_the_times() {
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
async fn only_the_version_that_was_read_is_deleted() {
    let (table, _) = table();
    let documents = table.rows::<Document>();
    let first = documents.put(&document("draft")).await.unwrap().done().unwrap();
    let second = documents.put(&first).await.unwrap().done().unwrap();
    assert!(documents.delete(&first).await.unwrap().is_refused());
    assert!(documents.delete(&document("never saved")).await.unwrap().is_refused());
    assert!(documents.delete(&second).await.unwrap().is_done());
    assert!(documents.delete_key(&second.key()).await.unwrap().is_done(), "deleting an absent row succeeds");
}

#[tokio::test]
async fn a_condition_is_added_to_that_of_the_version() {
    let (table, _) = table();
    let documents = table.rows::<Document>();
    let first = documents.put(&document("draft")).await.expect("a put").done().expect("a new row");
    assert!(documents.put(&first).await.expect("a put").is_done());
    // The condition is true, but the version is stale.
    let exists = || Document::PK.exists();
    assert!(documents.put(&first).when(exists()).await.expect("a put").is_refused());
    assert!(documents.delete(&first).when(exists()).await.expect("a delete").is_refused());
}

#[tokio::test]
async fn a_row_without_a_version_can_be_deleted() {
    let (table, _) = table();
    let key = Key::new("P", "S");
    let bare = Txn::from(Write::put(key.clone(), tabletheory::Item::new()));
    assert!(table.commit(&bare).await.expect("a put").is_done());
    let row = table.rows::<Versioned>().get(&key).await.expect("a get").expect("the row exists");
    assert_eq!(row.version, 0);
    assert!(table.rows().delete(&row).await.expect("a delete").is_done());
}

#[tokio::test]
async fn a_creation_time_of_zero_counts_as_absent() {
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
        let saved = table.rows().put(&row).await.expect("a put").done().expect("an unconditional save");
        assert_eq!(saved.created, after);
    }
}

#[tokio::test]
async fn a_model_without_a_version_replaces_any_row() {
    let (table, _) = table();
    let pages = table.rows::<CacheMetadata>();
    assert!(pages.put(&metadata()).await.unwrap().is_done());
    assert!(pages.put(&metadata()).await.unwrap().is_done());
    assert!(pages.put_new(&metadata()).await.unwrap().is_refused());
    assert!(pages.delete(&metadata()).await.unwrap().is_done());
}

#[tokio::test]
async fn a_version_that_no_longer_fits_in_its_field_is_an_error() {
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
    assert!(table.query_all(&newest, 0).await.is_err(), "a limit of 0 rows is invalid");
}

#[tokio::test]
async fn a_query_that_matches_rows_of_another_model_is_an_error() {
    let (table, _) = table();
    assert!(table.rows().put(&lease("t-1")).await.unwrap().is_done());
    let error = table.rows::<CacheMetadata>().query(&Query::of("CACHE#1")).await.unwrap_err();
    assert_eq!(error.to_string(), "CacheMetadata LOCK of CACHE#1: attribute `s3_key` is missing");
}

#[tokio::test]
async fn typed_rows_work_with_trait_objects_and_across_threads() {
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
async fn attributes_compare_and_set_values_in_their_stored_form() {
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
    assert_eq!(item.get("digest"), Some(&Value::B(vec![1, 2])), "stored as bytes");
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
    assert_eq!(rows.get(&key).await.expect("a readable row"), Some(second));
}

#[tokio::test]
async fn an_integer_version_of_zero_may_be_deleted_but_not_saved_over() {
    for stored in [Item::new(), Item::from([("version", Value::from(0))])] {
        let table = MemoryTable::new();
        let key = Key::new("p", "s");
        let put = Txn::from(Write::put(key.clone(), stored.clone()));
        assert!(table.commit(&put).await.expect("a put").is_done());
        let read = table.rows::<Versioned>().get(&key).await.expect("a get").expect("the row exists");
        // It looks like a row that was never read.
        assert!(table.rows().put(&read).await.expect("a put").is_refused());
        assert!(table.rows().delete(&read).await.expect("a delete").is_done());
        assert_eq!(table.rows().put(&read).await.expect("a put").done().expect("a new row").version, 1);
    }
}
