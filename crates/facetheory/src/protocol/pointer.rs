//! The pointer of a page with versions: `META` repeats the version that `current_sk` names, so that one row is enough to
//! serve the page. Other services may write only the pointer, or move it and leave the old copy.

use std::time::Duration;

use tabletheory::{Attr, Cond, Item, Value};

use crate::error::Result;
use crate::protocol::row::codec::Reader;
use crate::protocol::ttl::seconds;
use crate::protocol::version_id::is_version_of;
use crate::protocol::{Content, Generation, Meta, Version, attribute as name};

/// `META` as it is stored. Its copy of the current version may be missing, or of a version that is no longer current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredMeta {
    /// Without a copy, its generation is empty.
    meta: Meta,
    has_copy: bool,
    /// The interval for a version without one.
    interval: Option<i64>,
}

impl StoredMeta {
    /// Reads a `META` row, which must have a copy of the page or a pointer to a version.
    pub(crate) fn read(item: &Item) -> Result<Self> {
        let mut stored = match Meta::read(item) {
            Ok(meta) => StoredMeta { meta, has_copy: true, interval: None },
            Err(error) => {
                let mut pointer = item.clone();
                pointer.set(name::S3_KEY.name(), "");
                pointer.set(name::GENERATED_AT.name(), 0);
                pointer.set(name::REVALIDATE_SECONDS.name(), 0);
                let mut meta = Meta::read(&pointer)?;
                if meta.current_sk.is_none() {
                    return Err(error);
                }
                meta.generation = Generation::default();
                StoredMeta { meta, has_copy: false, interval: None }
            }
        };
        if stored.has_copy && !stored.meta.has_pin_of_copy() {
            stored.meta.pinned_until = None;
        }
        let interval: Option<i64> = Reader { role: "META", item }.field(&name::REVALIDATE_SECONDS)?;
        let interval = interval.map(|seconds| seconds.max(0));
        // An invalidation and a pin replace the interval of the page.
        let is_replaced = stored.meta.pinned_until.is_some()
            || stored.meta.stale_since.is_some() && interval.is_none_or(|seconds| seconds == 0);
        stored.interval = interval.filter(|_| !is_replaced);
        Ok(stored)
    }

    /// The sort key of the version that has to be read to know the page; `None` if the copy is certainly of the current one.
    pub(crate) fn unread(&self) -> Option<&str> {
        let sk = self.meta.current_sk.as_deref()?;
        let is_current = self.has_copy && is_version_of(sk, &self.meta.generation.s3_key);
        (!is_current).then_some(sk)
    }

    /// Whether `META` has a copy of a version, current or not.
    pub(crate) fn has_copy(&self) -> bool {
        self.has_copy
    }

    /// The S3 key of the copy, if there is one.
    pub(crate) fn s3_key(&self) -> Option<&str> {
        self.has_copy.then_some(self.meta.generation.s3_key.as_str())
    }

    /// Whether `META` repeats this version completely.
    pub(crate) fn is_copy_of(&self, s3_key: &str, digest: Option<&str>) -> bool {
        self.s3_key() == Some(s3_key) && self.meta.generation.content.digest.as_deref() == digest
    }

    /// The page as the copy describes it. Without a copy there is nothing that may be served.
    ///
    /// Another service that publishes by an update leaves our invalidation in `META`. It has ended if the copy has an
    /// interval again, which an invalidation sets to zero, and was generated more than `skew` after it.
    pub(crate) fn into_copy(self, skew: Duration) -> Meta {
        if !self.has_copy {
            return Meta { must_not_serve: true, ..self.meta };
        }
        let Generation { generated_at, revalidate_seconds, .. } = self.meta.generation;
        let until = self.meta.invalidated_until(skew);
        if revalidate_seconds > 0 && until.is_some_and(|until| generated_at > until) {
            return self.meta.published_since();
        }
        self.meta
    }

    /// The page as the copy describes it, with the content of its version: another service that copied the version by an
    /// update has left our description of an earlier body in `META`, and our mark if the version is not ours.
    pub(crate) fn into_copy_with(self, content: Content, skew: Duration) -> Meta {
        let mut meta = self.into_copy(skew);
        if content == Content::default() {
            meta.mark = None;
        }
        let tags = std::mem::replace(&mut meta.generation.content, content).tags;
        // The tags of the earlier body remain, since invalidating too much is safe.
        meta.generation.content.tags.extend(tags);
        meta.generation.content.tags.sort_unstable();
        meta.generation.content.tags.dedup();
        meta
    }

    /// The page, given the version that `META` points at; `None` if its row is missing or cannot be read.
    ///
    /// `policy` is the interval if neither row has one. An invalidation of the page applies to the version if it was generated
    /// at most `skew` after it. A pin and the mark belong to the copy, so a version that replaced it has neither.
    pub(crate) fn follow(self, version: Option<Version>, policy: Option<Duration>, skew: Duration) -> Meta {
        let Some(version) = version else { return self.into_copy(skew) };
        if self.s3_key() == Some(version.generation.s3_key.as_str()) {
            return self.into_copy_with(version.generation.content, skew);
        }
        let mut generation = version.generation;
        if version.inherits_interval {
            generation.revalidate_seconds = self.interval.or(policy.map(seconds)).unwrap_or(0);
        }
        let until = self.meta.invalidated_until(skew);
        let mut meta = Meta { generation, pinned_until: None, mark: None, ..self.meta };
        if until.is_some_and(|until| meta.generation.generated_at > until) {
            return meta.published_since();
        }
        if meta.stale_since.is_some() {
            meta.generation.revalidate_seconds = 0;
        }
        meta
    }
}

impl Meta {
    /// Whether the pin is of this copy: a rollback writes a pin that ends when the interval of the copy ends, so another
    /// service that publishes or moves the pointer by an update, and leaves the pin, has ended it.
    fn has_pin_of_copy(&self) -> bool {
        self.pinned_until == Some(self.generation.expires_at())
    }

    /// Generations up to this time are invalidated, in epoch seconds.
    fn invalidated_until(&self, skew: Duration) -> Option<i64> {
        self.stale_since.map(|since| since.saturating_add(seconds(skew)))
    }

    /// The page with a generation that was published since it was invalidated.
    fn published_since(self) -> Self {
        let expired_at = self.last_hard_invalidation();
        Meta { stale_since: None, must_not_serve: false, expired_at, ..self }
    }
}

/// The pointer of `META` is the one that was read: the version that is current, or for a page without versions its body.
pub(crate) fn is_as_read(seen: &Meta) -> Cond {
    match &seen.current_sk {
        Some(sk) => name::CURRENT_SK.is(sk.as_str()),
        None => name::S3_KEY.is(seen.generation.s3_key.as_str()),
    }
}

/// An attribute has this value, or is absent.
pub(crate) fn is_value(attribute: &Attr<Value>, value: Option<&Value>) -> Cond {
    value.map_or_else(|| attribute.absent(), |value| attribute.is(value.clone()))
}

/// The attributes of this `META` row that decide whether its pin is in force are as they were read.
pub(crate) fn decides_pin_as_in(row: &Item) -> Cond {
    let is_as_read = |attribute: Attr<Value>| is_value(&attribute, row.get(attribute.name()));
    let deciding = [
        name::PINNED_UNTIL.name().to_owned(),
        name::CURRENT_SK.name().to_owned(),
        name::S3_KEY.name().to_owned(),
        name::GENERATED_AT.name().to_owned(),
        name::REVALIDATE_SECONDS.name().to_owned(),
    ];
    deciding.into_iter().map(Attr::named).map(is_as_read).fold(name::PK.exists(), Cond::and)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PageKey;
    use crate::protocol::version_id::VersionId;
    use tabletheory::{MemoryTable, Table as _, Timestamp, Txn, Update, Write};

    const SKEW: Duration = Duration::from_secs(2);
    const POLICY: Option<Duration> = Some(Duration::from_secs(7));

    fn pointer(attributes: &[(&str, Value)]) -> StoredMeta {
        let mut item = Item::from([("current_sk", Value::from("VER#2"))]);
        attributes.iter().for_each(|(name, value)| item.set(*name, value.clone()));
        StoredMeta::read(&item).expect("a pointer")
    }

    fn version(attributes: &[(&str, Value)]) -> Option<Version> {
        let mut item = Item::from([("s3_key", Value::from("2.html")), ("generated_at", 200.into())]);
        attributes.iter().for_each(|(name, value)| item.set(*name, value.clone()));
        Some(Version::read(&item).expect("a version"))
    }

    /// A copy of an earlier version.
    fn copy() -> [(&'static str, Value); 3] {
        [("s3_key", "1.html".into()), ("generated_at", 100.into()), ("revalidate_seconds", 60.into())]
    }

    #[test]
    fn a_copy_of_our_own_is_recognized_without_reading_its_version() {
        let id = |s3_key| format!("VER#{}", VersionId::of_body(Timestamp::from_seconds(9), s3_key));
        let mut meta = Meta::of(Generation::new("1.html", 100, 60));
        meta.current_sk = Some(id("1.html"));
        assert_eq!(StoredMeta::read(&meta.to_item()).expect("META").unread(), None);
        meta.current_sk = Some(id("2.html"));
        assert_eq!(StoredMeta::read(&meta.to_item()).expect("META").unread(), meta.current_sk.as_deref());
        meta.current_sk = None;
        assert_eq!(StoredMeta::read(&meta.to_item()).expect("META").unread(), None);
    }

    #[test]
    fn the_interval_is_that_of_the_version_then_of_meta_then_of_the_policy() {
        let interval = |meta: &[(&str, Value)], own: &[(&str, Value)], policy| {
            pointer(meta).follow(version(own), policy, SKEW).generation.revalidate_seconds
        };
        let (own, of_meta) = ([("revalidate_seconds", 300.into())], [("revalidate_seconds", 60.into())]);
        assert_eq!(interval(&of_meta, &own, POLICY), 300);
        assert_eq!(interval(&of_meta, &[], POLICY), 60);
        assert_eq!(interval(&[], &[], POLICY), 7);
        assert_eq!(interval(&[], &[], None), 0);
        let pinned = [("revalidate_seconds", 86_400.into()), ("pinned_until", 90_000.into())];
        assert_eq!(interval(&pinned, &[], POLICY), 7, "the duration of a pin is not an interval");
        let mistyped = [("revalidate_seconds", "60".into())];
        assert_eq!(interval(&mistyped, &mistyped, POLICY), 7);
    }

    #[test]
    fn a_pointer_that_moved_is_followed_and_a_matching_copy_is_used() {
        let meta = pointer(&copy()).follow(version(&[("revalidate_seconds", 300.into())]), POLICY, SKEW);
        assert_eq!(meta.generation, Generation::new("2.html", 200, 300));
        assert_eq!(meta.current_sk.as_deref(), Some("VER#2"));
        // Our own unchanged publish moves only the times of META.
        let meta = pointer(&copy()).follow(version(&[("s3_key", "1.html".into())]), POLICY, SKEW);
        assert_eq!(meta.generation, Generation::new("1.html", 100, 60));
    }

    #[test]
    fn a_copy_by_another_service_does_not_keep_our_description_of_an_earlier_body() {
        let ours = [
            ("digest", "sha256:00".into()),
            ("http_status", 404.into()),
            ("tags", Value::from(tabletheory::Set::new(["news".to_owned()]).expect("a set"))),
        ];
        let meta = pointer(&[copy().as_slice(), &ours].concat());
        assert!(!meta.is_copy_of("1.html", None), "its digest is of another body");
        let meta = meta.follow(version(&[("s3_key", "1.html".into())]), POLICY, SKEW);
        let mut expected = Generation::new("1.html", 100, 60);
        expected.content.tags = vec!["news".to_owned()];
        assert_eq!(meta.generation, expected);
    }

    /// Our copy of version 2, with more attributes, as the page that readers see.
    fn copied(attributes: &[(&str, Value)]) -> Meta {
        let mut item = Item::from([("current_sk", Value::from("VER#2")), ("s3_key", "2.html".into())]);
        attributes.iter().for_each(|(name, value)| item.set(*name, value.clone()));
        StoredMeta::read(&item).expect("META").follow(version(&[]), POLICY, SKEW)
    }

    #[test]
    fn an_invalidation_ends_when_another_service_publishes_by_an_update() {
        let invalidated = |generated_at: i64, interval: i64| {
            let meta = copied(&[
                ("generated_at", generated_at.into()),
                ("revalidate_seconds", interval.into()),
                ("stale_since", 300.into()),
                ("must_not_serve", true.into()),
            ]);
            (meta.must_not_serve, meta.stale_since, meta.expired_at)
        };
        assert_eq!(invalidated(303, 60), (false, None, Some(300)), "published after it");
        assert_eq!(invalidated(302, 60), (true, Some(300), None), "within the margin for clock skew");
        assert_eq!(invalidated(303, 0), (true, Some(300), None), "nobody has published: its clock was ahead");
    }

    #[test]
    fn a_pin_ends_when_another_service_publishes_by_an_update() {
        let pinned = |until: i64| {
            let row = [
                ("generated_at", 100.into()),
                ("revalidate_seconds", 60.into()),
                ("pinned_until", until.into()),
            ];
            copied(&row).pinned_until
        };
        assert_eq!(
            pinned(160),
            Some(160),
            "the interval of the copy ends with the pin, as a rollback writes it"
        );
        assert_eq!((pinned(161), pinned(159)), (None, None));
    }

    #[tokio::test]
    async fn a_pin_is_as_it_was_read_until_an_attribute_changes_that_decides_it() {
        let page = PageKey::new("/").expect("a page");
        let row = Item::from([
            ("s3_key", Value::from("1.html")),
            ("generated_at", 100.into()),
            ("revalidate_seconds", 60.into()),
            ("pinned_until", 900.into()),
            ("mark", "m".into()),
        ]);
        let changed = async |attribute: &'static str| {
            let table = MemoryTable::new();
            let change = Update::new([Attr::<Value>::new(attribute).set(Value::from(160))]);
            let checked = Write::check(page.meta(), decides_pin_as_in(&row));
            for write in [Write::put(page.meta(), row.clone()), Write::update(page.meta(), change)] {
                assert!(table.commit(&Txn::from(write)).await.expect("a write").is_done());
            }
            !table.commit(&Txn::from(checked)).await.expect("a check").is_done()
        };
        for attribute in ["s3_key", "generated_at", "revalidate_seconds", "pinned_until", "current_sk"] {
            assert!(changed(attribute).await, "{attribute}");
        }
        assert!(!changed("mark").await);
    }

    #[test]
    fn a_copy_by_another_service_does_not_keep_our_mark() {
        let row = [("generated_at", 100.into()), ("revalidate_seconds", 60.into()), ("mark", "ours".into())];
        assert_eq!(copied(&row).mark, None);
    }

    #[test]
    fn a_version_that_is_missing_leaves_the_copy_or_nothing_that_may_be_served() {
        let kept = pointer(&copy()).follow(None, POLICY, SKEW);
        assert_eq!((kept.generation, kept.must_not_serve), (Generation::new("1.html", 100, 60), false));
        let nothing = pointer(&[("version", 4.into())]).follow(None, POLICY, SKEW);
        assert!(nothing.must_not_serve);
        assert_eq!((nothing.version, nothing.current_sk.as_deref()), (Some(4), Some("VER#2")));
    }

    #[test]
    fn an_invalidation_applies_to_versions_from_before_it() {
        let invalidated = |since: i64| {
            let meta = [
                ("stale_since", since.into()),
                ("must_not_serve", true.into()),
                ("revalidate_seconds", 0.into()),
            ];
            let meta = pointer(&meta).follow(version(&[("revalidate_seconds", 300.into())]), POLICY, SKEW);
            (meta.must_not_serve, meta.stale_since, meta.generation.revalidate_seconds)
        };
        assert_eq!(invalidated(197), (false, None, 300), "it was generated after it");
        assert_eq!(invalidated(198), (true, Some(198), 0), "within the margin for clock skew");
        assert_eq!(invalidated(201), (true, Some(201), 0));
    }

    #[test]
    fn a_row_without_a_page_and_without_a_pointer_is_an_error() {
        for current_sk in ["LOCK", "META", "", "ver#1"].map(Value::from).into_iter().chain([7.into()]) {
            let row = Item::from([("current_sk", current_sk)]);
            let error = StoredMeta::read(&row).expect_err("not a pointer");
            assert_eq!(error.to_string(), "META: attribute `s3_key` is missing");
        }
        let long = Item::from([("current_sk", Value::from(format!("VER#{}", "x".repeat(1021))))]);
        assert!(StoredMeta::read(&long).is_err(), "no row has such a key");
    }
}
