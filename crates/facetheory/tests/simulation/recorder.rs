//! What really happened to the table, in order, checked as it happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use facetheory::{Freshness, Lock, Meta, PageKey};
use tabletheory::{
    Clock, Commit, Consistency, Item, Key, MemoryTable, Page, Query, Result, Scan, Table, Txn,
};

/// An honest table that checks what is done to it.
#[derive(Debug)]
pub(crate) struct Recorder {
    table: MemoryTable,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    pages: BTreeMap<String, PageHistory>,
    tally: Tally,
}

/// What is known of one page.
#[derive(Debug, Default)]
struct PageHistory {
    /// How many grants there were, and which number each token has.
    grants: BTreeMap<String, u64>,
    /// The grant that published last.
    last_publisher: u64,
    /// Tokens that have published.
    publishers: BTreeSet<String>,
    /// Bodies that `META` has named.
    published: BTreeSet<String>,
    /// How many grants there were at the last invalidation.
    fenced: u64,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) granted: u64,
    pub(crate) published: u64,
    pub(crate) unchanged: u64,
    pub(crate) rolled_back: u64,
    pub(crate) invalidated: u64,
    /// Publishes that happened without their worker hearing of it.
    pub(crate) unheard: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.granted += other.granted;
        self.published += other.published;
        self.unchanged += other.unchanged;
        self.rolled_back += other.rolled_back;
        self.invalidated += other.invalidated;
        self.unheard += other.unheard;
    }
}

impl Recorder {
    pub(crate) fn new(table: MemoryTable) -> Self {
        Recorder { table, history: Mutex::default() }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.history.lock().expect("one thread").tally
    }

    /// A worker was told that this body is published: then it must have been.
    pub(crate) fn was_reported(&self, page: &PageKey, s3_key: &str) {
        let mut history = self.history.lock().expect("one thread");
        let known = history.pages.get(page.pk()).is_some_and(|page| page.published.contains(s3_key));
        assert!(known, "{s3_key} was reported as published, and never was");
        history.tally.unheard -= 1;
    }

    async fn row<T>(&self, pk: &str, sk: &str, read: impl Fn(&Item) -> facetheory::Result<T>) -> Option<T> {
        let item = self.table.get(&Key::new(pk, sk), Consistency::Strong).await.expect("memory answers");
        item.map(|item| read(&item).expect("our own rows can be read"))
    }

    /// `META` and `LOCK` of a page.
    async fn rows(&self, pk: &str) -> (Option<Meta>, Option<Lock>) {
        (self.row(pk, "META", Meta::read).await, self.row(pk, "LOCK", Lock::read).await)
    }
}

impl History {
    /// Checks one transaction by what it made of `META` and `LOCK`.
    fn note(
        &mut self,
        pk: &str,
        before: &(Option<Meta>, Option<Lock>),
        after: &(Option<Meta>, Option<Lock>),
        now: tabletheory::Timestamp,
    ) {
        let page = self.pages.entry(pk.to_owned()).or_default();
        let token = |lock: &Option<Lock>| lock.as_ref().map(|lock| lock.lease_token.clone());
        let (held, holds) = (token(&before.1), token(&after.1));
        if let Some(new) = holds.filter(|new| Some(new) != held.as_ref()) {
            let grant = page.grants.len() as u64 + 1;
            assert!(page.grants.insert(new, grant).is_none(), "a token is granted once");
            self.tally.granted += 1;
        }
        let (Some(meta), old) = (&after.0, &before.0) else { return };
        if Some(meta) == old.as_ref() {
            return;
        }
        let mark = |meta: Option<&Meta>| meta.and_then(|meta| meta.mark.clone());
        let version = |meta: Option<&Meta>| meta.and_then(|meta| meta.version).unwrap_or(0);
        let pointer = |meta: Option<&Meta>| meta.map(|meta| meta.generation.s3_key.clone());
        let moved = pointer(Some(meta)) != pointer(old.as_ref());
        if let Some(publisher) = mark(Some(meta)).filter(|new| Some(new) != mark(old.as_ref()).as_ref()) {
            assert_eq!(Some(&publisher), held.as_ref(), "only the holder of the lock publishes");
            assert!(after.1.is_none(), "and gives the lock back with it");
            assert!(page.publishers.insert(publisher.clone()), "a token publishes at most once");
            let grant = page.grants[&publisher];
            assert!(grant > page.last_publisher, "no earlier grant publishes after a later one");
            assert!(grant > page.fenced, "nothing rendered before an invalidation is published after it");
            page.last_publisher = grant;
            if version(Some(meta)) == version(old.as_ref()) {
                assert!(!moved, "an unchanged page keeps its pointer");
                self.tally.unchanged += 1;
            } else {
                assert_eq!(version(Some(meta)), version(old.as_ref()) + 1, "the version rises by one");
                page.published.insert(meta.generation.s3_key.clone());
                self.tally.published += 1;
                self.tally.unheard += 1;
            }
            return;
        }
        if version(Some(meta)) != version(old.as_ref()) {
            assert_eq!(version(Some(meta)), version(old.as_ref()) + 1, "the version rises by one");
            assert!(after.1.is_none(), "a rollback fences a render in flight");
            page.fenced = page.grants.len() as u64;
            self.tally.rolled_back += 1;
            return;
        }
        assert!(!moved, "an invalidation keeps the pointer");
        assert_ne!(meta.freshness(now), Freshness::Fresh, "what was invalidated is not fresh");
        assert!(after.1.is_none(), "an invalidation fences a render in flight");
        page.fenced = page.grants.len() as u64;
        self.tally.invalidated += 1;
    }
}

#[async_trait::async_trait]
impl Table for Recorder {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.table.get(key, consistency).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.table.batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.table.query(query).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.table.scan(scan).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let Some(pk) = txn.writes().first().map(|write| write.key().pk.clone()) else {
            return self.table.commit(txn).await;
        };
        let before = self.rows(&pk).await;
        let commit = self.table.commit(txn).await?;
        let after = self.rows(&pk).await;
        if before != after {
            let mut history = self.history.lock().expect("one thread");
            history.note(&pk, &before, &after, self.table.clock().now());
        }
        Ok(commit)
    }

    fn clock(&self) -> &dyn Clock {
        self.table.clock()
    }
}
