//! Recipe B: every version is a separate row, and `META` points to the current one.
#![expect(clippy::print_stdout, reason = "an example prints what happens")]

mod cache;

use cache::{CacheLease, CacheMetadata, CachePointer, Outcome, expect, setup};
use tabletheory::{Commit, Model as _, Query, Result, Table, TableExt as _, Timestamp, Update};

#[tokio::main]
async fn main() -> Outcome {
    let (table, key, now) = setup().await?;
    let pointers = table.rows::<CachePointer>();

    let version =
        |id| CacheMetadata::generated(&key.sibling(format!("VER#{id}")), &format!("pages/t1/{id}.html"), now);
    for id in ["01", "02"] {
        let seen = pointers.get(&key).await?;
        let lease = CacheLease::acquire(&*table, &key, now).await?;
        let lease = lease.done().ok_or("the lease is not free")?;
        let swap = swap(&*table, &version(id), seen.as_ref(), &lease, now).await?;
        expect(swap.is_done(), "the holder of the lease publishes")?;
        println!("Published version {id}.");
    }

    let pointer = pointers.get(&key).await?.ok_or("the page is missing")?;
    println!("META points to {} and has version {}.", pointer.current_sk, pointer.version);
    expect(pointer.current_sk == "VER#02" && pointer.version == 2, "META points to the second version")?;

    // A reader that knows only recipe A reads the same row.
    let page = table.rows::<CacheMetadata>().get(&key).await?.ok_or("the page is missing")?;
    expect(page.s3_key == "pages/t1/02.html", "META repeats the attributes of the version")?;

    // A writer that read META before the second publication is refused, even if it holds the lease.
    let stale = CachePointer { version: 1, ..pointer };
    let lease = CacheLease::acquire(&*table, &key, now).await?;
    let lease = lease.done().ok_or("the lease is not free")?;
    let refused = swap(&*table, &version("03"), Some(&stale), &lease, now).await?;
    expect(refused.is_refused(), "a writer that read an older META is refused")?;
    println!("A writer that had read version 1 of META was refused.");

    let newest_first = Query::of(key.pk.as_str()).begins_with("VER#").backward();
    let versions = table.rows::<CacheMetadata>().query(&newest_first).await?.items;
    let sort_keys: Vec<&str> = versions.iter().map(|version| version.sk.as_str()).collect();
    println!("The versions are {}.", sort_keys.join(" and "));
    expect(sort_keys == ["VER#02", "VER#01"], "both versions exist, and the refused one does not")
}

/// Adds a version, points `META` to it and releases the lease, or changes nothing.
async fn swap(
    table: &dyn Table,
    version: &CacheMetadata,
    seen: Option<&CachePointer>,
    lease: &CacheLease,
    now: Timestamp,
) -> Result<Commit> {
    // The transaction increments the version of META.
    let update = Update::new([
        CachePointer::CURRENT_SK.set(version.sk.as_str()),
        CacheMetadata::S3_KEY.set(version.s3_key.as_str()),
        CacheMetadata::GENERATED_AT.set(version.generated_at),
        CacheMetadata::REVALIDATE_SECONDS.set(version.revalidate_seconds),
        match &version.etag {
            Some(etag) => CacheMetadata::ETAG.set(etag.as_str()),
            None => CacheMetadata::ETAG.remove(),
        },
    ]);
    let unchanged = match seen {
        Some(pointer) => CachePointer::VERSION.is(pointer.version),
        None => CachePointer::PK.absent(),
    };
    table
        .transaction()
        .put_new(version)
        .update::<CachePointer>(&version.key().sibling("META"), update)
        .when(unchanged)
        .delete(lease)
        .when(lease.held_at(now))
        .commit()
        .await
}
