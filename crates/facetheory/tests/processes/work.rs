//! A worker process: it regenerates, requests, invalidates, rolls back and reads pages until it is killed, and records
//! it.

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
/// Few enough keys that several processes use the same ones.
const REQUESTS: u64 = 40;
/// Long enough to meet other operations, short enough to end within a run.
const PIN: Duration = Duration::from_secs(1);

/// The tenants have the same cache keys.
pub(crate) fn page(number: u64) -> PageKey {
    let tenant = Tenant::new(tenant(number)).expect("a tenant");
    let tenant = Some(&tenant).filter(|tenant| tenant.as_str() != TENANTS[0]);
    KeyScheme::Hashed.page(tenant, format!("/page/{}", number / 3)).expect("a page")
}

fn tenant(number: u64) -> &'static str {
    TENANTS[usize::try_from(number % 3).expect("few")]
}

/// The prefix of every body of a page.
pub(crate) fn signature(number: u64) -> String {
    format!("{}:{}:", tenant(number), page(number).cache_key())
}

/// Pages with requests are always stale, so that a request has work to do; the others are fresh for a minute.
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
                worker.act().await;
            }
        });
    }
    // A worker ends only by a panic.
    workers.join_next().await.transpose()?;
    Err("a worker ended".into())
}

struct Worker {
    pages: Pages,
    bodies: Bodies,
    history: Recorder,
    process: String,
    attempts: AtomicU64,
}

/// One operation of a worker on one page.
struct Attempt<'a> {
    worker: &'a Worker,
    id: String,
    number: u64,
    page: PageKey,
}

impl Worker {
    async fn act(&self) {
        let id = format!("{}-{}", self.process, self.attempts.fetch_add(1, Ordering::Relaxed));
        let number = draw(PAGES);
        let attempt = Attempt { worker: self, id, number, page: page(number) };
        let outcome = match draw(20) {
            0..=1 => attempt.invalidate().await,
            2 if !is_requested(number) => attempt.roll_back().await,
            3..=4 => attempt.read().await,
            5..=7 => attempt.regenerate().await,
            8..=12 if is_requested(number) => attempt.request().await,
            _ => attempt.publish_step_by_step().await,
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
        format!("{}{:016x}", signature(self.number), SystemRandom.next_u64())
    }

    /// Executes the steps of a regeneration one by one.
    async fn publish_step_by_step(&self) -> Result<(), Error> {
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
        // Sometimes the render is unchanged.
        if let (None, 0, Some(seen)) = (request, draw(4), &seen)
            && seen.generation.content.digest.is_some()
        {
            let mut same = seen.generation.clone();
            same.generated_at = started.seconds();
            same.revalidate_seconds = interval(self.number);
            self.note("publishing-unchanged", &[lease.token()]);
            let unchanged = store.publish(lease, &same, Some(seen), History::Versions, None).await?;
            self.note("unchanged", &[&format!("{unchanged:?}")]);
            return Ok(());
        }
        let content = Rendered::html("").content;
        let stored =
            self.worker.bodies.put(&self.page, started, self.body().into(), &content, &SystemRandom).await?;
        let mut generation =
            Generation::new(stored.s3_key.as_str(), started.seconds(), interval(self.number));
        generation.content = content;
        generation.content.digest = Some(stored.digest);
        // While the lease is held, no other worker publishes, so this is the next version.
        let version = seen.as_ref().and_then(|seen| seen.version).unwrap_or(0) + 1;
        let key = request.map_or("-", |(_, key)| key);
        self.note("publishing", &[lease.token(), &stored.s3_key, &version.to_string(), key]);
        let published = match request {
            None => store.publish(lease, &generation, seen.as_ref(), History::Versions, None).await,
            Some((claim, _)) => {
                store.publish(lease, &generation, seen.as_ref(), History::Versions, Some(claim)).await
            }
        };
        match published {
            Ok(Published::Done) => {
                self.note("published", &[]);
                self.report_publish();
            }
            Ok(Published::Lost) => self.note("lost", &[]),
            Ok(Published::Superseded) => self.note("superseded", &[]),
            // `Unavailable` means that nothing was published; only `Unknown` leaves that open.
            Err(error) if error.kind() == Kind::Unavailable => self.note("unavailable", &[]),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes one line per published page, by which the parent sees the progress of this process.
    fn report_publish(&self) {
        // Fails if the parent has exited.
        let _ = std::io::stdout().write_all(b"published\n");
    }

    /// Regenerates through `Pages`, as an application does.
    async fn regenerate(&self) -> Result<(), Error> {
        let every = Duration::from_secs(interval(self.number).unsigned_abs());
        let policy = Policy::every(every).with_history(History::Versions);
        let body = self.body();
        let rendered = |_| async { Ok(Rendered::html(body)) };
        if let Outcome::Published(generation) =
            self.worker.pages.regenerate(&self.page, &policy, rendered).await?
        {
            self.note("regenerated", &[&generation.s3_key]);
            self.report_publish();
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
                    &[&key, if other == Begin::OtherRequest { "rejected" } else { "accepted" }],
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn invalidate(&self) -> Result<(), Error> {
        let mode = if draw(2) == 0 { InvalidationMode::Soft } else { InvalidationMode::Hard };
        let store = self.worker.pages.store();
        self.note("invalidating", &[]);
        match store.invalidate(&self.page, mode).await? {
            Invalidated::Pinned => self.note("pinned", &[]),
            Invalidated::Stale | Invalidated::Absent => {
                self.note("invalidated", &[]);
                if let Some(meta) = store.lookup(&self.page).await?.meta {
                    let now = store.now();
                    let fresh = meta.freshness(now) == Freshness::Fresh && meta.pinned_until.is_none();
                    let mark = meta.mark.as_deref().unwrap_or("-");
                    self.note("read-after-invalidation", &[if fresh { "fresh" } else { "stale" }, mark]);
                }
            }
        }
        Ok(())
    }

    async fn roll_back(&self) -> Result<(), Error> {
        let store = self.worker.pages.store();
        let versions = store.versions(&self.page, 5).await?;
        let Some((sk, _)) = versions.get(usize::try_from(draw(5)).expect("few")) else { return Ok(()) };
        self.note("rolling-back", &[sk]);
        let pin = if draw(2) == 0 { PIN } else { Duration::ZERO };
        match store.roll_back(&self.page, sk, pin).await? {
            RolledBack::Done => self.note("rolled-back", &[]),
            RolledBack::NoSuchVersion => self.note("no-such-version", &[]),
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
