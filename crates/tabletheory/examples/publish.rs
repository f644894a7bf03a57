//! Recipe A: take the lease, regenerate, then publish `META` and give back `LOCK` in one transaction.
//!
//! DynamoDB refuses a transaction that names a row twice, so the check of the lease rides on its delete.
#![expect(clippy::print_stdout, reason = "an example tells what happens")]

mod cache;

use cache::{FaceTheoryCacheLease, FaceTheoryCacheMetadata, LEASE, Outcome, expect, open_table, some_page};
use tabletheory::{Commit, Key, Table, TableExt as _, Timestamp};

#[tokio::main]
async fn main() -> Outcome {
    let table = open_table().await?;
    let key = some_page();
    let now = table.clock().now();

    // A slow writer takes the lease, and has not published when it expires.
    let long_ago = now - 2 * LEASE;
    let slow = FaceTheoryCacheLease::acquire(&*table, &key, long_ago).await?;
    let slow = slow.done().ok_or("nobody held the lease")?;
    println!("A slow writer took the lease a minute ago; it has expired.");

    // So a quick writer gets it, and a third one does not.
    let quick = FaceTheoryCacheLease::acquire(&*table, &key, now).await?;
    let quick = quick.done().ok_or("the lease had expired")?;
    println!("A quick writer took it over.");
    let third = FaceTheoryCacheLease::acquire(&*table, &key, now).await?;
    expect(third.is_refused(), "a third writer is told that the lease is held")?;
    println!("A third writer was told that it is held.");

    let late = publish(&*table, &key, &slow, "pages/t1/slow.html", now).await?;
    expect(late.is_refused(), "the slow writer cannot publish")?;
    println!("The slow writer tried to publish and was refused.");

    let in_time = publish(&*table, &key, &quick, "pages/t1/quick.html", now).await?;
    expect(in_time.is_done(), "the holder of the lease publishes")?;
    let page =
        table.rows::<FaceTheoryCacheMetadata>().get(&key).await?.ok_or("the page was just published")?;
    println!("The quick writer published {}.", page.s3_key);
    expect(page.s3_key == "pages/t1/quick.html", "the page is the quick writer's")?;

    let lock = table.rows::<FaceTheoryCacheLease>().get(&key.sibling("LOCK")).await?;
    expect(lock.is_none(), "the lease is given back by publishing")?;
    println!("The lease was given back with it.");
    Ok(())
}

async fn publish(
    table: &dyn Table,
    key: &Key,
    lease: &FaceTheoryCacheLease,
    body: &str,
    now: Timestamp,
) -> tabletheory::Result<Commit> {
    table
        .transaction()
        .put(&FaceTheoryCacheMetadata::generated(key, body, now))
        .delete(lease)
        .when(lease.held_at(now))
        .commit()
        .await
}
