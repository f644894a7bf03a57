//! What a worker does until it is killed: it renews, requests, invalidates, goes back and reads, and records it all.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use facetheory::protocol::{Acquire, Begin, Claim, Freshness, Generation, Lease, Published};
use facetheory::{
    Bodies, Error, History, Invalidated, InvalidationMode, KeyScheme, Kind, Outcome, PageKey, Pages, Policy,
    Rendered, RolledBack, Tenant,
};
use libtest_mimic::Failed;
use tabletheory::{Random, SystemRandom};

use crate::history::Recorder;

const WORKERS: u64 = 8;
pub(crate) const PAGES: u64 = 18;
const TENANTS: [&str; 3] = ["-", "acme", "zeta"];
/// So few keys for requests that several processes meet on each.
const REQUESTS: u64 = 40;
/// Long enough to be met by others, short enough to end within a run.
const PIN: Duration = Duration::from_secs(1);

/// The pages of several tenants, with the same cache keys.
pub(crate) fn page(number: u64) -> PageKey {
    let tenant = Tenant::new(tenant(number)).expect("a tenant");
    let tenant = Some(&tenant).filter(|tenant| tenant.as_str() != TENANTS[0]);
    KeyScheme::Hashed.page(tenant, format!("/page/{}", number / 3)).expect("a page")
}

fn tenant(number: u64) -> &'static str {
    TENANTS[usize::try_from(number % 3).expect("few")]
}

/// What every body of a page begins with.
pub(crate) fn beginning(number: u64) -> String {
    format!("{}:{}:", tenant(number), page(number).cache_key())
}

/// Pages that are requested are always stale, so that there is something to do; the others are fresh for a minute.
pub(crate) fn is_requested(number: u64) -> bool {
    number % 2 == 1
}

fn interval(number: u64) -> i64 {
    if is_requested(number) { 0 } else { 60 }
}

fn draw(below: u64) -> u64 {
    SystemRandom.next_u64() % below
}

pub(crate) async fn forever(pages: &Pages, bodies: &Bodies, history: Recorder) -> Result<(), Failed> {
    let process = format!("{:x}", SystemRandom.next_u64());
    let worker = Arc::new(Worker {
        pages: pages.clone(),
        bodies: bodies.clone(),
        history,
        process,
        attempts: AtomicU64::new(0),
    });
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        let worker = worker.clone();
        workers.spawn(async move {
            loop {
                worker.do_something().await;
            }
        });
    }
    // It panics where something happens that never may.
    workers.join_next().await.transpose()?;
    Err("a worker never ends by itself".into())
}

struct Worker {
    pages: Pages,
    bodies: Bodies,
    history: Recorder,
    process: String,
    attempts: AtomicU64,
}

/// One thing that a worker does to one page.
struct Attempt<'a> {
    worker: &'a Worker,
    id: String,
    number: u64,
    page: PageKey,
}

impl Worker {
    async fn do_something(&self) {
        let id = format!("{}-{}", self.process, self.attempts.fetch_add(1, Ordering::Relaxed));
        let number = draw(PAGES);
        let attempt = Attempt { worker: self, id, number, page: page(number) };
        let outcome = match draw(20) {
            0..=1 => attempt.invalidate().await,
            2 if !is_requested(number) => attempt.roll_back().await,
            3..=4 => attempt.read().await,
            5..=7 => attempt.regenerate().await,
            8..=12 if is_requested(number) => attempt.request().await,
            _ => attempt.renew().await,
        };
        match outcome {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) => assert!(matches!(error.kind(), Kind::Unavailable | Kind::Unknown), "{error}"),
        }
    }
}

impl Attempt<'_> {
    fn note(&self, what: &str, more: &[&str]) {
        self.worker.history.note(&self.id, what, self.number, more);
    }

    fn body(&self) -> String {
        format!("{}{:016x}", beginning(self.number), SystemRandom.next_u64())
    }

    /// The steps of a regeneration, one by one.
    async fn renew(&self) -> Result<(), Error> {
        self.note("acquiring", &[]);
        let Acquire::Granted(lease) = self.worker.pages.store().try_acquire(&self.page).await? else {
            return Ok(());
        };
        self.publish(&lease, None).await
    }

    async fn publish(&self, lease: &Lease, request: Option<(&Claim, &str)>) -> Result<(), Error> {
        let store = self.worker.pages.store();
        self.note("granted", &[lease.token(), &lease.expires_at().to_string()]);
        let seen = store.lookup(&self.page).await?.meta;
        let started = store.now();
        // Now and then the render comes out as it was.
        if let (None, 0, Some(seen)) = (request, draw(4), &seen)
            && seen.generation.content.digest.is_some()
        {
            let mut same = seen.generation.clone();
            same.generated_at = started.seconds();
            same.revalidate_seconds = interval(self.number);
            self.note("confirming", &[lease.token()]);
            let confirmed = store.commit_generation(lease, &same, Some(seen), History::Versions).await?;
            self.note("confirmed", &[&format!("{confirmed:?}")]);
            return Ok(());
        }
        let content = Rendered::html("").content;
        let stored =
            self.worker.bodies.put(&self.page, started, self.body().into(), &content, &SystemRandom).await?;
        let mut generation =
            Generation::new(stored.s3_key.as_str(), started.seconds(), interval(self.number));
        generation.content = content;
        generation.content.digest = Some(stored.digest);
        // The lease keeps others from publishing, so this is the version that it will be.
        let version = seen.as_ref().and_then(|seen| seen.version).unwrap_or(0) + 1;
        let key = request.map_or("-", |(_, key)| key);
        self.note("publishing", &[lease.token(), &stored.s3_key, &version.to_string(), key]);
        let published = match request {
            None => store.commit_generation(lease, &generation, seen.as_ref(), History::Versions).await,
            Some((claim, _)) => {
                store.commit_request(lease, claim, &generation, seen.as_ref(), History::Versions).await
            }
        };
        match published {
            Ok(Published::Done) => {
                self.note("published", &[]);
                self.tell();
            }
            Ok(Published::Lost) => self.note("lost", &[]),
            Ok(Published::Superseded) => self.note("superseded", &[]),
            // A store that cannot answer now has not published; only an unknown outcome leaves that open.
            Err(error) if error.kind() == Kind::Unavailable => self.note("denied", &[]),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// One line for each page that was published, by which the parent knows how far this process has come.
    fn tell(&self) {
        // Where the parent has given up, there is nobody left to tell.
        let _ = std::io::stdout().write_all(b"published\n");
    }

    /// All of it at once, as a program would.
    async fn regenerate(&self) -> Result<(), Error> {
        let every = Duration::from_secs(interval(self.number).unsigned_abs());
        let policy = Policy::every(every).with_history(History::Versions);
        let body = self.body();
        let rendered = |_| async { Ok(Rendered::html(body)) };
        if let Outcome::Published(generation) =
            self.worker.pages.regenerate(&self.page, &policy, rendered).await?
        {
            self.note("regenerated", &[&generation.s3_key]);
            self.tell();
        }
        Ok(())
    }

    async fn request(&self) -> Result<(), Error> {
        let (store, key) = (self.worker.pages.store(), format!("order-{}", draw(REQUESTS)));
        self.note("requesting", &[&key]);
        self.note("acquiring", &[]);
        match store.begin_request(&self.page, &key, "hash").await? {
            Begin::Started { lease, claim } if draw(5) == 0 => {
                self.note("granted", &[lease.token(), &lease.expires_at().to_string()]);
                store.fail_request(&lease, &claim).await
            }
            Begin::Started { lease, claim } => self.publish(&lease, Some((&claim, &key))).await,
            Begin::Replayed { s3_key } => {
                self.note("replayed", &[&key, s3_key.as_deref().unwrap_or("-")]);
                let other = store.begin_request(&self.page, &key, "other hash").await?;
                self.note(
                    "other",
                    &[&key, if other == Begin::OtherRequest { "refused" } else { "accepted" }],
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn invalidate(&self) -> Result<(), Error> {
        let strength = if draw(2) == 0 { InvalidationMode::Soft } else { InvalidationMode::Hard };
        let store = self.worker.pages.store();
        self.note("invalidating", &[]);
        match store.invalidate(&self.page, strength).await? {
            Invalidated::Pinned => self.note("spared", &[]),
            Invalidated::Stale | Invalidated::Absent => {
                self.note("invalidated", &[]);
                if let Some(meta) = store.lookup(&self.page).await?.meta {
                    let now = store.now();
                    let fresh = meta.freshness(now) == Freshness::Fresh && meta.pinned_until.is_none();
                    let mark = meta.mark.as_deref().unwrap_or("-");
                    self.note("looked", &[if fresh { "fresh" } else { "stale" }, mark]);
                }
            }
        }
        Ok(())
    }

    async fn roll_back(&self) -> Result<(), Error> {
        let store = self.worker.pages.store();
        let versions = store.versions(&self.page, 5).await?;
        let Some((sk, _)) = versions.get(usize::try_from(draw(5)).expect("few")) else { return Ok(()) };
        self.note("going-back", &[sk]);
        let pin = if draw(2) == 0 { PIN } else { Duration::ZERO };
        match store.roll_back(&self.page, sk, pin).await? {
            RolledBack::Done => self.note("went-back", &[]),
            RolledBack::NoSuchVersion => self.note("stayed", &[]),
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), Error> {
        match self.worker.pages.read(&self.page).await? {
            Some((_, body)) => self.note("read", &[&String::from_utf8_lossy(&body.bytes)]),
            None => self.note("missing", &[]),
        }
        Ok(())
    }
}
