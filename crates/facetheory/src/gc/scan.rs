//! Reads the rows of the table, one after the other: to which bodies they refer, and which versions are not retained.

use std::collections::VecDeque;

use tabletheory::{Item, Key, Timestamp, Value};

use super::live_set::LiveSet;
use crate::bodies::s3_key::{directory_of_hash, file_name, page_directory};
use crate::error::{Error, Result};
use crate::protocol::key::KeyScheme;
use crate::protocol::{Retention, attribute as name, row::codec::Reader, version_id::is_version_sk};

/// How many cache keys a raw partition key may stand for, since the length of its prefix is not known.
const MAX_POSSIBLE_CACHE_KEYS: usize = 8;

/// A scan of all rows, with constant memory.
///
/// Rows of a partition come together and in the order of their sort keys: `LOCK`, `META`, `REQ#`, then `VER#` from the oldest to
/// the newest. So only the last few versions have to be held.
pub(super) struct RowScan {
    /// The bodies that must not be deleted.
    live: LiveSet,
    /// Rows whose S3 key cannot be read.
    pub(super) damaged: u64,
    retention: Option<Retention>,
    scheme: KeyScheme,
    partition: Partition,
    superfluous: Vec<Superfluous>,
    /// Versions of a page that does not exist any more are deleted if they were generated before this time, in epoch seconds.
    abandoned_before: i64,
}

/// A version that is not retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superfluous {
    /// The key of `META`, which must not point at it.
    pub(super) meta: Key,
    pub(super) sk: String,
    /// The S3 key of its body.
    pub(super) s3_key: String,
}

/// The partition that is being read.
#[derive(Default)]
struct Partition {
    pk: String,
    /// The current version.
    current_sk: Option<String>,
    /// Whether `META` cannot be read, so that any version may be the current one.
    frozen: bool,
    /// Whether the page exists, or may be published at any time.
    exists: bool,
    /// The newest versions so far, at most as many as are retained; `None` for one that is too old to be retained.
    newest: VecDeque<Option<Superfluous>>,
}

impl RowScan {
    pub(super) fn new(live: LiveSet, retention: Option<Retention>, scheme: KeyScheme) -> Self {
        let (partition, superfluous) = (Partition::default(), Vec::new());
        RowScan { live, damaged: 0, retention, scheme, partition, superfluous, abandoned_before: i64::MIN }
    }

    /// Also finds versions that were generated before this time, and whose page has expired.
    pub(super) fn with_abandoned_before(mut self, time: Timestamp) -> Self {
        self.abandoned_before = time.seconds();
        self
    }

    /// Reads the next row.
    pub(super) fn read(&mut self, item: &Item) -> Result<()> {
        let Key { pk, sk } = item.key()?;
        if pk != self.partition.pk {
            self.end_partition();
            self.partition = Partition { pk, ..Partition::default() };
        }
        let (is_meta, is_version) = (sk == "META", sk.starts_with("VER#"));
        self.partition.exists |= is_meta || sk == "LOCK";
        if sk == "LOCK" {
            // The holder, even if its lease has expired, may be about to publish a body of this page.
            self.protect_page();
        }
        let s3_key = reference(item, name::S3_KEY.name());
        let pointer = item.get(name::CURRENT_SK.name());
        let points = pointer.and_then(Value::as_str).is_some_and(is_version_sk);
        // A `META` that points at a version needs no S3 key: the row of the version has it. A request has a result only once
        // it is completed, and other rows need no S3 key.
        let whole = match s3_key {
            Reference::To(_) => true,
            Reference::None => {
                if is_meta {
                    points
                } else {
                    !is_version
                }
            }
            Reference::Damaged => false,
        };
        let result = reference(item, name::RESULT_S3_KEY.name());
        if !whole || result == Reference::Damaged {
            self.damaged += 1;
            // Nobody can read the row, so nobody can find the body, even if the key of the row is damaged too.
            if !self.protect_page() && !item.is_damaged() {
                return Err(Error::corrupt(format!(
                    "the row {sk} of {} is damaged and the S3 key of its body is unknown, so no body was deleted; \
                     repair or delete the row",
                    self.partition.pk
                )));
            }
        }
        if is_meta {
            match pointer {
                Some(Value::S(current_sk)) => self.partition.current_sk = Some(current_sk.clone()),
                None => {}
                Some(_) => self.partition.frozen = true,
            }
            self.partition.frozen |= !whole;
        }
        if let Reference::To(s3_key) = result {
            self.live.insert(file_name(s3_key));
        }
        if let Reference::To(s3_key) = s3_key {
            match self.retention {
                _ if is_version && self.is_abandoned(item) => self.superfluous.push(Superfluous {
                    meta: Key::new(self.partition.pk.as_str(), "META"),
                    sk,
                    s3_key: s3_key.to_owned(),
                }),
                Some(retention) if is_version => self.read_version(sk, s3_key, item, retention),
                _ => self.live.insert(file_name(s3_key)),
            }
        }
        Ok(())
    }

    /// Decides like [`Retention::superfluous`], but from the oldest version to the newest, one at a time.
    fn read_version(&mut self, sk: String, s3_key: &str, item: &Item, retention: Retention) {
        if self.partition.frozen || self.partition.current_sk.as_deref() == Some(sk.as_str()) {
            return self.live.insert(file_name(s3_key));
        }
        let meta = Key::new(self.partition.pk.as_str(), "META");
        let version = Superfluous { meta, sk, s3_key: s3_key.to_owned() };
        // A version whose time cannot be read is not too old.
        let generated_at: Option<i64> =
            Reader { role: "VER#", item }.field(&name::GENERATED_AT).unwrap_or_default();
        let is_old = retention.oldest.zip(generated_at).is_some_and(|(oldest, at)| at < oldest);
        // It counts among the newest in any case.
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

    /// Whether a version belongs to a page that has expired: nothing can lead to it any more.
    fn is_abandoned(&self, version: &Item) -> bool {
        let generated_at: Option<i64> =
            Reader { role: "VER#", item: version }.field(&name::GENERATED_AT).unwrap_or_default();
        !self.partition.exists && generated_at.is_some_and(|at| at < self.abandoned_before)
    }

    /// The versions that are not retained, as far as the scan has found since the last call. Their bodies are not live.
    pub(super) fn take_superfluous(&mut self) -> Vec<Superfluous> {
        std::mem::take(&mut self.superfluous)
    }

    /// Retains a version after all, and its body.
    pub(super) fn retain(&mut self, version: &Superfluous) {
        self.live.insert(file_name(&version.s3_key));
    }

    /// The bodies that must not be deleted, after the last row.
    pub(super) fn finish(mut self) -> LiveSet {
        self.end_partition();
        self.live
    }

    /// Retains the versions that are left of a partition.
    fn end_partition(&mut self) {
        for version in std::mem::take(&mut self.partition.newest).into_iter().flatten() {
            self.retain(&version);
        }
    }

    /// Protects every body of the page of this partition. Returns false if the page is unknown.
    fn protect_page(&mut self) -> bool {
        let pk = &self.partition.pk;
        let digits = pk.rsplit('#').next().unwrap_or_default();
        let hashed = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if hashed {
            self.live.insert(directory_of_hash(digits));
        }
        // Another writer's raw key follows a prefix of unknown length, which usually ends with `#`.
        let possible_cache_keys = pk
            .match_indices('#')
            .take(MAX_POSSIBLE_CACHE_KEYS)
            .map(|(place, _)| &pk[place + 1..])
            .chain(self.scheme.cache_key_of(pk));
        let mut known = hashed;
        for cache_key in possible_cache_keys {
            self.live.insert(&page_directory(cache_key));
            known = true;
        }
        known
    }
}

/// The S3 key in an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reference<'i> {
    None,
    To(&'i str),
    /// The attribute is not a string, or empty.
    Damaged,
}

fn reference<'i>(item: &'i Item, attribute: &str) -> Reference<'i> {
    match item.get(attribute) {
        None => Reference::None,
        Some(Value::S(s3_key)) if !s3_key.is_empty() => Reference::To(s3_key),
        Some(_) => Reference::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::generation::Generation;
    use crate::protocol::key::PageKey;
    use crate::protocol::row::{Meta, Version};
    use proptest::prelude::*;
    use tabletheory::SeededRandom;

    fn scan(retention: Option<Retention>) -> RowScan {
        RowScan::new(LiveSet::new(4096, &SeededRandom::new(1)), retention, KeyScheme::Hashed)
    }

    fn row(pk: &str, sk: &str, item: &Item) -> Item {
        let mut item = item.clone();
        item.set("pk", pk);
        item.set("sk", sk);
        item
    }

    proptest! {
        #[test]
        fn versions_one_by_one_are_decided_like_all_at_once(
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
                    (format!("VER#{index:02}"), Version::of(generation))
                })
                .collect();
            let current_sk = all.get(current).map(|(sk, _)| sk.as_str());
            let newest_first: Vec<_> = all.iter().rev().cloned().collect();
            let mut expected = retention.superfluous(&newest_first, current_sk);
            expected.sort_unstable();

            let mut rows = scan(Some(retention));
            let mut meta = Meta::of(Generation::new("isr/meta", 1, 60));
            meta.current_sk = current_sk.map(str::to_owned);
            rows.read(&row("CACHE#1", "META", &meta.to_item())).expect("a row");
            for (sk, version) in &all {
                rows.read(&row("CACHE#1", sk, &version.to_item())).expect("a row");
                prop_assert!(rows.partition.newest.len() <= versions, "memory is bounded");
            }
            let mut superfluous = rows.take_superfluous();
            superfluous.sort_unstable_by(|one, other| one.sk.cmp(&other.sk));
            prop_assert_eq!(superfluous.iter().map(|version| version.sk.as_str()).collect::<Vec<_>>(), expected);
            let live = rows.finish();
            for (index, (sk, _)) in all.iter().enumerate() {
                let deleted = superfluous.iter().any(|version| version.sk == *sk);
                prop_assert_eq!(live.may_contain(&index.to_string()), !deleted, "{}", sk);
            }
        }
    }

    #[test]
    fn the_result_of_a_request_is_live_however_its_key_is_written() {
        for key in ["isr/1/x.html", "s3://bucket/isr/1/x.html", "/isr/1/x.html", "x.html", "isr/1/x.html?v=1"]
        {
            let mut rows = scan(None);
            let request = Item::from([("result_s3_key", key.into())]);
            rows.read(&row("CACHE#1", "REQ#1", &request)).expect("a row");
            assert!(rows.live.may_contain("x.html"), "{key}");
        }
    }

    #[test]
    fn the_bodies_of_a_page_are_protected_in_every_key_scheme() {
        let tenant = crate::Tenant::new("acme").expect("a tenant");
        let raw = crate::KeyScheme::raw("PAGE#").expect("a prefix");
        for page in [
            PageKey::new("/a#b").expect("a page"),
            crate::KeyScheme::Hashed.page(Some(&tenant), "/a#b").expect("a page"),
            raw.page(None, "/a#b").expect("a page"),
        ] {
            let mut rows = scan(None);
            rows.read(&row(page.pk(), "LOCK", &Item::new())).expect("a row");
            assert!(rows.live.may_contain(&page_directory("/a#b")), "{}", page.pk());
            assert!(!rows.live.may_contain(&page_directory("/b")), "{}", page.pk());
        }
        let of_tenant = raw.page(Some(&tenant), "acme::/a?#b").expect("a page");
        let mut rows = scan(None);
        rows.read(&row(of_tenant.pk(), "LOCK", &Item::new())).expect("a row");
        assert!(rows.live.may_contain(&page_directory("acme::/a?#b")));
        // A prefix without `#` is known only from the settings.
        let scheme = KeyScheme::raw("page:").expect("a prefix");
        let mut rows = RowScan { scheme, ..scan(None) };
        rows.read(&row("page:default::/a?", "LOCK", &Item::new())).expect("a row");
        assert!(rows.live.may_contain(&page_directory("default::/a?")));
    }

    #[test]
    fn a_damaged_row_protects_its_page_or_stops_garbage_collection() {
        let damaged = [
            ("META", Item::new()),
            ("META", Item::from([("s3_key", 7.into())])),
            ("META", Item::from([("s3_key", "".into())])),
            ("VER#1", Item::new()),
            ("REQ#1", Item::from([("result_s3_key", 7.into())])),
        ];
        for (sk, item) in damaged {
            let mut rows = scan(None);
            rows.read(&row("CACHE#/a", sk, &item)).expect("its page is known");
            assert_eq!(rows.damaged, 1, "{sk}");
            assert!(rows.live.may_contain(&page_directory("/a")), "{sk}");
            let error = rows.read(&row("unknown", sk, &item)).expect_err("its page is unknown");
            assert_eq!(error.kind(), crate::Kind::Corrupt, "{sk}");
        }
        let mut rows = scan(None);
        rows.read(&Item::damaged(&Key::new("CACHE#/a", "META"))).expect("a damaged row");
        rows.read(&Item::damaged(&Key::new("unknown", "VER#1"))).expect("nobody can read the row");
        assert_eq!(rows.damaged, 2);
        assert!(rows.live.may_contain(&page_directory("/a")));
        let mut rows = scan(None);
        rows.read(&row("TAG#news", "TAG", &Item::new())).expect("a row");
        rows.read(&row("CACHE#1", "REQ#1", &Item::new())).expect("a row");
        rows.read(&row("elsewhere", "thing", &Item::new())).expect("a row");
        assert_eq!(rows.damaged, 0, "rows without an S3 key are not damaged");
    }

    #[test]
    fn a_row_that_is_only_a_pointer_is_not_damaged_and_protects_its_version() {
        let mut rows = scan(Some(Retention::newest(0)));
        let pointer = Item::from([("current_sk", "VER#1".into())]);
        rows.read(&row("CACHE#1", "META", &pointer)).expect("a row");
        for sk in ["VER#1", "VER#2"] {
            let version = Version::of(Generation::new(format!("isr/{}.html", &sk[4..]), 1, 60));
            rows.read(&row("CACHE#1", sk, &version.to_item())).expect("a row");
        }
        assert_eq!(rows.damaged, 0);
        let superfluous = rows.take_superfluous();
        assert_eq!(superfluous.iter().map(|version| version.sk.as_str()).collect::<Vec<_>>(), ["VER#2"]);
        let live = rows.finish();
        assert!(live.may_contain("1.html") && !live.may_contain("2.html"));
    }

    #[test]
    fn no_version_is_deleted_if_the_pointer_cannot_be_read() {
        for broken in [
            Item::from([("s3_key", "isr/meta".into()), ("current_sk", 7.into())]),
            Item::from([("current_sk", "LOCK".into())]),
        ] {
            let mut rows = scan(Some(Retention::newest(0)));
            rows.read(&row("CACHE#1", "META", &broken)).expect("a row");
            let version = Version::of(Generation::new("isr/1", 1, 60));
            rows.read(&row("CACHE#1", "VER#1", &version.to_item())).expect("a row");
            assert_eq!(rows.take_superfluous(), []);
            assert!(rows.live.may_contain("1"));
        }
    }
}
