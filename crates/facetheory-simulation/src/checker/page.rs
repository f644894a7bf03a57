//! The changes of a page's rows: grants, publishes, rollbacks, invalidations, garbage collection.

use std::collections::{BTreeMap, BTreeSet};

use facetheory::protocol::{Lock, Meta, Version};
use tabletheory::{Item, Key, Timestamp, Value};

use super::{Checker, State, short};
use crate::stats::Counter;
use crate::violation::Invariant;

/// The history of one page, besides its rows.
#[derive(Debug, Default)]
pub(crate) struct PageHistory {
    /// By token: the number of the grant, and the operation that it was granted to.
    grants: BTreeMap<String, (u64, String)>,
    /// The last grant that has published.
    last_publisher: u64,
    /// Tokens that have published.
    pub(super) publishers: BTreeSet<String>,
    /// The number of grants before the last invalidation or rollback; none of them may publish any more.
    fenced: u64,
    /// When the last acknowledged invalidation of any mode was requested.
    pub(super) invalidated: Option<Timestamp>,
    /// When the last acknowledged hard invalidation was requested.
    pub(super) hard_invalidated: Option<Timestamp>,
}

/// How far the clock of a process may be off, rounded up with the time of a lease.
const MAX_SKEW_SECONDS: i64 = 2;

/// A row that a commit has changed.
struct Changed {
    key: Key,
    before: Option<Item>,
    after: Option<Item>,
}

impl Checker {
    /// A commit has left these rows; `None` stands for a deleted row.
    pub(crate) fn committed(&self, rows: Vec<(Key, Option<Item>)>) {
        let mut state = self.state();
        let changed: Vec<Changed> = rows
            .into_iter()
            .filter(|(key, after)| state.rows.get(key) != after.as_ref())
            .map(|(key, after)| Changed { before: state.rows.get(&key).cloned(), key, after })
            .collect();
        let Some(pk) = changed.first().map(|row| row.key.pk.clone()) else { return };
        let before = state.page_rows(&pk);
        for Changed { key, after, .. } in &changed {
            state.damaged.remove(key);
            match after {
                Some(item) => state.rows.insert(key.clone(), item.clone()),
                None => state.rows.remove(key),
            };
        }
        let after = state.page_rows(&pk);
        state.check_grant(&pk, before.lock.as_ref(), after.lock.as_ref());
        state.check_meta(&pk, &before, &after, &changed);
        for row in &changed {
            match row.key.sk.as_str() {
                "TAG" => {
                    let epoch = row.after.as_ref().and_then(|row| row.get("invalidated_at"));
                    state.note(format!(
                        "{pk} invalidated at {}",
                        epoch.map(Value::to_string).unwrap_or_default()
                    ));
                    state.count(Counter::TagInvalidated);
                }
                sk if sk.starts_with("VER#") => state.check_version(row, after.meta.as_ref()),
                sk if sk.starts_with("REQ#") => {
                    let publisher = publisher(&before, &after);
                    let lock = after.lock.as_ref();
                    state.check_request(&row.key, row.before.as_ref(), row.after.as_ref(), publisher, lock);
                }
                _ => {}
            }
        }
    }

    /// Rows were deleted because their `ttl` had passed.
    pub(crate) fn expired(&self, keys: Vec<Key>) {
        let mut state = self.state();
        for key in keys {
            state.rows.remove(&key);
            state.count(Counter::Expired);
            state.note(format!("{} {} expired", short(&key.pk), key.sk));
            if key.sk.starts_with("REQ#") {
                *state.request_expiries.entry(key.clone()).or_default() += 1;
            }
            let current = state.meta(&key.pk).and_then(|meta| meta.current_sk);
            state.ensure(current.as_deref() != Some(key.sk.as_str()), Invariant::NoMissingBody, || {
                format!("the current version {} expired", key.sk)
            });
        }
    }

    /// The rows with a `ttl`, which a sweep may delete.
    pub(crate) fn expiring_rows(&self) -> Vec<Key> {
        let state = self.state();
        let expiring = state.rows.iter().filter(|(_, row)| row.get("ttl").is_some());
        expiring.map(|(key, _)| key.clone()).collect()
    }
}

/// The rows of a page that decide about publishing.
struct PageRows {
    meta: Option<Meta>,
    lock: Option<Lock>,
}

/// The token that published between these two states, if any.
fn publisher<'a>(before: &PageRows, after: &'a PageRows) -> Option<&'a str> {
    let mark = after.meta.as_ref().and_then(|meta| meta.mark.as_deref());
    mark.filter(|new| before.meta.as_ref().and_then(|meta| meta.mark.as_deref()) != Some(new))
}

impl State {
    fn page_rows(&self, pk: &str) -> PageRows {
        PageRows { meta: self.meta(pk), lock: self.lock(pk) }
    }

    fn check_grant(&mut self, pk: &str, before: Option<&Lock>, after: Option<&Lock>) {
        let Some(lock) = after else { return };
        if before.is_some_and(|before| before.lease_token == lock.lease_token) {
            return;
        }
        let owner = lock.owner.clone().unwrap_or_default();
        let page = self.pages.entry(pk.to_owned()).or_default();
        let number = page.grants.len() as u64 + 1;
        let reused = page.grants.insert(lock.lease_token.clone(), (number, owner.clone())).is_some();
        self.tokens.entry(owner.clone()).or_default().push(lock.lease_token.clone());
        *self.clients.grants.entry((owner.clone(), pk.to_owned())).or_default() += 1;
        self.note(format!("{} grant {number} to {owner}", short(pk)));
        self.count(Counter::Granted);
        self.ensure(!reused, Invariant::OncePerToken, || format!("{owner} was granted the same token twice"));
    }

    fn check_meta(&mut self, pk: &str, before: &PageRows, after: &PageRows, changed: &[Changed]) {
        // A use of the page moves these two.
        let unused = |meta: &Option<Meta>| {
            let mut meta = meta.clone()?;
            (meta.used_at, meta.ttl) = (None, None);
            Some(meta)
        };
        if unused(&before.meta) == unused(&after.meta) {
            return;
        }
        let Some(meta) = &after.meta else {
            self.check_eviction(pk, before, changed);
            return;
        };
        let old = before.meta.as_ref();
        let version = |meta: Option<&Meta>| meta.and_then(|meta| meta.version);
        let moved = old.is_none_or(|old| old.generation.s3_key != meta.generation.s3_key);
        let (was, is) = (version(old), version(Some(meta)));
        if let Some(old) = old.filter(|_| moved) {
            self.replaced_millis.insert(old.generation.s3_key.clone(), self.elapsed_millis);
        }
        if let Some(token) = publisher(before, after) {
            // An unchanged page is extended by an update of META alone, and the lock is released after it.
            let extended = !moved && changed.iter().all(|row| row.key.sk == "META");
            self.check_publisher(pk, token, (!extended).then_some((before, after)));
            // A page without history never gets a version number.
            let rises = if moved {
                is == was.map(|was| was + 1) || was.is_none() && is == Some(1)
            } else {
                is == was
            };
            self.ensure(rises, Invariant::VersionRises, || format!("a publish changed {was:?} to {is:?}"));
            if moved {
                let put =
                    |row: &&Changed| row.before.is_none() && Some(&row.key.sk) == meta.current_sk.as_ref();
                let row = changed.iter().find(put).and_then(|row| row.after.as_ref());
                let whole = meta.current_sk.is_none()
                    || row
                        .and_then(|row| Version::read(row).ok())
                        .is_some_and(|version| version.generation == meta.generation);
                self.ensure(whole, Invariant::AtomicPublish, || {
                    "META changed without its version row".into()
                });
            }
            if let Some(start) = self.starts.get(token).copied().filter(|_| moved) {
                self.body_starts.insert(meta.generation.s3_key.clone(), start);
            }
            self.check_claims(pk, token, meta);
            self.count(if moved { Counter::Published } else { Counter::Unchanged });
            self.check_current_body(meta);
            return;
        }
        if moved || was != is {
            let target = meta.current_sk.as_ref().and_then(|sk| self.rows.get(&Key::new(pk, sk.as_str())));
            let exists = target.is_some();
            self.note(format!("{} rolled back to {}", short(pk), meta.generation.s3_key));
            self.count(Counter::RolledBack);
            self.clients.rolled_back.insert(pk.to_owned(), self.elapsed_millis);
            self.fence(pk, after.lock.as_ref(), "a rollback");
            self.ensure(is == Some(was.unwrap_or(0) + 1), Invariant::VersionRises, || {
                format!("a rollback changed {was:?} to {is:?}")
            });
            self.ensure(exists, Invariant::NoMissingBody, || {
                "a rollback restored a version that does not exist".into()
            });
            self.check_current_body(meta);
            return;
        }
        let unpinned = meta.pinned_until.is_none() && !meta.must_not_serve;
        if old.is_some_and(|old| old.pinned_until.is_some()) && unpinned {
            self.note(format!("{} unpinned", short(pk)));
            self.count(Counter::Unpinned);
        } else {
            self.note(format!(
                "{} invalidated{}",
                short(pk),
                if meta.must_not_serve { ", hard" } else { "" }
            ));
            self.count(Counter::Invalidated);
            self.fence(pk, after.lock.as_ref(), "an invalidation");
        }
        let stale = meta.generation.revalidate_seconds == 0;
        self.ensure(stale, Invariant::NotFreshAfterInvalidation, || "the page is still fresh".into());
    }

    /// Checks a publish under this token. `rows` are those before and after a transaction, which has to release the lock.
    fn check_publisher(&mut self, pk: &str, token: &str, rows: Option<(&PageRows, &PageRows)>) {
        let page = self.pages.entry(pk.to_owned()).or_default();
        let (grant, owner) = page.grants.get(token).cloned().unwrap_or_default();
        let again = !page.publishers.insert(token.to_owned());
        let (last, fenced) = (page.last_publisher, page.fenced);
        page.last_publisher = last.max(grant);
        self.note(format!("{} published under grant {grant} by {owner}", short(pk)));
        self.ensure(!again, Invariant::OncePerToken, || format!("grant {grant} published twice"));
        self.ensure(grant > last, Invariant::GrantOrder, || {
            format!("grant {grant} published after grant {last}")
        });
        self.ensure(grant > fenced, Invariant::NotFreshAfterInvalidation, || {
            format!("grant {grant} published after the page was invalidated or rolled back at grant {fenced}")
        });
        if let Some((before, after)) = rows {
            let holds = before.lock.as_ref().is_some_and(|lock| lock.lease_token == token);
            self.ensure(holds, Invariant::OncePerToken, || {
                format!("grant {grant} published without the lock")
            });
            self.ensure(after.lock.is_none(), Invariant::AtomicPublish, || "a publish left the lock".into());
        }
        let not_published = self.not_published.contains(&owner);
        self.ensure(!not_published, Invariant::TruthfulReport, || {
            format!("{owner} published after the result \"not published\"")
        });
    }

    /// Checks the deletion of a page with its rows.
    fn check_eviction(&mut self, pk: &str, before: &PageRows, changed: &[Changed]) {
        self.note(format!("{} evicted", short(pk)));
        let may_evict = self.clients.has_renders();
        self.ensure(may_evict, Invariant::StaysReadable, || format!("{pk} lost its META"));
        self.count(Counter::Evicted);
        let until = before.lock.as_ref().map(|lock| lock.lease_expires_at);
        let pinned_until = before.meta.as_ref().and_then(|meta| meta.pinned_until);
        let earliest = self.now().seconds() + MAX_SKEW_SECONDS;
        let used_until = until.max(pinned_until).unwrap_or_default();
        self.ensure(used_until <= earliest, Invariant::EvictedUnused, || {
            format!("{pk} was evicted, although it is in use until {used_until}")
        });
        // Their readers find no body, and render the page again.
        let named =
            changed.iter().filter_map(|row| row.before.as_ref()?.get("s3_key")?.as_str().map(str::to_owned));
        for s3_key in named {
            self.replaced_millis.remove(&s3_key);
        }
    }

    /// No earlier grant may publish from now on.
    fn fence(&mut self, pk: &str, lock: Option<&Lock>, what: &str) {
        let page = self.pages.entry(pk.to_owned()).or_default();
        page.fenced = page.grants.len() as u64;
        self.ensure(lock.is_none(), Invariant::NotFreshAfterInvalidation, || {
            format!("{what} left the lock of a running render")
        });
    }

    fn check_version(&mut self, row: &Changed, meta: Option<&Meta>) {
        let current = meta.and_then(|meta| meta.current_sk.as_deref()) == Some(row.key.sk.as_str());
        let read = |item: &Option<Item>| item.as_ref().and_then(|item| Version::read(item).ok());
        match (read(&row.before), read(&row.after)) {
            (None, Some(_)) => self.ensure(current, Invariant::AtomicPublish, || {
                "a version row was written without META".into()
            }),
            // Evicted with its page.
            (Some(_), None) if meta.is_none() => {}
            (Some(_), None) => {
                self.note(format!("{} {} deleted by gc", short(&row.key.pk), row.key.sk));
                self.count(Counter::Collected);
                self.ensure(!current, Invariant::NoMissingBody, || "gc deleted the current version".into());
                let newer = self.rows_of(&row.key.pk, "VER#").filter(|(key, _)| key.sk > row.key.sk).count();
                let enough = newer >= self.retention;
                self.ensure(enough, Invariant::StaysReadable, || {
                    format!("gc deleted a version with only {newer} newer ones")
                });
            }
            (Some(before), Some(after)) => {
                let same = before.generation == after.generation;
                self.ensure(same, Invariant::StaysReadable, || "a version row was overwritten".into());
            }
            (None, None) => {}
        }
    }
}
