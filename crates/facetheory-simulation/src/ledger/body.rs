//! Bodies: which were stored, which a row names, and which got lost on purpose.

use bytes::Bytes;
use facetheory::protocol::{Meta, Version};
use sha2::{Digest as _, Sha256};

use super::{Ledger, State};
use crate::tally::Count;
use crate::violation::Invariant;

/// A body that was stored.
#[derive(Debug)]
pub(crate) struct Object {
    pub(super) bytes: Bytes,
    /// Whether it was lost or damaged on purpose.
    pub(super) broken: bool,
    pub(super) deleted: bool,
}

impl Ledger {
    /// The store has taken a body, whether or not its answer was heard.
    pub(crate) fn stored(&self, s3_key: &str, bytes: Bytes) {
        let mut state = self.state();
        state.count(Count::Stored);
        state.note(format!("stored {s3_key}"));
        let object = Object { bytes, broken: false, deleted: false };
        let again = state.objects.insert(s3_key.to_owned(), object).is_some();
        state.ensure(!again, Invariant::StaysReadable, || format!("{s3_key} was written again"));
    }

    /// A body was deleted by a worker.
    pub(crate) fn deleted(&self, s3_key: &str) {
        let mut state = self.state();
        state.note(format!("deleted {s3_key}"));
        if let Some(object) = state.objects.get_mut(s3_key) {
            object.deleted = true;
        }
        let is_named =
            |row: &tabletheory::Item| row.get("s3_key").and_then(|key| key.as_str()) == Some(s3_key);
        let named = state.rows.iter().find(|(_, row)| is_named(row)).map(|(key, _)| key.clone());
        state.ensure(named.is_none(), Invariant::NoMissingBody, || {
            format!("{s3_key} was deleted, and {named:?} names it")
        });
    }

    /// A body was lost or damaged on purpose.
    pub(crate) fn broke(&self, s3_key: &str, count: Count) {
        let mut state = self.state();
        state.count(count);
        state.note(format!("{count}: {s3_key}"));
        if let Some(object) = state.objects.get_mut(s3_key) {
            object.broken = true;
        }
    }

    /// The whole bodies that a `META` names, for misfortune to choose from.
    pub(crate) fn served_bodies(&self) -> Vec<String> {
        let state = self.state();
        let metas = state.rows.iter().filter(|(key, _)| key.sk == "META");
        let named = metas.filter_map(|(_, row)| Meta::read(row).ok()).map(|meta| meta.generation.s3_key);
        named.filter(|s3_key| state.objects.get(s3_key).is_some_and(|object| !object.broken)).collect()
    }

    /// Whether the body that a page's `META` names was lost or damaged.
    pub(crate) fn serves_broken(&self, pk: &str) -> bool {
        let state = self.state();
        let served = state.meta(pk).map(|meta| meta.generation.s3_key);
        served.and_then(|s3_key| state.objects.get(&s3_key)).is_some_and(|object| object.broken)
    }

    /// In the end every body that a row names is there, and those that are served are whole.
    pub(crate) fn check_all_bodies(&self) {
        let mut state = self.state();
        let read = |(key, row): (&tabletheory::Key, &tabletheory::Item)| match key.sk.as_str() {
            "META" => Meta::read(row).ok().map(|meta| (key.clone(), meta.generation)),
            sk if sk.starts_with("VER#") => {
                Version::read(row).ok().map(|version| (key.clone(), version.generation))
            }
            _ => None,
        };
        let named: Vec<_> = state.rows.iter().filter_map(read).collect();
        for (key, generation) in named {
            let object = state.objects.get(&generation.s3_key);
            let there = object.is_some_and(|object| !object.deleted);
            let healed = key.sk != "META" || object.is_some_and(|object| !object.broken);
            state.ensure(there, Invariant::NoMissingBody, || {
                format!("{key} names {}, which is gone", generation.s3_key)
            });
            state.ensure(healed, Invariant::NoMissingBody, || format!("{key} was not healed"));
        }
    }
}

impl State {
    /// What `META` has just begun to name must be there, with the digest that it tells.
    pub(super) fn check_named_body(&mut self, meta: &Meta) {
        let s3_key = &meta.generation.s3_key;
        let object = self.objects.get(s3_key);
        let there = object.is_some_and(|object| !object.deleted);
        let digest = object.map(|object| digest(&object.bytes));
        let right = digest.is_none() || digest == meta.generation.content.digest;
        self.ensure(there, Invariant::NoMissingBody, || format!("META names {s3_key}, which is not there"));
        self.ensure(right, Invariant::StaysReadable, || {
            format!("META tells another digest than that of {s3_key}")
        });
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}
