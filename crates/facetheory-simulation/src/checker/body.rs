//! Bodies: which were stored, which rows refer to them, and which were damaged on purpose.

use bytes::Bytes;
use facetheory::protocol::{Meta, Version};
use sha2::{Digest as _, Sha256};

use super::{Checker, State};
use crate::stats::Counter;
use crate::violation::Invariant;

/// How long a process may use the metadata that it has read: `metadata_max_age`, and the timeouts of the table and of bodies.
pub(crate) const READER_MILLIS: i64 = 1000 + 2000 + 10_000;

/// A body that was stored.
#[derive(Debug)]
pub(crate) struct Object {
    pub(super) bytes: Bytes,
    /// Whether it was deleted or changed on purpose.
    pub(super) damaged: bool,
    pub(super) deleted: bool,
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

impl Checker {
    /// The store has written a body, whether or not the caller got the response.
    pub(crate) fn stored(&self, s3_key: &str, bytes: Bytes) {
        let mut state = self.state();
        state.count(Counter::Stored);
        state.note(format!("stored {s3_key}"));
        let object = Object { bytes, damaged: false, deleted: false };
        let overwritten = state.objects.insert(s3_key.to_owned(), object).is_some();
        state.ensure(!overwritten, Invariant::StaysReadable, || format!("{s3_key} was overwritten"));
    }

    /// A worker has deleted a body.
    pub(crate) fn deleted(&self, s3_key: &str) {
        let mut state = self.state();
        state.note(format!("deleted {s3_key}"));
        if let Some(object) = state.objects.get_mut(s3_key) {
            object.deleted = true;
        }
        let refers = |row: &tabletheory::Item| row.get("s3_key").and_then(|key| key.as_str()) == Some(s3_key);
        let row = state.rows.iter().find(|(_, row)| refers(row)).map(|(key, _)| key.clone());
        state.ensure(row.is_none(), Invariant::NoMissingBody, || {
            format!("{s3_key} was deleted although {row:?} refers to it")
        });
        // Workers delete the bodies of versions at once, and their readers render a page whose body is missing.
        if let Some(replaced) = state.replaced_millis.get(s3_key).filter(|_| state.clients.has_renders()) {
            let retained = state.elapsed_millis - replaced;
            state.count(Counter::DeletedReplaced);
            state.ensure(retained >= READER_MILLIS, Invariant::RetainedForReaders, || {
                format!("{s3_key} was deleted {retained} ms after it was replaced")
            });
        }
    }

    /// A body was deleted or changed on purpose.
    pub(crate) fn body_damaged(&self, s3_key: &str, counter: Counter) {
        let mut state = self.state();
        state.count(counter);
        state.note(format!("{counter}: {s3_key}"));
        if let Some(object) = state.objects.get_mut(s3_key) {
            object.damaged = true;
        }
    }

    /// The intact bodies of current pages.
    pub(crate) fn served_bodies(&self) -> Vec<String> {
        let state = self.state();
        let metas = state.rows.iter().filter(|(key, _)| key.sk == "META");
        let named = metas.filter_map(|(_, row)| Meta::read(row).ok()).map(|meta| meta.generation.s3_key);
        named.filter(|s3_key| state.objects.get(s3_key).is_some_and(|object| !object.damaged)).collect()
    }

    /// Whether the current body of a page was damaged.
    pub(crate) fn serves_damaged(&self, pk: &str) -> bool {
        let state = self.state();
        let served = state.meta(pk).map(|meta| meta.generation.s3_key);
        served.and_then(|s3_key| state.objects.get(&s3_key)).is_some_and(|object| object.damaged)
    }

    /// At the end, every body that a row refers to exists, and the bodies of current pages are intact.
    pub(crate) fn check_all_bodies(&self) {
        let mut state = self.state();
        let read = |(key, row): (&tabletheory::Key, &tabletheory::Item)| match key.sk.as_str() {
            "META" => Meta::read(row).ok().map(|meta| (key.clone(), meta.generation)),
            sk if sk.starts_with("VER#") => {
                Version::read(row).ok().map(|version| (key.clone(), version.generation))
            }
            _ => None,
        };
        let referenced: Vec<_> = state.rows.iter().filter_map(read).collect();
        for (key, generation) in referenced {
            let object = state.objects.get(&generation.s3_key);
            let exists = object.is_some_and(|object| !object.deleted);
            let intact = key.sk != "META" || object.is_some_and(|object| !object.damaged);
            state.ensure(exists, Invariant::NoMissingBody, || {
                format!("{key} refers to {}, which does not exist", generation.s3_key)
            });
            state.ensure(intact, Invariant::NoMissingBody, || format!("the body of {key} was not replaced"));
        }
    }
}

impl State {
    /// A body that `META` has just begun to refer to must exist and match its digest.
    pub(super) fn check_current_body(&mut self, meta: &Meta) {
        let s3_key = &meta.generation.s3_key;
        let object = self.objects.get(s3_key);
        let exists = object.is_some_and(|object| !object.deleted);
        let digest = object.map(|object| digest(&object.bytes));
        let right = digest.is_none() || digest == meta.generation.content.digest;
        self.ensure(exists, Invariant::NoMissingBody, || {
            format!("META refers to {s3_key}, which does not exist")
        });
        self.ensure(right, Invariant::StaysReadable, || format!("META has another digest than {s3_key}"));
    }
}
