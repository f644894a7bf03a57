//! No body that a row names is deleted, whatever happens before and during a garbage collection.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use facetheory::protocol::{Acquire, Begin, Claim, Content, Generation, Guards, Lease};
use facetheory::{Bodies, History, PageKey, PageStore};
use proptest::prelude::*;
use tabletheory::{ManualClock, Scan, SeededRandom, Table};

use crate::fixture::{DAY, GRACE, Test, page, retaining};

/// The number of pages.
const PAGES: usize = 2;

#[derive(Clone, Debug)]
enum Event {
    /// A worker acquires the lease, renders, and stores a body.
    Store {
        page: usize,
        for_request: bool,
    },
    /// A worker publishes, perhaps too late.
    Publish {
        worker: usize,
        versioned: bool,
    },
    RollBack {
        page: usize,
        version: usize,
    },
    Invalidate {
        page: usize,
    },
    Wait {
        grace: u32,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..PAGES, any::<bool>()).prop_map(|(page, for_request)| Event::Store { page, for_request }),
        3 => (0..3_usize, any::<bool>()).prop_map(|(worker, versioned)| Event::Publish { worker, versioned }),
        2 => (0..PAGES, 0..4_usize).prop_map(|(page, version)| Event::RollBack { page, version }),
        1 => (0..PAGES).prop_map(|page| Event::Invalidate { page }),
        2 => (1..3_u32).prop_map(|grace| Event::Wait { grace }),
    ]
}

/// Concurrent workers and operators.
struct Others {
    store: PageStore,
    bodies: Bodies,
    clock: Arc<ManualClock>,
    random: SeededRandom,
    workers: Mutex<Vec<(Lease, Option<Claim>, String)>>,
}

impl Others {
    async fn act(&self, event: &Event) {
        let at = |index: usize| -> PageKey { page(&format!("/{index}")) };
        match *event {
            Event::Store { page, for_request } => {
                let name = format!("{:x}", tabletheory::Random::next_u64(&self.random));
                let (lease, claim) = if for_request {
                    match self.store.begin_request(&at(page), &name, "hash").await.expect("no error") {
                        Begin::Started { lease, claim } => (lease, Some(claim)),
                        _ => return,
                    }
                } else {
                    match self.store.try_acquire(&at(page)).await.expect("no error") {
                        Acquire::Granted(lease) => (lease, None),
                        Acquire::Held { .. } => return,
                    }
                };
                let now = self.store.now();
                let stored =
                    self.bodies.put(&at(page), now, "x".into(), &Content::default(), &self.random).await;
                let s3_key = stored.expect("stored").s3_key;
                self.workers.lock().expect("not poisoned").push((lease, claim, s3_key));
            }
            Event::Publish { worker, versioned } => {
                let worker = {
                    let mut workers = self.workers.lock().expect("not poisoned");
                    if worker >= workers.len() {
                        return;
                    }
                    workers.remove(worker)
                };
                let (lease, claim, s3_key) = worker;
                let seen = self.store.lookup(lease.page()).await.expect("no error").meta;
                let generation = Generation::new(s3_key, self.store.now().seconds(), 0);
                let history = if versioned { History::Versions } else { History::Latest };
                let _published = match claim {
                    Some(claim) => {
                        self.store.publish(&lease, &generation, seen.as_ref(), history, Some(&claim)).await
                    }
                    None => self.store.publish(&lease, &generation, seen.as_ref(), history, None).await,
                }
                .expect("no error");
            }
            Event::RollBack { page, version } => {
                let versions = self.store.versions(&at(page), 10).await.expect("no error");
                if let Some((sk, _)) = versions.get(version) {
                    let _done = self.store.roll_back(&at(page), sk, DAY).await.expect("no error");
                }
            }
            Event::Invalidate { page } => {
                let done = self.store.invalidate(&at(page), facetheory::InvalidationMode::Hard).await;
                done.expect("no error");
            }
            Event::Wait { grace } => self.clock.advance(GRACE * grace + Duration::from_secs(1)),
        }
    }
}

/// The first S3 key in a row whose body does not exist.
async fn missing(t: &Test) -> Option<String> {
    let rows = t.table.table.scan(&Scan::new()).await.expect("a scan").items;
    for row in rows {
        for attribute in ["s3_key", "result_s3_key"] {
            if let Some(s3_key) = row.get(attribute).and_then(tabletheory::Value::as_str)
                && !t.has(s3_key).await
            {
                return Some(format!("{s3_key} of {:?}", row.key()));
            }
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_body_that_a_row_names_is_ever_deleted(
        before in proptest::collection::vec(event(), 4..24),
        during in proptest::collection::vec((1..16_usize, event()), 0..12),
        after in proptest::collection::vec(event(), 0..8),
        versions in 0..3_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let t = Test::memory();
            // These workers publish even after their lease has expired, unless another worker has acquired it.
            let mut guards = Guards::default();
            guards.not_expired = false;
            let store = PageStore::new(t.table.table.clone())
                .with_random(Arc::new(SeededRandom::new(1)))
                .with_guards(guards);
            let others = Arc::new(Others {
                store,
                bodies: t.bodies.clone(),
                clock: t.clock.clone(),
                random: SeededRandom::new(2),
                workers: Mutex::default(),
            });
            for event in &before {
                others.act(event).await;
            }
            let (world, events) = (Arc::clone(&others), Arc::new(during));
            t.table.meanwhile(Some(Arc::new(move |step| {
                let (world, events) = (Arc::clone(&world), Arc::clone(&events));
                Box::pin(async move {
                    for (_, event) in events.iter().filter(|(when, _)| *when == step) {
                        world.act(event).await;
                    }
                })
            })));
            let report = t.gc(&retaining(versions)).await;
            t.table.meanwhile(None);
            prop_assert_eq!(missing(&t).await, None);
            prop_assert_eq!(
                report.objects,
                report.orphans + report.named + report.young + report.protected
            );
            for event in &after {
                others.act(event).await;
                prop_assert_eq!(missing(&t).await, None, "after {:?}", event);
            }
            Ok(())
        })?;
    }
}
