//! Rows of the table, one after the other: what they name, and which versions are past the retention.

use std::collections::VecDeque;

use tabletheory::{Item, Key, Value};

use super::live_set::References;
use crate::error::{Error, Result};
use crate::protocol::attribute as name;
use crate::protocol::key::sha256_hex;
use crate::protocol::retention::Retention;
use crate::protocol::row::Reader;

/// How many pages at most a partition key is taken to be of, where it is not hashed and its prefix is not known.
const MOST_READINGS: usize = 8;

/// What the rows so far have told, in memory that does not grow with them.
///
/// Rows of a partition come together and in the order of their sort keys: `LOCK`, `META`, `REQ#`, then `VER#` from
/// the oldest to the newest. So the versions that may yet be past the retention are the last few.
pub(super) struct Rows {
    /// What must stay.
    pub(super) references: References,
    /// How many rows cannot be read.
    pub(super) damaged: u64,
    retention: Option<Retention>,
    partition: Partition,
    superfluous: Vec<Superfluous>,
}

/// A version that is past the retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superfluous {
    /// The row that must not point at it.
    pub(super) meta: Key,
    pub(super) sk: String,
    /// The body that it names.
    pub(super) s3_key: String,
}

/// The partition that is being read.
#[derive(Default)]
struct Partition {
    pk: String,
    /// The version that is served.
    current_sk: Option<String>,
    /// Whether `META` cannot be read, so that any version may be the one that is served.
    frozen: bool,
    /// The newest versions so far, at most as many as are retained; none for one that is too old in any case.
    newest: VecDeque<Option<Superfluous>>,
}

impl Rows {
    pub(super) fn new(references: References, retention: Option<Retention>) -> Self {
        let (partition, superfluous) = (Partition::default(), Vec::new());
        Rows { references, damaged: 0, retention, partition, superfluous }
    }

    /// Takes note of the next row.
    pub(super) fn note(&mut self, item: &Item) -> Result<()> {
        let Key { pk, sk } = item.key()?;
        if pk != self.partition.pk {
            self.finish();
            self.partition = Partition { pk, ..Partition::default() };
        }
        let (is_meta, is_version) = (sk == "META", sk.starts_with("VER#"));
        if sk == "LOCK" {
            // Whoever holds it, or held it and is late, may be about to publish a body of this page.
            self.protect_page();
        }
        let s3_key = reference(item, name::S3_KEY.name());
        // A request has a result when it is done, and rows of other kinds need not name anything.
        let whole = match s3_key {
            Reference::To(_) => true,
            Reference::None => !is_meta && !is_version,
            Reference::Damaged => false,
        };
        let result = reference(item, name::RESULT_S3_KEY.name());
        if !whole || result == Reference::Damaged {
            self.damaged += 1;
            if !self.protect_page() {
                return Err(Error::corrupt(format!(
                    "the row {sk} of {} is damaged, and it cannot be told which body it names, so no body was \
                     deleted; repair or delete the row",
                    self.partition.pk
                )));
            }
        }
        if is_meta {
            match item.get(name::CURRENT_SK.name()) {
                Some(Value::S(current_sk)) => self.partition.current_sk = Some(current_sk.clone()),
                None => {}
                Some(_) => self.partition.frozen = true,
            }
            self.partition.frozen |= !whole;
        }
        if let Reference::To(s3_key) = result {
            self.references.insert(file_of(s3_key));
        }
        if let Reference::To(s3_key) = s3_key {
            match self.retention {
                Some(retention) if is_version => self.note_version(sk, s3_key, item, retention),
                _ => self.references.insert(file_of(s3_key)),
            }
        }
        Ok(())
    }

    /// The same decision as [`Retention::superfluous`], from the oldest to the newest and one by one.
    fn note_version(&mut self, sk: String, s3_key: &str, item: &Item, retention: Retention) {
        if self.partition.frozen || self.partition.current_sk.as_deref() == Some(sk.as_str()) {
            return self.references.insert(file_of(s3_key));
        }
        let meta = Key::new(self.partition.pk.as_str(), "META");
        let version = Superfluous { meta, sk, s3_key: s3_key.to_owned() };
        // One whose time cannot be read is not taken to be old.
        let generated_at = Reader::of("VER#", item).optional_seconds(&name::GENERATED_AT);
        let is_old = retention.oldest.zip(generated_at).is_some_and(|(oldest, at)| at < oldest);
        // It has its place among the newest in any case.
        self.partition.newest.push_back(if is_old {
            self.superfluous.push(version);
            None
        } else {
            Some(version)
        });
        if self.partition.newest.len() > retention.versions {
            self.superfluous.extend(self.partition.newest.pop_front().flatten());
        }
    }

    /// The versions that were found to be past the retention since the last call; nothing of theirs is protected.
    pub(super) fn take_superfluous(&mut self) -> Vec<Superfluous> {
        std::mem::take(&mut self.superfluous)
    }

    /// A version stays, and so does its body.
    pub(super) fn keep(&mut self, version: &Superfluous) {
        self.references.insert(file_of(&version.s3_key));
    }

    /// There are no more rows of this partition: the versions that are left stay.
    pub(super) fn finish(&mut self) {
        for version in std::mem::take(&mut self.partition.newest).into_iter().flatten() {
            self.keep(&version);
        }
    }

    /// Keeps every body of the page whose rows these are. False if it cannot be told which page it is.
    fn protect_page(&mut self) -> bool {
        let pk = &self.partition.pk;
        let digits = pk.rsplit('#').next().unwrap_or_default();
        let hashed = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if hashed {
            self.references.insert(&digits[..PAGE_DIGITS]);
        }
        // A key that is not hashed stands behind a prefix that is not known, but for the `#` at its end.
        let readings = pk.match_indices('#').take(MOST_READINGS).map(|(place, _)| &pk[place + 1..]);
        let mut told = hashed;
        for cache_key in readings {
            self.references.insert(&sha256_hex(cache_key.as_bytes())[..PAGE_DIGITS]);
            told = true;
        }
        told
    }
}

/// How many hexadecimal digits of a page's hash are in the names of its bodies.
const PAGE_DIGITS: usize = 24;

/// What an attribute names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reference<'i> {
    None,
    To(&'i str),
    /// Something, but nobody knows what.
    Damaged,
}

fn reference<'i>(item: &'i Item, attribute: &str) -> Reference<'i> {
    match item.get(attribute) {
        None => Reference::None,
        Some(Value::S(s3_key)) if !s3_key.is_empty() => Reference::To(s3_key),
        Some(_) => Reference::Damaged,
    }
}

/// The part of a key that no other body has. Rows of other languages may spell the rest in other ways, such as
/// `s3://bucket/key`, and that must not matter.
fn file_of(s3_key: &str) -> &str {
    let path = s3_key.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::generation::Generation;
    use crate::protocol::key::PageKey;
    use crate::protocol::row::{Meta, Version};
    use proptest::prelude::*;
    use tabletheory::SeededRandom;

    fn rows(retention: Option<Retention>) -> Rows {
        Rows::new(References::new(4096, &SeededRandom::new(1)), retention)
    }

    fn row(pk: &str, sk: &str, item: &Item) -> Item {
        let mut item = item.clone();
        item.set("pk", pk);
        item.set("sk", sk);
        item
    }

    proptest! {
        #[test]
        fn versions_one_by_one_fare_as_all_at_once(
            times in proptest::collection::vec(0_i64..20, 0..12),
            current in 0_usize..14,
            versions in 0_usize..6,
            oldest in proptest::option::of(0_i64..20),
        ) {
            let retention = Retention { versions, oldest };
            let all: Vec<(String, Version)> = times
                .iter()
                .enumerate()
                .map(|(index, at)| {
                    let generation = Generation::new(format!("isr/{index}"), *at, 60);
                    (format!("VER#{index:02}"), Version { generation, ttl: None })
                })
                .collect();
            let current_sk = all.get(current).map(|(sk, _)| sk.as_str());
            let newest_first: Vec<_> = all.iter().rev().cloned().collect();
            let mut expected = retention.superfluous(&newest_first, current_sk);
            expected.sort_unstable();

            let mut rows = rows(Some(retention));
            let mut meta = Meta::of(Generation::new("isr/meta", 1, 60));
            meta.current_sk = current_sk.map(str::to_owned);
            rows.note(&row("CACHE#1", "META", &meta.to_item())).expect("a row");
            for (sk, version) in &all {
                rows.note(&row("CACHE#1", sk, &version.to_item())).expect("a row");
                prop_assert!(rows.partition.newest.len() <= versions, "memory is bounded");
            }
            let mut superfluous = rows.take_superfluous();
            superfluous.sort_unstable_by(|one, other| one.sk.cmp(&other.sk));
            prop_assert_eq!(superfluous.iter().map(|version| version.sk.as_str()).collect::<Vec<_>>(), expected);
            rows.finish();
            for (index, (sk, _)) in all.iter().enumerate() {
                let goes = superfluous.iter().any(|version| version.sk == *sk);
                prop_assert_eq!(rows.references.may_contain(&index.to_string()), !goes, "{}", sk);
            }
        }
    }

    #[test]
    fn a_key_is_known_however_it_is_spelt() {
        for spelt in
            ["isr/1/x.html", "s3://bucket/isr/1/x.html", "/isr/1/x.html", "x.html", "isr/1/x.html?v=1"]
        {
            let mut rows = rows(None);
            let request = Item::from([("result_s3_key", spelt.into())]);
            rows.note(&row("CACHE#1", "REQ#1", &request)).expect("a row");
            assert!(rows.references.may_contain("x.html"), "{spelt}");
        }
    }

    #[test]
    fn the_bodies_of_a_page_are_protected_under_every_scheme_of_keys() {
        let tenant = crate::Tenant::new("acme").expect("a tenant");
        let raw = crate::KeyScheme::raw("PAGE#").expect("a prefix");
        for page in [
            PageKey::new("/a#b").expect("a page"),
            crate::KeyScheme::Hashed.page(Some(&tenant), "/a#b").expect("a page"),
            raw.page(None, "/a#b").expect("a page"),
            raw.page(Some(&tenant), "/a#b").expect("a page"),
        ] {
            let mut rows = rows(None);
            rows.note(&row(page.pk(), "LOCK", &Item::new())).expect("a row");
            let directory = &sha256_hex(b"/a#b")[..PAGE_DIGITS];
            assert!(rows.references.may_contain(directory), "{}", page.pk());
            assert!(!rows.references.may_contain(&sha256_hex(b"/b")[..PAGE_DIGITS]), "{}", page.pk());
        }
    }

    #[test]
    fn a_damaged_row_protects_its_page_or_ends_the_collection() {
        let damaged = [
            ("META", Item::new()),
            ("META", Item::from([("s3_key", 7.into())])),
            ("META", Item::from([("s3_key", "".into())])),
            ("VER#1", Item::new()),
            ("REQ#1", Item::from([("result_s3_key", 7.into())])),
        ];
        for (sk, item) in damaged {
            let mut rows = rows(None);
            rows.note(&row("CACHE#/a", sk, &item)).expect("its page can be told");
            assert_eq!(rows.damaged, 1, "{sk}");
            assert!(rows.references.may_contain(&sha256_hex(b"/a")[..PAGE_DIGITS]), "{sk}");
            let error = rows.note(&row("nobody knows", sk, &item)).expect_err("its page cannot be told");
            assert_eq!(error.kind(), crate::Kind::Corrupt, "{sk}");
        }
        let mut rows = rows(None);
        rows.note(&row("TAG#news", "TAG", &Item::new())).expect("a row");
        rows.note(&row("CACHE#1", "REQ#1", &Item::new())).expect("a row");
        rows.note(&row("elsewhere", "thing", &Item::new())).expect("a row");
        assert_eq!(rows.damaged, 0, "rows that need not name anything are whole");
    }

    #[test]
    fn versions_stay_where_the_pointer_cannot_be_read() {
        for broken in [
            Item::from([("s3_key", "isr/meta".into()), ("current_sk", 7.into())]),
            Item::from([("current_sk", "VER#2".into())]),
        ] {
            let mut rows = rows(Some(Retention { versions: 0, oldest: None }));
            rows.note(&row("CACHE#1", "META", &broken)).expect("a row");
            let version = Version { generation: Generation::new("isr/1", 1, 60), ttl: None };
            rows.note(&row("CACHE#1", "VER#1", &version.to_item())).expect("a row");
            assert_eq!(rows.take_superfluous(), []);
            assert!(rows.references.may_contain("1"));
        }
    }
}
