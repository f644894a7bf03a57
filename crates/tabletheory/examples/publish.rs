//! Recipe A: acquire the lease, regenerate, then put `META` and delete `LOCK` in one transaction.
//!
//! DynamoDB rejects a transaction that names a row twice, so the lease is checked by the condition of its delete.
#![expect(clippy::print_stdout, reason = "an example prints what happens")]

mod cache;

use cache::{CacheLease, CacheMetadata, LEASE, Outcome, expect, setup};
use tabletheory::{Commit, Result, Table, TableExt as _, Timestamp};

#[tokio::main]
async fn main() -> Outcome {
    let (table, key, now) = setup().await?;

    // A slow writer acquires the lease, and has not published when it expires.
    let long_ago = now - 2 * LEASE;
    let slow = CacheLease::acquire(&*table, &key, long_ago).await?;
    let slow = slow.done().ok_or("the lease was not free")?;
    println!("A slow writer acquired the lease a minute ago; it has expired.");

    // Another writer takes it over, and a third one is refused.
    let fast = CacheLease::acquire(&*table, &key, now).await?;
    let fast = fast.done().ok_or("the lease had not expired")?;
    println!("A fast writer took it over.");
    let third = CacheLease::acquire(&*table, &key, now).await?;
    expect(third.is_refused(), "a third writer is refused")?;
    println!("A third writer was refused, because the lease is held.");

    let page = |body| CacheMetadata::generated(&key, body, now);
    let late = publish(&*table, &page("pages/t1/slow.html"), &slow, now).await?;
    expect(late.is_refused(), "the slow writer cannot publish")?;
    println!("The slow writer tried to publish and was refused.");

    let in_time = publish(&*table, &page("pages/t1/fast.html"), &fast, now).await?;
    expect(in_time.is_done(), "the holder of the lease publishes")?;
    let page = table.rows::<CacheMetadata>().get(&key).await?.ok_or("the page is missing")?;
    println!("The fast writer published {}.", page.s3_key);
    expect(page.s3_key == "pages/t1/fast.html", "the page of the fast writer")?;

    let lock = table.rows::<CacheLease>().get(&key.sibling("LOCK")).await?;
    expect(lock.is_none(), "publishing releases the lease")?;
    println!("Publishing released the lease.");
    Ok(())
}

async fn publish(
    table: &dyn Table,
    page: &CacheMetadata,
    lease: &CacheLease,
    now: Timestamp,
) -> Result<Commit> {
    table.transaction().put(page).delete(lease).when(lease.held_at(now)).commit().await
}
