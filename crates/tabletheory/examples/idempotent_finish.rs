//! A request that is repeated does its work once: its record, `META` and `LOCK` change in one transaction.
#![expect(clippy::print_stdout, reason = "an example tells what happens")]

mod cache;

use cache::{
    FaceTheoryCacheLease, FaceTheoryCacheMetadata, FaceTheoryRequest, Outcome, expect, open_table, some_page,
};
use tabletheory::{Commit, Key, Model as _, Saved, Table, TableExt as _, Timestamp, Update};

/// How long a request's record is kept at least.
const KEEP_SECONDS: i64 = 86_400;

#[tokio::main]
async fn main() -> Outcome {
    let table = open_table().await?;
    let key = some_page();
    let now = table.clock().now();

    expect(start(&*table, &key, "hash-1", now).await? == Start::Begun, "the request begins")?;
    println!("The request began.");
    expect(start(&*table, &key, "hash-1", now).await? == Start::InProgress, "a repetition waits")?;
    println!("A repetition was told that it is in progress.");
    expect(start(&*table, &key, "hash-2", now).await? == Start::OtherInputs, "other inputs are refused")?;
    println!("The same idempotency key with other inputs was refused.");

    let lease = FaceTheoryCacheLease::acquire(&*table, &key, now).await?;
    let lease = lease.done().ok_or("nobody else holds the lease")?;
    let body = "pages/t1/abc.html";
    expect(finish(&*table, &key, &lease, body, now).await?.is_done(), "the work is published")?;
    println!("The work was published, the request completed and the lease given back.");

    let again = start(&*table, &key, "hash-1", now).await?;
    expect(again == Start::Completed { body: Some(body.into()) }, "a repetition has the recorded result")?;
    println!("A repetition was given the recorded result, {body}.");

    let twice = finish(&*table, &key, &lease, "pages/t1/other.html", now).await?;
    expect(twice.is_refused(), "the work is not published twice")?;
    println!("Publishing it a second time was refused.");
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Start {
    /// Nobody has asked before: do the work.
    Begun,
    /// Somebody is at it.
    InProgress,
    /// It was done; this is its result.
    Completed { body: Option<String> },
    /// It was tried and failed.
    Failed,
    /// The key was used for something else: do nothing.
    OtherInputs,
}

fn request_key(key: &Key) -> Key {
    key.sibling("REQ#x-request-1")
}

/// Creates the request's record; where there is one already, what it says decides.
async fn start(table: &dyn Table, key: &Key, hash: &str, now: Timestamp) -> tabletheory::Result<Start> {
    let Key { pk, sk } = request_key(key);
    let request = FaceTheoryRequest {
        pk,
        sk,
        request_hash: hash.into(),
        status: "STARTED".into(),
        result_s3_key: None,
        ttl: now.seconds() + KEEP_SECONDS,
    };
    let seen = match table.rows().put_new(&request).await? {
        Saved::Done(_) => return Ok(Start::Begun),
        Saved::Refused { seen } => seen,
    };
    // The refusal shows the row that stood in the way; it needs no read.
    let Some(earlier) = seen.map(FaceTheoryRequest::from_item).transpose()? else {
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
    key: &Key,
    lease: &FaceTheoryCacheLease,
    body: &str,
    now: Timestamp,
) -> tabletheory::Result<Commit> {
    let completed =
        Update::new([FaceTheoryRequest::STATUS.set("COMPLETED"), FaceTheoryRequest::RESULT_S3_KEY.set(body)]);
    table
        .transaction()
        .put(&FaceTheoryCacheMetadata::generated(key, body, now))
        .update::<FaceTheoryRequest>(&request_key(key), completed)
        .when(FaceTheoryRequest::STATUS.is("STARTED"))
        .delete(lease)
        .when(lease.held_at(now))
        .commit()
        .await
}
