//! A repeated request is executed once: its record, `META` and `LOCK` change in one transaction.
#![expect(clippy::print_stdout, reason = "an example prints what happens")]

mod cache;

use cache::{CacheLease, CacheMetadata, CacheRequest, Outcome, expect, setup};
use tabletheory::{Commit, Key, Model as _, Result, Saved, Table, TableExt as _, Timestamp, Update};

/// Retention of a request's record.
const RETENTION_SECONDS: i64 = 86_400;

#[tokio::main]
async fn main() -> Outcome {
    let (table, key, now) = setup().await?;

    expect(start(&*table, &key, "hash-1", now).await? == Start::Started, "the request starts")?;
    println!("The request started.");
    expect(start(&*table, &key, "hash-1", now).await? == Start::InProgress, "a retry is in progress")?;
    println!("A retry is reported as in progress.");
    expect(start(&*table, &key, "hash-2", now).await? == Start::OtherInputs, "other inputs are rejected")?;
    println!("The same idempotency key with other inputs was rejected.");

    let lease = CacheLease::acquire(&*table, &key, now).await?;
    let lease = lease.done().ok_or("the lease is not free")?;
    let page = CacheMetadata::generated(&key, "pages/t1/abc.html", now);
    expect(finish(&*table, &page, &lease, now).await?.is_done(), "the page is published")?;
    println!("The page was published, the request completed and the lease released.");

    let again = start(&*table, &key, "hash-1", now).await?;
    expect(
        again == Start::Completed { body: Some(page.s3_key.clone()) },
        "a retry gets the recorded result",
    )?;
    println!("A retry got the recorded result, {}.", page.s3_key);

    let twice = finish(&*table, &page, &lease, now).await?;
    expect(twice.is_refused(), "the page is not published twice")?;
    println!("Publishing a second time was refused.");
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Start {
    /// The request is new.
    Started,
    /// The request is being executed.
    InProgress,
    /// The request was completed with this result.
    Completed { body: Option<String> },
    /// The request failed.
    Failed,
    /// The idempotency key was used with other inputs.
    OtherInputs,
}

fn request_key(key: &Key) -> Key {
    key.sibling("REQ#x-request-1")
}

/// Creates the request's record, or evaluates an existing one.
async fn start(table: &dyn Table, key: &Key, hash: &str, now: Timestamp) -> Result<Start> {
    let Key { pk, sk } = request_key(key);
    let request = CacheRequest {
        pk,
        sk,
        request_hash: hash.into(),
        status: "STARTED".into(),
        result_s3_key: None,
        ttl: now.seconds() + RETENTION_SECONDS,
    };
    let seen = match table.rows().put_new(&request).await? {
        Saved::Done(_) => return Ok(Start::Started),
        Saved::Refused { seen } => seen,
    };
    // The refusal contains the existing row, so no read is needed.
    let Some(earlier) = seen.map(CacheRequest::from_item).transpose()? else {
        return Ok(Start::InProgress);
    };
    if earlier.request_hash != hash {
        return Ok(Start::OtherInputs);
    }
    Ok(match earlier.status.as_str() {
        "COMPLETED" => Start::Completed { body: earlier.result_s3_key },
        "FAILED" => Start::Failed,
        _ => Start::InProgress,
    })
}

async fn finish(
    table: &dyn Table,
    page: &CacheMetadata,
    lease: &CacheLease,
    now: Timestamp,
) -> Result<Commit> {
    let completed = Update::new([
        CacheRequest::STATUS.set("COMPLETED"),
        CacheRequest::RESULT_S3_KEY.set(page.s3_key.as_str()),
    ]);
    table
        .transaction()
        .put(page)
        .update::<CacheRequest>(&request_key(&page.key()), completed)
        .when(CacheRequest::STATUS.is("STARTED"))
        .delete(lease)
        .when(lease.held_at(now))
        .commit()
        .await
}
