//! The table of a gateway, read while it runs or afterwards.

use std::path::Path;
use std::sync::Arc;

use facetheory::PageKey;
use facetheory::protocol::{Content, Generation, Meta};
use futures_util::future::{join, join_all};
use tabletheory::{
    Clock, Item, Scan, SqliteBlobs, SqliteSettings, SqliteTable, SystemClock, Table as _, Txn, Write,
};

use super::gateway::data;

/// The most writes of one transaction.
const MAX_WRITES: usize = 100;

/// The keys (`pk` and `sk`) of all rows of the gateway in this directory.
pub(crate) fn rows(directory: &Path) -> Vec<(String, String)> {
    let text = |item: &Item, name: &str| {
        item.get(name).and_then(|value| value.as_str().map(str::to_owned)).expect("a key")
    };
    items(directory).iter().map(|item| (text(item, "pk"), text(item, "sk"))).collect()
}

/// All rows of the gateway in this directory.
pub(crate) fn items(directory: &Path) -> Vec<Item> {
    let address = format!("sqlite:{}", data(directory).join("table.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let table = tabletheory::open(&address).await.expect("the table");
        let page = table.scan(&Scan::new()).await.expect("rows");
        assert!(
            page.next.is_none() && !page.items.is_empty(),
            "one page with all rows, and at least one row"
        );
        page.items
    })
}

/// Opens the file of small bodies of the gateway in this directory, by this clock.
pub(crate) fn open_blobs(directory: &Path, clock: Arc<dyn Clock>) -> SqliteBlobs {
    let path = data(directory).join("bodies/bodies.db");
    SqliteBlobs::open_with(path, &SqliteSettings::default(), clock).expect("the file of bodies")
}

/// The names of all small bodies of the gateway in this directory, in order.
pub(crate) fn blobs(directory: &Path) -> Vec<String> {
    /// More than any test stores.
    const MAX_BLOBS: u32 = 10_000;
    let blobs = open_blobs(directory, Arc::new(SystemClock));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listed = runtime.block_on(blobs.list("", None, MAX_BLOBS)).expect("a list");
    listed.into_iter().map(|blob| blob.name).collect()
}

/// Writes this many pages and their bodies into the store of the gateway in this directory, and reports how many are
/// written after each transaction.
pub(crate) fn fill(directory: &Path, pages: u64, filled: impl Fn(u64)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let settings = SqliteSettings::default().sweep(None);
    let file = data(directory).join("table.db");
    let table = SqliteTable::open_with(file, &settings, Arc::new(SystemClock)).expect("a table");
    let blobs = open_blobs(directory, Arc::new(SystemClock));
    let page = |number| PageKey::new(format!("/posts/{number}")).expect("a page");
    let body = |number| {
        format!("isr/{}/1700000000000-{number:032x}.html", &page(number).pk()["CACHE#".len()..][..24])
    };
    let put = |number| {
        let mut generation = Generation::new(body(number), 1_700_000_000, 60);
        let mut content = Content::default();
        content.status = Some(200);
        content.content_type = Some("text/html; charset=utf-8".into());
        content.digest = Some(format!("sha256:{number:064x}"));
        generation.content = content;
        Write::put(page(number).meta(), Meta::of(generation).to_item())
    };
    let numbers: Vec<u64> = (0..pages).collect();
    for some in numbers.chunks(MAX_WRITES) {
        let txn = Txn::new(some.iter().copied().map(put));
        // Concurrent writes share one commit.
        let bodies =
            some.iter().map(|number| async { blobs.create(&body(*number), "<h1>a page</h1>").await });
        let (committed, created) =
            runtime.block_on(async { join(table.commit(&txn), join_all(bodies)).await });
        assert!(committed.expect("a result").is_done());
        assert!(created.into_iter().all(|created| created.expect("a result")), "every body was new");
        filled(some[some.len() - 1] + 1);
    }
}
