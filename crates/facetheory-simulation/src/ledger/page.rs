//! What a commit did to the rows of a page: grants, publishes, rollbacks, invalidations, collections.

use std::collections::{BTreeMap, BTreeSet};

use facetheory::protocol::{Lock, Meta, Version};
use tabletheory::{Item, Key, Timestamp, Value};

use super::{Ledger, State, short};
use crate::tally::Count;
use crate::violation::Invariant;

/// What is known of one page besides its rows.
#[derive(Debug, Default)]
pub(crate) struct PageLedger {
    /// Which number each token's grant has, and which operation it was granted to.
    grants: BTreeMap<String, (u64, String)>,
    /// The grant that published last.
    last_publisher: u64,
    /// Tokens that have published.
    pub(super) publishers: BTreeSet<String>,
    /// How many grants there were at the last invalidation or rollback.
    fenced: u64,
    /// When the last invalidation was asked for that was acknowledged, of any strength and of the hard kind.
    pub(super) soft_fence: Option<Timestamp>,
    pub(super) hard_fence: Option<Timestamp>,
}

/// A row that a commit has changed.
struct Changed {
    key: Key,
    before: Option<Item>,
    after: Option<Item>,
}

impl Ledger {
    /// A commit left these rows as they are given here.
    pub(crate) fn committed(&self, rows: Vec<(Key, Option<Item>)>) {
        let mut state = self.state();
        let changed: Vec<Changed> = rows
            .into_iter()
            .filter(|(key, after)| state.rows.get(key) != after.as_ref())
            .map(|(key, after)| Changed { before: state.rows.get(&key).cloned(), key, after })
            .collect();
        let Some(pk) = changed.first().map(|row| row.key.pk.clone()) else { return };
        let before = (state.meta(&pk), state.lock(&pk));
        for Changed { key, after, .. } in &changed {
            match after {
                Some(item) => state.rows.insert(key.clone(), item.clone()),
                None => state.rows.remove(key),
            };
        }
        let after = (state.meta(&pk), state.lock(&pk));
        state.check_grant(&pk, before.1.as_ref(), after.1.as_ref());
        state.check_meta(&pk, &before, &after, &changed);
        for row in &changed {
            match row.key.sk.as_str() {
                "TAG" => {
                    let epoch = row.after.as_ref().and_then(|row| row.get("invalidated_at"));
                    state.note(format!(
                        "{pk} invalidated at {}",
                        epoch.map(Value::to_string).unwrap_or_default()
                    ));
                    state.count(Count::TagInvalidated);
                }
                sk if sk.starts_with("VER#") => state.check_version(row, after.0.as_ref()),
                sk if sk.starts_with("REQ#") => {
                    let publisher = publisher(&before, &after);
                    let lock = after.1.as_ref();
                    state.check_request(&row.key, row.before.as_ref(), row.after.as_ref(), publisher, lock);
                }
                _ => {}
            }
        }
    }

    /// These rows were deleted because their `ttl` had passed.
    pub(crate) fn expired(&self, keys: Vec<Key>) {
        let mut state = self.state();
        for key in keys {
            state.rows.remove(&key);
            state.count(Count::Expired);
            state.note(format!("{} {} expired", short(&key.pk), key.sk));
            if key.sk.starts_with("REQ#") {
                *state.request_lives.entry(key.clone()).or_default() += 1;
            }
            let current = state.meta(&key.pk).and_then(|meta| meta.current_sk);
            state.ensure(current.as_deref() != Some(key.sk.as_str()), Invariant::NoMissingBody, || {
                format!("the current version {} has expired", key.sk)
            });
        }
    }

    /// The rows that have a `ttl`, which may be gone after a sweep.
    pub(crate) fn mortal_rows(&self) -> Vec<Key> {
        let state = self.state();
        let mortal = state.rows.iter().filter(|(_, row)| row.get("ttl").is_some());
        mortal.map(|(key, _)| key.clone()).collect()
    }
}

/// The token whose publish this change of `META` is.
fn publisher<'a>(
    before: &(Option<Meta>, Option<Lock>),
    after: &'a (Option<Meta>, Option<Lock>),
) -> Option<&'a str> {
    let mark = after.0.as_ref().and_then(|meta| meta.mark.as_deref());
    mark.filter(|new| before.0.as_ref().and_then(|meta| meta.mark.as_deref()) != Some(new))
}

impl State {
    fn check_grant(&mut self, pk: &str, before: Option<&Lock>, after: Option<&Lock>) {
        let Some(lock) = after else { return };
        if before.is_some_and(|before| before.lease_token == lock.lease_token) {
            return;
        }
        let owner = lock.owner.clone().unwrap_or_default();
        let page = self.pages.entry(pk.to_owned()).or_default();
        let number = page.grants.len() as u64 + 1;
        let again = page.grants.insert(lock.lease_token.clone(), (number, owner.clone())).is_some();
        self.tokens.insert(owner.clone(), lock.lease_token.clone());
        *self.site.granted.entry((owner.clone(), pk.to_owned())).or_default() += 1;
        self.note(format!("{} grant {number} to {owner}", short(pk)));
        self.count(Count::Granted);
        self.ensure(!again, Invariant::OncePerToken, || format!("{owner} was granted its token again"));
    }

    fn check_meta(
        &mut self,
        pk: &str,
        before: &(Option<Meta>, Option<Lock>),
        after: &(Option<Meta>, Option<Lock>),
        changed: &[Changed],
    ) {
        if before.0 == after.0 {
            return;
        }
        let Some(meta) = &after.0 else {
            self.ensure(false, Invariant::StaysReadable, || format!("{pk} lost its META"));
            return;
        };
        let old = before.0.as_ref();
        let version = |meta: Option<&Meta>| meta.and_then(|meta| meta.version);
        let moved = old.is_none_or(|old| old.generation.s3_key != meta.generation.s3_key);
        let (was, is) = (version(old), version(Some(meta)));
        if let Some(token) = publisher(before, after) {
            self.check_publisher(pk, token, before.1.as_ref(), after.1.as_ref());
            // A page that is kept in place and never had versions has no number to raise.
            let rises = if moved {
                is == was.map(|was| was + 1) || was.is_none() && is == Some(1)
            } else {
                is == was
            };
            self.ensure(rises, Invariant::VersionRises, || format!("{was:?} became {is:?} with a publish"));
            if moved {
                let put =
                    |row: &&Changed| row.before.is_none() && Some(&row.key.sk) == meta.current_sk.as_ref();
                let row = changed.iter().find(put).and_then(|row| row.after.as_ref());
                let whole = meta.current_sk.is_none()
                    || row
                        .and_then(|row| Version::read(row).ok())
                        .is_some_and(|version| version.generation == meta.generation);
                self.ensure(whole, Invariant::Together, || {
                    "META moved without the row of its version".into()
                });
            }
            if let Some(start) = self.starts.get(token).copied().filter(|_| moved) {
                self.body_starts.insert(meta.generation.s3_key.clone(), start);
            }
            self.check_claims(pk, token, meta);
            self.count(if moved { Count::Published } else { Count::Unchanged });
            self.check_named_body(meta);
            return;
        }
        if moved || was != is {
            let target = meta.current_sk.as_ref().and_then(|sk| self.rows.get(&Key::new(pk, sk.as_str())));
            let there = target.is_some();
            self.note(format!("{} rolled back to {}", short(pk), meta.generation.s3_key));
            self.count(Count::RolledBack);
            self.site.rolled_back.insert(pk.to_owned(), self.elapsed);
            self.fence(pk, after.1.as_ref(), "a rollback");
            self.ensure(is == Some(was.unwrap_or(0) + 1), Invariant::VersionRises, || {
                format!("{was:?} became {is:?} with a rollback")
            });
            self.ensure(there, Invariant::NoMissingBody, || {
                "a rollback went to a version that is gone".into()
            });
            self.check_named_body(meta);
            return;
        }
        let unpinned = meta.pinned_until.is_none() && !meta.must_not_serve;
        if old.is_some_and(|old| old.pinned_until.is_some()) && unpinned {
            self.note(format!("{} unpinned", short(pk)));
            self.count(Count::Unpinned);
        } else {
            self.note(format!(
                "{} invalidated{}",
                short(pk),
                if meta.must_not_serve { ", hard" } else { "" }
            ));
            self.count(Count::Invalidated);
            self.fence(pk, after.1.as_ref(), "an invalidation");
        }
        let stale = meta.generation.revalidate_seconds == 0;
        self.ensure(stale, Invariant::NotFreshAfterInvalidation, || "it left the page fresh".into());
    }

    fn check_publisher(&mut self, pk: &str, token: &str, before: Option<&Lock>, after: Option<&Lock>) {
        let page = self.pages.entry(pk.to_owned()).or_default();
        let (grant, owner) = page.grants.get(token).cloned().unwrap_or_default();
        let again = !page.publishers.insert(token.to_owned());
        let (last, fenced) = (page.last_publisher, page.fenced);
        page.last_publisher = last.max(grant);
        self.note(format!("{} published under grant {grant} by {owner}", short(pk)));
        self.ensure(!again, Invariant::OncePerToken, || format!("grant {grant} published again"));
        self.ensure(grant > last, Invariant::GrantOrder, || {
            format!("grant {grant} published after grant {last}")
        });
        self.ensure(grant > fenced, Invariant::NotFreshAfterInvalidation, || {
            format!(
                "grant {grant} published, and the page was invalidated or rolled back after grant {fenced}"
            )
        });
        let holds = before.is_some_and(|lock| lock.lease_token == token);
        self.ensure(holds, Invariant::OncePerToken, || format!("grant {grant} published without the lock"));
        self.ensure(after.is_none(), Invariant::Together, || "a publish left its lock behind".into());
        let denied = self.denied.contains(&owner);
        self.ensure(!denied, Invariant::TruthfulReport, || {
            format!("{owner} was told that it has not published")
        });
    }

    fn fence(&mut self, pk: &str, lock: Option<&Lock>, what: &str) {
        let page = self.pages.entry(pk.to_owned()).or_default();
        page.fenced = page.grants.len() as u64;
        self.ensure(lock.is_none(), Invariant::NotFreshAfterInvalidation, || {
            format!("{what} left the lock of a render in flight")
        });
    }

    fn check_version(&mut self, row: &Changed, meta: Option<&Meta>) {
        let current = meta.and_then(|meta| meta.current_sk.as_deref()) == Some(row.key.sk.as_str());
        let read = |item: &Option<Item>| item.as_ref().and_then(|item| Version::read(item).ok());
        match (read(&row.before), read(&row.after)) {
            (None, Some(_)) => {
                self.ensure(current, Invariant::Together, || "a version appeared alone".into())
            }
            (Some(_), None) => {
                self.note(format!("{} {} collected", short(&row.key.pk), row.key.sk));
                self.count(Count::Collected);
                self.ensure(!current, Invariant::NoMissingBody, || {
                    "the current version was collected".into()
                });
                let newer = self.rows_of(&row.key.pk, "VER#").filter(|(key, _)| key.sk > row.key.sk).count();
                let enough = newer >= self.retention;
                self.ensure(enough, Invariant::StaysReadable, || {
                    format!("a version with only {newer} newer ones was collected")
                });
            }
            (Some(before), Some(after)) => {
                let same = before.generation == after.generation;
                self.ensure(same, Invariant::StaysReadable, || "a version was written again".into());
            }
            (None, None) => {}
        }
    }
}
