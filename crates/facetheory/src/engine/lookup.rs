//! A look: what the table says of a page, asked once for all who want to know now, and its body.

use std::sync::Arc;

use tabletheory::Timestamp;
use tracing::Instrument as _;

use super::Engine;
use super::cached_page::CachedPage;
use super::memory::{Entry, MetadataCheck, RequestStart};
use super::metrics::Phase;
use crate::error::{Error, Kind, Result};
use crate::protocol::freshness::Freshness;
use crate::protocol::key::PageKey;
use crate::protocol::row::Meta;

/// What the table said of a page, with its body.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) meta: Option<Meta>,
    /// By its times and tags.
    pub(super) freshness: Freshness,
    pub(super) checked: MetadataCheck,
    pub(super) body: Found,
}

impl Seen {
    /// It may have gone stale while its body was read.
    pub(super) fn freshness_at(&self, now: Timestamp) -> Freshness {
        match (&self.meta, self.freshness) {
            (Some(meta), Freshness::Fresh) => meta.freshness(now),
            (_, other) => other,
        }
    }
}

/// Whether the body was found that `META` names.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Here(Arc<Entry>),
    /// There is no page, or none whose body may be served.
    Nothing,
    /// It is missing or damaged.
    Broken,
    /// It could not be read.
    Unreachable,
}

impl Found {
    /// The page, if its body was found.
    pub(super) fn page(&self) -> Option<&CachedPage> {
        match self {
            Found::Here(entry) => Some(&entry.page),
            Found::Nothing | Found::Broken | Found::Unreachable => None,
        }
    }
}

/// What came of a look.
pub(super) type Look = Result<Arc<Seen>, Arc<Error>>;

impl Engine {
    /// Asks the table about a page, once for all who want to know now.
    pub(super) async fn look(self: &Arc<Self>, page: &PageKey, arrival: RequestStart) -> Look {
        if !self.outage.lets_ask(self.now()) {
            let what = "the table could not be reached a moment ago, and is left alone";
            return Err(Arc::new(Error::new(Kind::Unavailable, what)));
        }
        // Where every visitor is to read, none may be given what another asked for before.
        if self.settings.believed.is_zero() {
            return self.ask(page).await;
        }
        let look = self.join_look(page).await;
        match &look {
            // The next one begins after this visitor came.
            Ok(seen) if !arrival.believes(seen.checked, self.settings.believed) => self.join_look(page).await,
            _ => look,
        }
    }

    async fn join_look(self: &Arc<Self>, page: &PageKey) -> Look {
        let start = || {
            let (engine, page) = (self.clone(), page.clone());
            async move { engine.ask(&page).await }
        };
        let seat = self.looks.join(page, start, |flight| self.spawn(flight));
        let crashed = || Err(Arc::new(Error::new(Kind::Unavailable, "a look at the table came to grief")));
        seat.landed().await.unwrap_or_else(crashed)
    }

    /// Asks the table about a page, and reads its body where memory does not have it.
    pub(super) async fn ask(self: &Arc<Self>, page: &PageKey) -> Look {
        let (at, sequence) = (self.now(), self.memory.sequence(page));
        let store = self.pages.store();
        let asking = async {
            let view = store.lookup(page).await?;
            let freshness = match &view.meta {
                Some(meta) => store.freshness(page, meta).await?,
                None => Freshness::MustNotServe,
            };
            // What follows its origin is used by nobody once it was invalidated, also if it was stale before.
            let invalidated = match &view.meta {
                Some(meta) if meta.generation.follows_origin() && !meta.is_pinned(at) => {
                    store.is_outdated(page, meta).await?
                }
                _ => false,
            };
            Ok::<_, Error>((view, freshness, invalidated))
        };
        let asking = asking.instrument(tracing::debug_span!("look", page = %page.redacted()));
        let asked = tokio::time::timeout(self.settings.table_timeout, asking).await.unwrap_or_else(|_| {
            let limit = self.settings.table_timeout;
            Err(Error::new(Kind::Unavailable, format!("the table did not answer within {limit:?}")))
        });
        let (view, freshness, invalidated) = match asked {
            Ok(asked) => asked,
            Err(error) => {
                self.outage.failed(self.now(), &*self.random);
                self.observer.incident(Phase::Table, page, &error);
                return Err(Arc::new(error));
            }
        };
        self.outage.ended();
        let checked = MetadataCheck {
            at,
            sequence,
            outdated: freshness == Freshness::Stale,
            invalidated,
            held_until: view.lock.map_or(0, |lock| lock.lease_expires_at),
        };
        let body = match &view.meta {
            Some(meta) if freshness != Freshness::MustNotServe => self.find(page, meta, checked).await,
            Some(meta) => {
                self.memory.forbid_generation(page, &meta.generation);
                Found::Nothing
            }
            // A table that is about to go down may say so of rows that it has. Nobody is given the page unless it does.
            None => Found::Nothing,
        };
        Ok(Arc::new(Seen { meta: view.meta, freshness, checked, body }))
    }

    /// The body that `META` names: from memory, if it is there.
    pub(super) async fn find(self: &Arc<Self>, page: &PageKey, meta: &Meta, checked: MetadataCheck) -> Found {
        let s3_key = &meta.generation.s3_key;
        let known = self.memory.get(page).filter(|entry| entry.page.generation().s3_key == *s3_key);
        if let Some(entry) = known {
            if entry.page.meta() == meta {
                return Found::Here(self.memory.keep(page, entry.checked_again(checked)));
            }
            let moved = CachedPage::with_body(meta.clone(), entry.page.body().clone());
            return Found::Here(self.keep(page, Entry::new(moved, checked, entry.render_millis())));
        }
        if !self.bodies_outage.lets_ask(self.now()) {
            return Found::Unreachable;
        }
        let body = self.pages.body(meta).await;
        match &body {
            Ok(_) => self.bodies_outage.ended(),
            Err(_) => self.bodies_outage.failed(self.now(), &*self.random),
        }
        match body {
            Ok(Some(body)) => {
                Found::Here(self.keep(page, Entry::new(CachedPage::new(meta.clone(), body), checked, 0)))
            }
            Ok(None) => {
                let what = format!("the body {s3_key} is missing or damaged, and is rendered again");
                self.observer.incident(Phase::Body, page, &Error::new(Kind::Corrupt, what));
                Found::Broken
            }
            Err(error) => {
                self.observer.incident(Phase::Body, page, &error);
                Found::Unreachable
            }
        }
    }
}
