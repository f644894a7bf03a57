//! Recipe B: every generation is a row of its own, and `META` points at the current one.
#![expect(clippy::print_stdout, reason = "an example tells what happens")]

mod cache;

use cache::{
    FaceTheoryCacheLease, FaceTheoryCacheMetadata, FaceTheoryCachePointer, FaceTheoryCacheVersion, Outcome,
    expect, open_table, some_page,
};
use tabletheory::{Commit, Key, Query, Table, TableExt as _, Timestamp, Update};

#[tokio::main]
async fn main() -> Outcome {
    let table = open_table().await?;
    let key = some_page();
    let now = table.clock().now();
    let pointers = table.rows::<FaceTheoryCachePointer>();

    for id in ["01", "02"] {
        let seen = pointers.get(&key).await?;
        let lease = FaceTheoryCacheLease::acquire(&*table, &key, now).await?;
        let lease = lease.done().ok_or("nobody else holds the lease")?;
        let swap = swap(&*table, &key, &lease, id, seen.as_ref(), now).await?;
        expect(swap.is_done(), "the holder of the lease swaps the pointer")?;
        println!("Published version {id}.");
    }

    let pointer = pointers.get(&key).await?.ok_or("the page was just published")?;
    println!("META points at {}, in its version {}.", pointer.current_sk, pointer.version);
    expect(pointer.current_sk == "VER#02" && pointer.version == 2, "META points at the second version")?;

    // A reader that knows only the first recipe reads the same row.
    let page = table.rows::<FaceTheoryCacheMetadata>().get(&key).await?.ok_or("the page is there")?;
    expect(page.s3_key == "pages/t1/02.html", "META repeats what the version says")?;

    // A writer that read META before the second publication is stale, even with a lease of its own.
    let stale = FaceTheoryCachePointer { version: 1, ..pointer };
    let lease = FaceTheoryCacheLease::acquire(&*table, &key, now).await?;
    let lease = lease.done().ok_or("nobody else holds the lease")?;
    let refused = swap(&*table, &key, &lease, "03", Some(&stale), now).await?;
    expect(refused.is_refused(), "a writer that read an older META is refused")?;
    println!("A writer that had read META in its version 1 was refused.");

    let newest_first = Query::of(key.pk.as_str()).begins_with("VER#").backward();
    let versions = table.rows::<FaceTheoryCacheVersion>().query(&newest_first).await?.items;
    let kept: Vec<&str> = versions.iter().map(|version| version.sk.as_str()).collect();
    println!("The versions are {}.", kept.join(" and "));
    expect(kept == ["VER#02", "VER#01"], "both versions are kept, and the refused one is not there")
}

/// Adds a version, points `META` at it and gives the lease back; or changes nothing.
async fn swap(
    table: &dyn Table,
    key: &Key,
    lease: &FaceTheoryCacheLease,
    id: &str,
    seen: Option<&FaceTheoryCachePointer>,
    now: Timestamp,
) -> tabletheory::Result<Commit> {
    let version = FaceTheoryCacheVersion {
        pk: key.pk.clone(),
        sk: format!("VER#{id}"),
        s3_key: format!("pages/t1/{id}.html"),
        generated_at: now.seconds(),
        revalidate_seconds: 60,
        etag: None,
        ttl: None,
    };
    // The version of META is raised by itself.
    let point = Update::new([
        FaceTheoryCachePointer::CURRENT_SK.set(version.sk.as_str()),
        FaceTheoryCachePointer::S3_KEY.set(version.s3_key.as_str()),
        FaceTheoryCachePointer::GENERATED_AT.set(version.generated_at),
        FaceTheoryCachePointer::REVALIDATE_SECONDS.set(version.revalidate_seconds),
        // This version has no ETag, so that of the one before must go.
        FaceTheoryCachePointer::ETAG.remove(),
    ]);
    let unchanged = match seen {
        Some(pointer) => FaceTheoryCachePointer::VERSION.is(pointer.version),
        None => FaceTheoryCachePointer::PK.absent(),
    };
    table
        .transaction()
        .put_new(&version)
        .update::<FaceTheoryCachePointer>(key, point)
        .when(unchanged)
        .delete(lease)
        .when(lease.held_at(now))
        .commit()
        .await
}
