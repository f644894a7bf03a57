//! Rows that were damaged on purpose.

use tabletheory::Key;

use super::{Checker, short};
use crate::stats::Counter;
use crate::world::SimPage;

impl Checker {
    /// A row was damaged.
    pub(crate) fn row_damaged(&self, key: &Key) {
        let mut state = self.state();
        state.count(Counter::RowDamaged);
        state.note(format!("damaged {} {}", short(&key.pk), key.sk));
        state.rows.remove(key);
        state.damaged.insert(key.clone());
    }

    /// The intact rows with sort keys that start with this prefix.
    pub(crate) fn intact_rows(&self, prefix: &str) -> Vec<Key> {
        self.state().rows.keys().filter(|key| key.sk.starts_with(prefix)).cloned().collect()
    }

    /// Whether the row of a tag of this page is damaged, and nobody has replaced it.
    pub(crate) fn has_damaged_tag(&self, page: &SimPage) -> bool {
        let state = self.state();
        page.tags().iter().any(|tag| state.damaged.contains(&tag.key(Some(&page.tenant))))
    }
}
