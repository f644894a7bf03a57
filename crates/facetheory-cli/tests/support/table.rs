//! The table of a gateway, read beside it or after its end.

use std::path::Path;

use tabletheory::{Item, Scan};

use super::gateway::data;

/// The keys of all rows, `pk` and `sk`, of the gateway whose directory this is.
pub(crate) fn rows(directory: &Path) -> Vec<(String, String)> {
    let address = format!("sqlite:{}", data(directory).join("table.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let table = tabletheory::open(&address).await.expect("the table");
        let page = table.scan(&Scan::new()).await.expect("rows");
        assert!(page.next.is_none() && !page.items.is_empty(), "these are all rows, and there are some");
        let text = |item: &Item, name: &str| {
            item.get(name).and_then(|value| value.as_str().map(str::to_owned)).expect("a key")
        };
        page.items.iter().map(|item| (text(item, "pk"), text(item, "sk"))).collect()
    })
}
