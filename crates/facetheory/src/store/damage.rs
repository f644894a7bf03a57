//! Reports damaged rows, once each. What a damaged row counts as is decided where rows are read.

use metrics::counter;
use quick_cache::sync::Cache;
use tabletheory::{Item, Key, Txn};

/// The most rows that are remembered as reported.
const MAX_REPORTED: usize = 10_000;

/// Logs and counts damaged rows when they are read.
#[derive(Debug)]
pub(super) struct DamageReports {
    reported: Cache<Key, ()>,
}

impl DamageReports {
    pub(super) fn new() -> Self {
        DamageReports { reported: Cache::new(MAX_REPORTED) }
    }

    /// Reports the damaged ones of these rows.
    pub(super) fn report<'i>(&self, rows: impl IntoIterator<Item = &'i Item>) {
        for row in rows.into_iter().filter(|row| row.is_damaged()) {
            let Ok(key) = row.key() else { continue };
            if self.reported.get(&key).is_some() {
                continue;
            }
            let role = role(&key.sk);
            counter!("facetheory_damaged_rows_total", "row" => role).increment(1);
            tracing::error!(%key, row = role, "a row of the table is damaged: {}", meaning(role));
            self.reported.insert(key, ());
        }
    }

    /// Forgets rows that were written again: if they are damaged again, they are reported again.
    pub(super) fn forget(&self, written: &Txn) {
        if !self.reported.is_empty() {
            written.writes().iter().for_each(|write| drop(self.reported.remove(write.key())));
        }
    }
}

/// The kind of row with this sort key.
fn role(sk: &str) -> &'static str {
    match sk {
        "META" => "META",
        "LOCK" => "LOCK",
        "TAG" => "TAG",
        _ if sk.starts_with("VER#") => "VER#",
        _ if sk.starts_with("REQ#") => "REQ#",
        _ => "other",
    }
}

fn meaning(role: &str) -> &'static str {
    match role {
        "META" => "the page counts as missing, and its next render writes the row again",
        "LOCK" => "the lease counts as free, and the next render of the page writes the row again",
        "TAG" => "the tag counts as invalidated now, and the row is written again",
        "VER#" => "the version counts as deleted",
        "REQ#" => "the request counts as new",
        _ => "it counts as missing",
    }
}
