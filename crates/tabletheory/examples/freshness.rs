//! Writes `META` with a `ttl`, reads it back, and checks its freshness, which does not depend on `ttl`.
#![expect(clippy::print_stdout, reason = "an example prints what happens")]

mod cache;

use std::time::Duration;

use cache::{CacheMetadata, Outcome, expect, setup};
use tabletheory::TableExt as _;

#[tokio::main]
async fn main() -> Outcome {
    let (table, key, now) = setup().await?;
    let pages = table.rows::<CacheMetadata>();

    // A put creates the row or replaces it.
    let first = CacheMetadata::generated(&key, "pages/t1/first.html", now);
    expect(pages.put(&first).await?.is_done(), "the page is created")?;
    let second = CacheMetadata::generated(&key, "pages/t1/second.html", now);
    expect(pages.put(&second).await?.is_done(), "the page is replaced")?;

    let page = pages.get(&key).await?.ok_or("the page was just put")?;
    println!("The page's body is {}.", page.s3_key);
    expect(page == second, "the page is read as it was written")?;

    let later = now + Duration::from_secs(61);
    println!("Now it is {}.", if page.is_fresh(now) { "fresh" } else { "stale" });
    println!("A minute later it is {}.", if page.is_fresh(later) { "fresh" } else { "stale" });
    expect(page.is_fresh(now) && !page.is_fresh(later), "the page is fresh for a minute")
}
