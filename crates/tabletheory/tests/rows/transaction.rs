//! Transactions of typed rows.

use super::*;

#[tokio::test]
async fn publishing_and_releasing_the_lease_are_atomic() {
    let (table, _) = table();
    assert!(table.rows().put(&lease("mine")).await.unwrap().is_done());
    let publish = |token: &str| {
        let held = CacheLease::LEASE_TOKEN.is(token).and(CacheLease::LEASE_EXPIRES_AT.gt(NOW));
        table.transaction().put(&metadata()).delete(&lease(token)).when(held)
    };
    let Commit::Refused { index, seen } = publish("other").commit().await.unwrap() else {
        panic!("another token");
    };
    assert_eq!((index, seen), (1, Some(lease("mine").to_item().unwrap())));
    assert_eq!(table.rows::<CacheMetadata>().get(&metadata().key()).await.unwrap(), None);

    assert!(publish("mine").commit().await.unwrap().is_done());
    assert_eq!(table.rows::<CacheLease>().get(&lease("").key()).await.unwrap(), None);
}

#[tokio::test]
async fn a_transaction_maintains_versions_and_times_of_all_models() {
    let (table, clock) = table();
    let old =
        table.rows().put(&Document { sk: "OLD".into(), ..document("old") }).await.unwrap().done().unwrap();
    let gone =
        table.rows().put(&Document { sk: "GONE".into(), ..document("gone") }).await.unwrap().done().unwrap();
    let transaction = table.transaction();
    // All rows get the time at which the transaction was created.
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
    assert!(table.transaction().put(&old).commit().await.unwrap().is_refused(), "the version is stale");
}

#[tokio::test]
async fn the_first_error_of_a_transaction_is_returned_and_nothing_is_written() {
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

    // Of several errors, the first is returned.
    let raise = || Update::new([Document::VERSION.set(9)]);
    let error = table
        .transaction()
        .update::<Document>(&Key::new("DOC#1", "A"), raise())
        .update::<Document>(&Key::new("DOC#1", "B"), raise())
        .build()
        .expect_err("updates of a version");
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
async fn a_transaction_with_a_token_can_be_committed_again() {
    let (table, _) = table();
    let attempt = table.transaction().put_new(&metadata()).token(ClientToken::new("attempt-1").unwrap());
    let txn = attempt.build().unwrap();
    assert!(table.commit(&txn).await.unwrap().is_done());
    assert!(table.commit(&txn).await.unwrap().is_done(), "the same token");
    assert!(table.transaction().put_new(&metadata()).commit().await.unwrap().is_refused());
}
