//! `facetheory demo`: what the table guarantees, shown on a real one.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tabletheory::{
    Attr, ClientToken, Commit, Cond, Consistency, Item, Key, SystemRandom, Table, Timestamp, Txn, Value,
    Write,
};

const PK: Attr<String> = Attr::new("pk");
const LEASE_TOKEN: Attr<String> = Attr::new("lease_token");
const LEASE_EXPIRES_AT: Attr<i64> = Attr::new("lease_expires_at");

const LEASE: Duration = Duration::from_secs(30);
const WORKERS: usize = 8;

/// Show on an embedded store how one worker of many renews a page, and why a late one cannot harm it.
///
/// Nothing has to be configured. Without --table the store is a file in a temporary directory, which is
/// deleted in the end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory demo
  facetheory demo --table sqlite:facetheory-data/demo.db    keep the file, to look at it with sqlite3
  facetheory demo --table memory:")]
pub(crate) struct Arguments {
    /// Where the rows are kept: memory: or sqlite:PATH.
    #[arg(long, value_name = "ADDRESS")]
    table: Option<tabletheory::Address>,
}

/// Runs the demo; Ctrl-C ends it without leaving its directory behind.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    tokio::select! {
        told = tell_all(arguments) => told,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("Ctrl-C cannot be waited for")?;
            bail!("interrupted")
        }
    }
}

async fn tell_all(arguments: &Arguments) -> Result<()> {
    let directory = tempfile::tempdir().context("no temporary directory can be made")?;
    let address = match &arguments.table {
        Some(address) => address.clone(),
        None => tabletheory::Address::Sqlite(directory.path().join("table.db")),
    };
    let table = address.open().await?;
    let page = Key::new(format!("CACHE#{}", ClientToken::random(&SystemRandom).as_str()), "META");
    tell(&format!("The store is {address}."))?;

    let slow = take_lease_long_ago(&*table, &page).await?;
    tell("A worker took the lease of a page, and fell asleep over it until it expired.")?;
    let quick = race(&table, &page).await?;
    let late = publish(&*table, &page, &slow, "rendered by the slow worker").await?;
    ensure!(late.is_refused(), "a worker whose lease was gone has published");
    tell("The slow worker wakes up and publishes: refused, and nothing was written.")?;
    let published = publish(&*table, &page, &quick, "rendered by the quick worker").await?;
    ensure!(published.is_done(), "the holder of the lease could not publish");
    tell("The winner publishes and gives its lease back, in one transaction:")?;
    for row in table.query(&tabletheory::Query::of(page.pk.as_str())).await?.items {
        tell(&format!("  {}", row.to_json()))?;
    }
    let renewed = race_many(&table, &page).await?;
    ensure!(renewed, "some renewals were lost");
    tell("\nTry next:")?;
    tell("  cargo run --release -- demo --table sqlite:facetheory-data/demo.db")?;
    tell("  sqlite3 facetheory-data/demo.db 'SELECT sk, item FROM item'")?;
    tell("  cargo run -p tabletheory --example publish")
}

/// A reader that has gone away ends the demo with an error, not with a panic.
fn tell(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("the output cannot be written")
}

/// One worker's claim to a page.
#[derive(Clone, Debug)]
struct Lease {
    token: String,
    expires_at: i64,
}

impl Lease {
    fn starting(now: Timestamp) -> Self {
        let token = ClientToken::random(&SystemRandom).as_str().to_owned();
        Lease { token, expires_at: (now + LEASE).seconds_rounded_up() }
    }

    /// One conditional put: of many contenders, one gets it, and the others learn until when it is held.
    async fn take(&self, table: &dyn Table, page: &Key, now: Timestamp) -> tabletheory::Result<Commit> {
        let row = Item::from([
            (LEASE_TOKEN.name(), Value::from(self.token.as_str())),
            (LEASE_EXPIRES_AT.name(), Value::from(self.expires_at)),
        ]);
        let free = PK.absent().or(LEASE_EXPIRES_AT.le(now.seconds()));
        table.commit(&Txn::from(Write::put(page.sibling("LOCK"), row).when(free))).await
    }

    fn held_at(&self, now: Timestamp) -> Cond {
        LEASE_TOKEN.is(self.token.as_str()).and(LEASE_EXPIRES_AT.gt(now.seconds()))
    }
}

async fn take_lease_long_ago(table: &dyn Table, page: &Key) -> Result<Lease> {
    let then = table.clock().now() - 2 * LEASE;
    let lease = Lease::starting(then);
    ensure!(lease.take(table, page, then).await?.is_done(), "somebody else uses this page");
    Ok(lease)
}

/// Many workers want the same lease at once; returns the winner's.
async fn race(table: &Arc<dyn Table>, page: &Key) -> Result<Lease> {
    let mut workers = tokio::task::JoinSet::new();
    for worker in 1..=WORKERS {
        let (table, page) = (Arc::clone(table), page.clone());
        workers.spawn(async move {
            let now = table.clock().now();
            let lease = Lease::starting(now);
            let commit = lease.take(&*table, &page, now).await;
            (worker, lease, commit)
        });
    }
    let mut winner = None;
    for (worker, lease, commit) in workers.join_all().await {
        match commit? {
            Commit::Done => {
                ensure!(winner.is_none(), "two workers have the same lease");
                tell(&format!("{WORKERS} workers race for it. Worker {worker} wins."))?;
                winner = Some(lease);
            }
            Commit::Refused { seen, .. } => {
                let seen = seen.context("a lease that is held has a row")?;
                ensure!(seen.get(LEASE_EXPIRES_AT.name()).is_some(), "the others learn until when");
            }
        }
    }
    tell("The others were refused, and know from the refusal until when it is held.")?;
    winner.context("nobody won the lease")
}

/// The lease is checked by its own delete: one transaction may name a row only once.
async fn publish(table: &dyn Table, page: &Key, lease: &Lease, body: &str) -> tabletheory::Result<Commit> {
    let now = table.clock().now();
    let row = Item::from([
        ("s3_key", Value::from(body)),
        ("generated_at", now.seconds().into()),
        ("revalidate_seconds", 60.into()),
    ]);
    let publish = Txn::new([
        Write::put(page.clone(), row),
        Write::delete(page.sibling("LOCK")).when(lease.held_at(now)),
    ]);
    table.commit(&publish).await
}

/// Takes a lease and publishes, again and again, on pages of many workers at once.
async fn race_many(table: &Arc<dyn Table>, page: &Key) -> Result<bool> {
    const PAGES: usize = 64;
    const ROUNDS: usize = 20;
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..PAGES {
        let (table, page) = (Arc::clone(table), Key::new(format!("{}-{number}", page.pk), "META"));
        workers.spawn(async move {
            for _ in 0..ROUNDS {
                let now = table.clock().now();
                let lease = Lease::starting(now);
                let done = lease.take(&*table, &page, now).await?.is_done()
                    && publish(&*table, &page, &lease, "renewed").await?.is_done();
                ensure!(done, "a page that nobody else renews was refused");
            }
            table.get(&page, Consistency::Strong).await?.context("a page that was just published")
        });
    }
    let start = table.clock().now();
    let mut renewed = 0;
    while let Some(worker) = workers.join_next().await {
        worker??;
        renewed += ROUNDS;
    }
    let millis = (table.clock().now().millis() - start.millis()).max(1);
    tell(&format!("{PAGES} pages renewed {ROUNDS} times each, durably: {renewed} renewals in {millis} ms."))?;
    Ok(renewed == PAGES * ROUNDS)
}
